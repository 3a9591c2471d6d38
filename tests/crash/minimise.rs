//! Minimises failing inputs: delta debugging.
//!
//! 1. The list is split into chunks; each is left out in turn. If the rest still fails, it replaces
//!    the list.
//! 2. When no chunk can be left out, chunks are halved, down to single items.
//!
//! The result fails, and would not without any one of its items, if there were enough tries.
//! (Zeller, Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002, in its simplest
//! form.)

/// The indices of the items, of `count`, that are necessary for a failure. `fails` gets the
/// retained indices, and is called at most `tries` times. The full list must fail.
pub(crate) fn minimise(
    count: usize,
    mut tries: usize,
    mut fails: impl FnMut(&[usize]) -> bool,
) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..count).collect();
    let mut chunk = count.div_ceil(2);
    while chunk > 0 && tries > 0 {
        let mut at = 0;
        let mut shrunk = false;
        while at < kept.len() && tries > 0 {
            let end = kept.len().min(at + chunk);
            let left: Vec<usize> = [&kept[..at], &kept[end..]].concat();
            tries -= 1;
            if fails(&left) {
                kept = left;
                shrunk = true;
            } else {
                at = end;
            }
        }
        chunk = if chunk == 1 && shrunk { 1 } else { chunk / 2 };
    }
    kept
}

#[test]
fn what_a_failure_does_not_take_is_left_out() {
    let takes = |needed: &'static [usize]| {
        move |kept: &[usize]| needed.iter().all(|item| kept.contains(item))
    };
    for needed in [&[][..], &[0], &[99], &[3, 57], &[0, 1, 2, 50, 98, 99]] {
        assert_eq!(minimise(100, 10_000, takes(needed)), needed);
    }
    // If no single item can be dropped, a pair may be: no list is tried twice until something
    // changes.
    let odd = |kept: &[usize]| kept.iter().filter(|item| **item < 9).count() % 2 == 1;
    let left = minimise(11, 1000, odd);
    assert!(odd(&left) && left.len() <= 3, "{left:?}");
    let mut runs = 0;
    minimise(100, 7, |_| {
        runs += 1;
        false
    });
    assert_eq!(runs, 7, "a failure that takes minutes is not run for ever");
}
