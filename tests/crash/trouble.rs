//! The trouble that a disk makes a workload, and what of it a failure takes.
//!
//! 1. Actions of the workload are left out, by [`minimise`].
//! 2. A call, or a byte, comes earlier where less is done before it. So what is left runs with the
//!    trouble at the same number, and then at numbers from there down to none; where one of them
//!    fails, it is the trouble from now on.

use std::fmt;

use trommel::vfs::Fault;

use crate::inspect::Verdict;
use crate::minimise::minimise;
use crate::settings::places;
use crate::workload::Action;

/// Runs of a workload that go into cutting a failure down.
const RUNS: usize = 4000;
/// Numbers at which the trouble is tried, for each choice of actions.
const NUMBERS: u64 = 40;

/// What ails a disk.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    None,
    /// A call fails.
    Fault(Fault),
    /// It holds so many bytes.
    Capacity(u64),
}

impl Trouble {
    /// The call at which it comes, or the bytes that there is room for.
    fn number(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Fault(fault) => fault.let_pass(),
            Self::Capacity(bytes) => *bytes,
        }
    }

    /// The same, at another number.
    fn at(&self, number: u64) -> Self {
        match self {
            Self::None => Self::None,
            Self::Fault(fault) => Self::Fault(fault.clone().after(number)),
            Self::Capacity(_) => Self::Capacity(number),
        }
    }

    /// At the number that a printed line asks for, if it does.
    pub(crate) fn at_what_was_asked(self) -> Self {
        let asked = places(2).and_then(|numbers| numbers.first().copied());
        match asked {
            Some(number) => self.at(number as u64),
            None => self,
        }
    }

    /// What of the `actions` and of the trouble it takes to fail as `what` says, or otherwise.
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

/// `from`, and numbers from there down to none, evenly.
fn numbers(from: u64) -> impl Iterator<Item = u64> {
    let count = NUMBERS.min(from + 1);
    (0..count).map(move |step| from - step * from / (count - 1).max(1))
}

/// A failure, and what it takes, for the line that runs it again.
#[derive(Debug)]
pub(crate) struct CutDown {
    pub(crate) what: String,
    /// Follows the numbers of the case; nothing where it was not cut down.
    pub(crate) takes: String,
}

impl CutDown {
    /// A failure that nobody can cut down.
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

/// A failure of three actions and a call among hundreds is cut down to them.
#[test]
fn a_failure_of_a_disk_is_cut_down() {
    use trommel::vfs::Failure;
    let action = |at| if at % 9 == 0 { Action::Flush } else { Action::Sync };
    let actions: Vec<_> = (0..40).map(action).collect();
    // It fails where a fault comes before as many calls as five for each flush, if there are three.
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
