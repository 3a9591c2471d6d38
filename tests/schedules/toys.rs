//! Tests of the lanes themselves: they find bugs, reproducibly, in scenarios with planted ones.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::spawn;

use crate::lane::run;

/// Checks the condition, releases the lock, and then waits: the signal may come in between.
fn lost_wake_up() {
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let signaller = spawn({
        let shared = Arc::clone(&shared);
        move || {
            *shared.0.lock().unwrap() = true;
            shared.1.notify_all();
        }
    });
    let is_ready = *shared.0.lock().unwrap();
    if !is_ready {
        drop(shared.1.wait(shared.0.lock().unwrap()).unwrap());
    }
    signaller.join().unwrap();
}

/// A non-atomic increment.
fn lost_addition() {
    let sum = Arc::new(Mutex::new(0));
    let add = |sum: &Mutex<u64>| {
        let before = *sum.lock().unwrap();
        *sum.lock().unwrap() = before + 1;
    };
    let other = spawn({
        let sum = Arc::clone(&sum);
        move || add(&sum)
    });
    add(&sum);
    other.join().unwrap();
    assert_eq!(*sum.lock().unwrap(), 2);
}

/// The first schedule of `count` that fails.
fn failing(first: u64, count: u64, scenario: fn()) -> Option<u64> {
    let running = Arc::new(AtomicU64::new(0));
    let noted = Arc::clone(&running);
    catch_unwind(move || run(first, count, &noted, scenario))
        .is_err()
        .then(|| running.load(Relaxed))
}

#[test]
fn mistakes_are_found_and_found_again() {
    for scenario in [lost_wake_up, lost_addition] {
        let found = failing(1, 1000, scenario).expect("it is found");
        assert_eq!(failing(found, 1, scenario), Some(found), "its number finds it again");
        assert_eq!(failing(found, 1, || ()), None);
    }
}
