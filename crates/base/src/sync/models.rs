//! Loom models: a few threads run a part of the real code in every order with at most three
//! preemptions, and with every value that a load may return.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

pub use loom::thread;

/// Runs `model` in every order, and prints how many orders there were, in the format of a lane.
///
/// # Panics
/// If the model panics or deadlocks in any order.
#[allow(clippy::print_stdout, reason = "tests print what they counted")]
pub fn check(name: &str, model: impl Fn() + Send + Sync + 'static) {
    let (start, orders) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    let counted = Arc::clone(&orders);
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model();
    });
    let (seconds, orders) = (start.elapsed().as_secs_f64(), orders.load(Relaxed));
    println!(
        "\n{{\"lane\": \"loom/{name}\", \"seconds\": {seconds:.1}, \
         \"counters\": {{\"orders\": {orders}}}}}"
    );
}
