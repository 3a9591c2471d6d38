//! The failures of a workload's disk, and how much of them is necessary to reproduce an error.
//!
//! 1. Actions of the workload are left out, by [`minimise`].
//! 2. With fewer actions a call, or a byte, occurs earlier. So the rest runs with the trouble at
//!    the same number, and then at numbers from there down to zero; where one of them fails, it
//!    replaces the trouble.

use std::fmt;

use trommel_sim::Fault;

use crate::inspect::Verdict;
use crate::minimise::minimise;
use crate::settings::places;
use crate::workload::Action;

/// Maximum number of workload runs to minimise a failure.
const RUNS: usize = 4000;
/// Maximum number of positions of the trouble to try, for each choice of actions.
const NUMBERS: u64 = 40;

/// The trouble of a disk.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    None,
    /// A call fails.
    Fault(Fault),
    /// The disk holds this many bytes.
    Capacity(u64),
}

impl Trouble {
    /// The number of the call, or of bytes.
    fn number(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Fault(fault) => fault.let_pass(),
            Self::Capacity(bytes) => *bytes,
        }
    }

    /// The same trouble at another number.
    fn at(&self, number: u64) -> Self {
        match self {
            Self::None => Self::None,
            Self::Fault(fault) => Self::Fault(fault.clone().after(number)),
            Self::Capacity(_) => Self::Capacity(number),
        }
    }

    /// At the number in the requested case, if there is one.
    pub(crate) fn at_what_was_chosen(self) -> Self {
        let chosen = places(2).and_then(|numbers| numbers.first().copied());
        match chosen {
            Some(number) => self.at(number as u64),
            None => self,
        }
    }

    /// Minimises the `actions` and the trouble of the failure `what`; the result may fail
    /// differently.
    pub(crate) fn cut_down(
        &self,
        what: String,
        actions: &[Action],
        run: impl Fn(&[Action], &Self) -> Verdict<()>,
    ) -> CutDown {
        let (mut number, mut what, mut left) = (self.number(), what, RUNS);
        let places = minimise(actions.len(), RUNS, |kept| {
            let kept: Vec<_> = kept.iter().map(|&place| actions[place].clone()).collect();
            for tried in numbers(number) {
                if left == 0 {
                    return false;
                }
                left -= 1;
                if let Err(error) = run(&kept, &self.at(tried)) {
                    (number, what) = (tried, error);
                    return true;
                }
            }
            false
        });
        for &place in &places {
            println!("    action {place}: {}", actions[place].short());
        }
        let places: Vec<_> = places.iter().map(ToString::to_string).collect();
        CutDown { what, takes: format!(":{}:{number}", places.join(".")) }
    }
}

/// `from`, and numbers from there down to zero, evenly spaced.
fn numbers(from: u64) -> impl Iterator<Item = u64> {
    let count = NUMBERS.min(from + 1);
    (0..count).map(move |step| from - step * from / (count - 1).max(1))
}

/// A failure, with what reproduces it for the printed line.
#[derive(Debug)]
pub(crate) struct CutDown {
    pub(crate) what: String,
    /// Appended to the numbers of the case; empty if it was not minimised.
    pub(crate) takes: String,
}

impl CutDown {
    /// A failure that cannot be minimised.
    pub(crate) fn not(what: String) -> Self {
        Self { what, takes: String::new() }
    }
}

impl From<String> for CutDown {
    fn from(what: String) -> Self {
        Self::not(what)
    }
}

impl fmt::Display for CutDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

#[test]
fn numbers_go_from_the_last_to_the_first() {
    assert_eq!(numbers(0).collect::<Vec<_>>(), [0]);
    assert_eq!(numbers(1).collect::<Vec<_>>(), [1, 0]);
    let many: Vec<_> = numbers(1000).collect();
    assert_eq!((many.len(), many[0], many[39]), (40, 1000, 0));
    assert!(many.is_sorted_by(|a, b| a > b));
}

/// A failure that needs three actions and one call among hundreds is minimised to them.
#[test]
fn a_failure_of_a_disk_is_cut_down() {
    use trommel_sim::Failure;
    let action = |at| if at % 9 == 0 { Action::Flush } else { Action::Sync };
    let actions: Vec<_> = (0..40).map(action).collect();
    // It fails if the fault comes before the fifth call per flush, and there are at least three
    // flushes.
    let run = |kept: &[Action], trouble: &Trouble| {
        let flushes = kept.iter().filter(|action| matches!(action, Action::Flush)).count() as u64;
        let fails = flushes >= 3 && trouble.number() < 5 * flushes;
        if fails { Err(format!("{flushes} flushes")) } else { Ok(()) }
    };
    let fault = Trouble::Fault(Fault::new(Failure::Io).after(24));
    let CutDown { what, takes } = fault.cut_down("first".to_owned(), &actions, run);
    assert_eq!(what, "3 flushes");
    let parts: Vec<_> = takes.split(':').collect();
    assert_eq!(parts[1].split('.').count(), 3, "{takes}");
    assert!(parts[2].parse::<u64>().expect("a number") < 15, "{takes}");
}
