//! Special files in place of the store's: a pipe, a socket, a directory, a link, a device. Each is
//! an error at once, without waiting, and is never followed out of the directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use trommel::{Db, Degraded, RepairOptions};

use crate::common::{files, fill, home, small};

/// Longer than anything here takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
enum Strange {
    Pipe,
    Socket,
    Directory,
    LinkElsewhere,
    LinkToItself,
    Device,
}

const ALL: [Strange; 6] = [
    Strange::Pipe,
    Strange::Socket,
    Strange::Directory,
    Strange::LinkElsewhere,
    Strange::LinkToItself,
    Strange::Device,
];

/// Puts one in place of a file.
fn put_in_place(kind: Strange, path: &Path, aside: &Path) {
    match kind {
        Strange::LinkElsewhere => fs::rename(path, aside).expect("moving"),
        _ => fs::remove_file(path).expect("removing"),
    }
    match kind {
        Strange::Pipe => {
            let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
            assert!(made.success());
        }
        Strange::Socket => drop(UnixListener::bind(path).expect("a socket")),
        Strange::Directory => fs::create_dir(path).expect("a directory"),
        // The original file, moved out of the directory: a link may lead anywhere.
        Strange::LinkElsewhere => symlink(aside, path).expect("a link"),
        Strange::LinkToItself => symlink(path, path).expect("a link"),
        Strange::Device => symlink("/dev/zero", path).expect("a link"),
    }
}

/// A call on a store, and whether its result was as expected.
type Way = (&'static str, Box<dyn FnOnce() -> bool + Send>);

/// Runs every call; returns whether each succeeded. They fail, unless the file is not needed.
fn every_way_in(dir: &Path, new: &Path) -> Vec<(&'static str, bool)> {
    let ways: Vec<Way> = vec![
        ("open", {
            let dir = dir.to_path_buf();
            Box::new(move || Db::open(dir, small()).is_ok())
        }),
        ("read-only", {
            let dir = dir.to_path_buf();
            Box::new(move || Db::open_read_only(dir, small()).is_ok())
        }),
        ("degraded", {
            let dir = dir.to_path_buf();
            Box::new(move || {
                let opened = Db::open_degraded(dir, small(), Degraded::Certain);
                opened.is_ok_and(|db| db.get("key001").is_ok() && db.get("last").is_ok())
            })
        }),
        ("verify", {
            let dir = dir.to_path_buf();
            Box::new(move || Db::verify_dir(dir, &small()).is_ok_and(|report| report.is_sound()))
        }),
        ("repair", {
            let (dir, new) = (dir.to_path_buf(), new.to_path_buf());
            Box::new(move || {
                let report = Db::repair(dir, new, small(), RepairOptions::default());
                report.is_ok_and(|report| report.is_complete() && report.damage.is_empty())
            })
        }),
    ];
    let mut answers = Vec::new();
    for (name, way) in ways {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(way()));
        let answer = receiver.recv_timeout(PATIENCE);
        answers.push((name, answer.unwrap_or_else(|_| panic!("{name} waits for ever"))));
    }
    answers
}

#[test]
fn nothing_strange_is_waited_for_or_taken_for_a_file() {
    for kind in ALL {
        for like in ["CURRENT", "MANIFEST", ".log", ".sst"] {
            let (home, dir) = home();
            fill(&dir);
            let file = files(&dir, like).pop().expect("such a file");
            put_in_place(kind, &file, &home.path().join("aside"));
            for (way, is_fine) in every_way_in(&dir, &home.path().join("new")) {
                // A degraded open skips the file, and may not need it.
                assert!(!is_fine || way == "degraded", "{kind:?} as {like}: {way}");
            }
        }
    }
}

#[test]
fn a_lock_that_is_no_file_is_an_error_and_no_second_owner() {
    for kind in ALL {
        let (home, dir) = home();
        fill(&dir);
        put_in_place(kind, &dir.join("LOCK"), &home.path().join("aside"));
        let answers = every_way_in(&dir, &home.path().join("new"));
        for (way, is_fine) in answers {
            assert!(!is_fine || way == "repair", "{kind:?}: {way}");
        }
        // A store that is not locked can still be verified and repaired.
        let report = Db::verify_dir(&dir, &small()).expect("verifying");
        assert_eq!(report.damage.len(), 1, "{kind:?}: {report}");
        assert!(report.keys > 50, "{report}");
    }
}
