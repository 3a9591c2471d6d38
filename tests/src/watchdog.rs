//! A watchdog that reports where a test hangs: each case registers before it begins, and a case
//! that takes far too long ends the process with a message.

use std::cell::OnceCell;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longer than any case takes, on however busy a machine.
const LONGEST: Duration = Duration::from_secs(100);

type Note = Arc<Mutex<Option<(Box<dyn Debug + Send>, Instant)>>>;

thread_local! {
    static NOTE: OnceCell<Note> = const { OnceCell::new() };
}

/// Registers the case that the calling test begins.
pub fn note(case: impl Debug + Send + 'static) {
    NOTE.with(|note| {
        let note = note.get_or_init(watch);
        let now = (Box::new(case) as Box<dyn Debug + Send>, Instant::now());
        *note.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    });
}

/// Watches the calling thread until it ends.
fn watch() -> Note {
    let note = Note::default();
    let watched = Arc::clone(&note);
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        while Arc::strong_count(&watched) > 1 {
            std::thread::sleep(Duration::from_secs(1));
            let now = watched.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((case, _)) = now.as_ref().filter(|(_, since)| since.elapsed() > LONGEST) {
                #[allow(clippy::print_stderr, reason = "a hang must say where")]
                {
                    eprintln!("{name} hangs in case {case:?}");
                }
                std::process::abort();
            }
        }
    });
    note
}
