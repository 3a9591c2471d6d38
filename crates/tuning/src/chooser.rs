//! Filters for many tables, one by one, at ever other prices.
//!
//! Making a menu costs far more than choosing from it, so tables of nearly as many keys on the same
//! level share one: it is made for their keys with all but the first seven bits cleared, and scaled.
//! The filter is that of [`Solver::choose`] but for less than a part in 64 of its bytes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use trommel_filter::FilterSpec;

use crate::menu::Menu;
use crate::price::{Item, Price};
use crate::solver::{Solver, menu_of};

/// Bits of a number of keys that tell menus apart.
const KEY_BITS: u32 = 7;

/// Chooses filters by a solver's rules, and remembers the menus.
#[derive(Debug)]
pub struct Chooser<'a> {
    solver: &'a Solver,
    /// By level and keys.
    menus: HashMap<(usize, u64), Menu>,
}

impl Solver {
    /// What chooses for many tables.
    #[must_use]
    pub fn chooser(&self) -> Chooser<'_> {
        Chooser { solver: self, menus: HashMap::new() }
    }
}

impl Chooser<'_> {
    /// As [`Solver::choose`], but for a part in 64 of the bytes.
    pub fn choose(&mut self, level: usize, keys: u64, weight: f64, price: Price) -> FilterSpec {
        let (menu_keys, _) = menu_of(rounded(keys));
        let menu = match self.menus.entry((level, menu_keys)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                place.insert(Menu::new(self.solver.rules().of(level), menu_keys))
            }
        };
        let scale = if menu_keys == 0 { 1.0 } else { keys as f64 / menu_keys as f64 };
        menu.corner(Item { weight, scale, menu }.corner_at(price)).spec
    }
}

/// `keys` with only its first bits.
fn rounded(keys: u64) -> u64 {
    let cleared = (u64::BITS - keys.leading_zeros()).saturating_sub(KEY_BITS);
    keys >> cleared << cleared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::bytes;
    use crate::rules::Rules;

    #[test]
    fn it_chooses_nearly_as_the_solver_does() {
        let solver = Solver::new(Rules::default());
        let mut chooser = solver.chooser();
        let mut differ = 0;
        for keys in [0, 1, 100, 127, 128, 5_001, 65_535, 65_536, 99_999, 12_345_678] {
            for weight in [0.0, 1e-3, 1.0] {
                for price in [0.0, 1e-9, 1e-7, 1e-5, f64::INFINITY] {
                    let price = Price::new(price).unwrap();
                    let (near, exact) = (
                        chooser.choose(2, keys, weight, price),
                        solver.choose(2, keys, weight, price),
                    );
                    let (near, exact) = (bytes(near, keys), bytes(exact, keys));
                    // A cache line is what small filters are rounded to.
                    assert!(near.abs_diff(exact) <= exact / 32 + 64, "{keys}: {near}, {exact}");
                    differ += u64::from(near > 0);
                }
            }
        }
        assert!(differ > 20, "there were filters: {differ}");
        assert_eq!([0, 5, 127, 129, 255, 1_000_001].map(rounded), [0, 5, 127, 128, 254, 999_424]);
    }
}
