//! A hang must say where: each case notes what it is before it begins, and a case that lasts far
//! too long ends the process with that note.

use std::cell::OnceCell;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No case lasts as long, on however busy a machine.
const LONGEST: Duration = Duration::from_secs(100);

type Note = Arc<Mutex<Option<(Box<dyn Debug + Send>, Instant)>>>;

thread_local! {
    static NOTE: OnceCell<Note> = const { OnceCell::new() };
}

/// The calling test begins this case.
pub fn note(case: impl Debug + Send + 'static) {
    NOTE.with(|note| {
        let note = note.get_or_init(watch);
        let now = (Box::new(case) as Box<dyn Debug + Send>, Instant::now());
        *note.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    });
}

/// Watches the calling thread for as long as it lives.
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
