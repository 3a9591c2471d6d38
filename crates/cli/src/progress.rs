//! A progress bar on standard error, if that is a terminal.

use std::fmt;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use trommel_harness::{Progress, Unit, units};

/// A progress bar if standard error is a terminal.
pub(crate) fn on_terminal() -> Box<dyn Progress> {
    if stderr().is_terminal() {
        Box::new(Bar { bar: Mutex::new(ProgressBar::hidden()) })
    } else {
        Box::new(Plain)
    }
}

/// Shows no progress, only remarks.
struct Plain;

impl Progress for Plain {
    fn begin(&self, _what: &str, _all: u64, _unit: Unit) {}
    fn advance(&self, _done: u64) {}
    fn end(&self) {}

    fn say(&self, what: &str) {
        // If standard error is closed, the remark is lost.
        let _ = writeln!(stderr(), "{what}");
    }
}

struct Bar {
    bar: Mutex<ProgressBar>,
}

impl Bar {
    fn with(&self, act: impl FnOnce(&mut ProgressBar)) {
        act(&mut self.bar.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A number of units, for display.
fn amount(count: u64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => units::bytes(count),
        Unit::Seconds => format!("{count} s"),
        _ => HumanCount(count).to_string(),
    }
}

/// The amount done of a step, its rate, and the remaining time.
fn so_far(done: u64, all: u64, unit: Unit, a_second: f64, left: Duration) -> String {
    let of_what = match unit {
        Unit::Keys => " keys",
        Unit::Entries => " entries",
        Unit::Bytes | Unit::Seconds => "",
        _ => " operations",
    };
    let mut text = format!("{} of {}{of_what}", amount(done, unit), amount(all, unit));
    // With nothing done there is no rate.
    if done > 0 {
        if unit != Unit::Seconds {
            text += &format!(", {} a second", amount(a_second as u64, unit));
        }
        text += &format!(", {} left", HumanDuration(left));
    }
    text
}

fn style(all: u64, unit: Unit) -> ProgressStyle {
    let template = match all {
        0 => "{msg} {spinner} {elapsed}",
        _ => "{msg:17} {wide_bar} {percent:>3}% {so_far}",
    };
    let style = ProgressStyle::with_template(template).expect("the templates are well formed");
    style.with_key("so_far", move |state: &ProgressState, text: &mut dyn fmt::Write| {
        // A bar that cannot be written is no reason to stop a run.
        let (done, all) = (state.pos(), state.len().unwrap_or(all));
        let _ = text.write_str(&so_far(done, all, unit, state.per_sec(), state.eta()));
    })
}

impl Progress for Bar {
    fn begin(&self, what: &str, all: u64, unit: Unit) {
        let bar = if all == 0 { ProgressBar::new_spinner() } else { ProgressBar::new(all) };
        let bar = bar.with_style(style(all, unit));
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        self.with(|shown| *shown = bar);
    }

    fn advance(&self, done: u64) {
        self.with(|bar| bar.inc(done));
    }

    fn end(&self) {
        self.with(|bar| bar.finish_and_clear());
    }

    fn say(&self, what: &str) {
        self.with(|bar| bar.suspend(|| Plain.say(what)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_well_formed() {
        let bar = Bar { bar: Mutex::new(ProgressBar::hidden()) };
        for all in [0, 100] {
            bar.begin("step", all, Unit::Keys);
            bar.advance(10);
            bar.end();
        }
    }

    /// A bar used to display "0 s left" before anything was done, and bytes as plain numbers.
    #[test]
    fn a_bar_shows_its_unit_and_the_remaining_time_once_known() {
        let left = Duration::from_secs(8);
        let begun = so_far(0, 1_000_000, Unit::Operations, 0.0, Duration::ZERO);
        assert_eq!(begun, "0 of 1,000,000 operations");
        let half = so_far(100 << 20, 200 << 20, Unit::Bytes, 1_048_576.0, left);
        assert_eq!(half, "100 MiB of 200 MiB, 1 MiB a second, 8 seconds left");
        let timed = so_far(52, 60, Unit::Seconds, 1.0, left);
        assert_eq!(timed, "52 s of 60 s, 8 seconds left");
    }
}
