//! A hang must say where: each case notes what it is before it begins, and a case that lasts far
//! too long ends the process with that note.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No case lasts as long, on however busy a machine.
const LONGEST: Duration = Duration::from_secs(100);

type Note = Arc<Mutex<Option<(String, Instant)>>>;

thread_local! {
    static NOTE: OnceCell<Note> = const { OnceCell::new() };
}

/// The calling test begins this case.
pub(crate) fn note(case: String) {
    NOTE.with(|note| {
        let note = note.get_or_init(watch);
        *note.lock().unwrap_or_else(PoisonError::into_inner) = Some((case, Instant::now()));
    });
}

/// Watches the calling thread for as long as it lives.
fn watch() -> Note {
    let note = Note::default();
    let watched = Arc::clone(&note);
    std::thread::spawn(move || {
        while Arc::strong_count(&watched) > 1 {
            std::thread::sleep(Duration::from_secs(1));
            let now = watched.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((case, _)) = now.as_ref().filter(|(_, since)| since.elapsed() > LONGEST) {
                eprintln!("this case hangs: {case}");
                std::process::abort();
            }
        }
    });
    note
}
