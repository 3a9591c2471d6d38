//! A progress bar on standard error, if that is a terminal.

use std::fmt;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use trommel_harness::Progress;

/// A bar if someone can see it.
pub(crate) fn on_terminal() -> Box<dyn Progress> {
    if stderr().is_terminal() {
        Box::new(Bar { bar: Mutex::new(ProgressBar::hidden()) })
    } else {
        Box::new(Plain)
    }
}

/// Shows no progress, and says what has to be said.
struct Plain;

impl Progress for Plain {
    fn begin(&self, _what: &str, _operations: u64) {}
    fn advance(&self, _operations: u64) {}
    fn end(&self) {}

    fn say(&self, what: &str) {
        // If standard error is gone, nobody wants to know.
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

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates below are well formed").with_key(
        "rate",
        |state: &ProgressState, text: &mut dyn fmt::Write| {
            // A bar that cannot be written to is no reason to stop a run.
            let _ = write!(text, "{}", HumanCount(state.per_sec() as u64));
        },
    )
}

impl Progress for Bar {
    fn begin(&self, what: &str, operations: u64) {
        let bar = match operations {
            0 => ProgressBar::new_spinner().with_style(style("{msg} {spinner} {elapsed}")),
            _ => ProgressBar::new(operations).with_style(style(
                "{msg:17} {wide_bar} {percent:>3}% {human_pos} of {human_len}, {rate} a second, {eta} left",
            )),
        };
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        self.with(|shown| *shown = bar);
    }

    fn advance(&self, operations: u64) {
        self.with(|bar| bar.inc(operations));
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
        for operations in [0, 100] {
            bar.begin("step", operations);
            bar.advance(10);
            bar.end();
        }
    }
}
