//! The store's system calls: a store on the real disk, observed by `strace`, makes the same
//! creations, syncs, renames, links and removals, of the same names in the same order, as on the
//! simulated disk on which the other lanes crash it. Calls that the system interrupts are made
//! again.
//!
//! If `strace` is not installed, or may not trace, the tests print so to stderr and check nothing;
//! with `TROMMEL_DEMAND=strace` they fail.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use trommel::vfs::{DiskVfs, Vfs};
use trommel::{Db, WriteOptions};
use trommel_sim::{OpKind, SimDisk};
use trommel_tests::counters::Counters;

use crate::inspect::scan;
use crate::workload::options;

/// The environment variable that identifies the child, and holds its directory.
const CHILD: &str = "TROMMEL_CRASH_WATCHED";

/// Every file operation of a store, once or twice, without threads.
fn work(vfs: &Arc<dyn Vfs>, base: &Path) {
    let dir = base.join("above/db");
    let open = || {
        let options = options(5, Arc::clone(vfs)).background_threads(0);
        Db::open(&dir, options).expect("opening")
    };
    let mut db = open();
    for number in 0..120 {
        let value = format!("{number}").repeat(60);
        let synced = if number % 10 == 0 { WriteOptions::sync() } else { WriteOptions::os() };
        db.put_with(format!("key{:02}", number % 40), value, synced).expect("writing");
        match number {
            30 | 70 => db.flush().expect("flushing"),
            50 => db.compact_all().expect("compacting"),
            60 => db.checkpoint(base.join("copy")).expect("a checkpoint"),
            90 => {
                db.close().expect("closing");
                db = open();
            }
            _ => {}
        }
    }
    assert_eq!(scan(&db).expect("reading").len(), 40);
    db.close().expect("closing");
}

/// Not a test of its own: the process that `strace` observes.
#[test]
fn watched() {
    let Ok(base) = std::env::var(CHILD) else { return };
    let vfs: Arc<dyn Vfs> = Arc::new(DiskVfs);
    work(&vfs, Path::new(&base));
    println!("all went well");
}

/// Runs [`watched`] in `base` under `strace` with these arguments; returns the output of `strace`,
/// or `None` if it cannot be used.
fn strace(base: &Path, arguments: &[&str]) -> Option<String> {
    let report = base.join("report");
    let output = Command::new("strace")
        .args(["-f", "-y", "-qq", "-s", "300", "-o"])
        .arg(&report)
        .args(arguments)
        .arg(std::env::current_exe().expect("this program"))
        .args(["black_box::watched", "--exact", "--nocapture"])
        .env(CHILD, base)
        .output();
    let output = output.ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    if complained.contains("ptrace") || complained.contains("PTRACE") {
        return None;
    }
    assert!(said.contains("all went well"), "{said}{complained}");
    Some(std::fs::read_to_string(report).expect("strace wrote it"))
}

/// A line of `strace` in the form of an operation of the simulated disk; `None` for anything else.
fn seen(line: &str, base: &str) -> Option<String> {
    let call = line.split_once(' ')?.1.trim_start();
    if !call.contains(" = ") || call.contains(" = -1 ") {
        return None;
    }
    let (name, rest) = call.split_once('(')?;
    // The quoted paths, or the path of a file handle.
    let mut paths: Vec<&str> = rest.split('"').skip(1).step_by(2).collect();
    if paths.is_empty() {
        paths.push(rest.split_once('<')?.1.split_once('>')?.0);
    }
    let path = |at: usize| Some(paths.get(at)?.strip_prefix(base)?.trim_start_matches('/'));
    let kind = match name {
        "fdatasync" => "Sync",
        "fsync" => "SyncDir",
        "unlink" | "unlinkat" => "Remove",
        "mkdir" | "mkdirat" => "CreateDir",
        "rename" | "renameat" | "renameat2" => return Some(two("Rename", path(0)?, path(1)?)),
        "link" | "linkat" => return Some(two("HardLink", path(0)?, path(1)?)),
        "openat" | "open" if rest.contains("O_EXCL") => "Create",
        _ => return None,
    };
    Some(format!("{kind} {}", path(0)?))
}

fn two(kind: &str, from: &str, to: &str) -> String {
    format!("{kind} {from} -> {to}")
}

/// The operations of the same work on the simulated disk.
fn simulated() -> Vec<String> {
    let disk = SimDisk::new();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    work(&vfs, Path::new(""));
    let replay = disk.replay();
    let watched = [
        OpKind::Create,
        OpKind::Sync,
        OpKind::Rename,
        OpKind::Remove,
        OpKind::HardLink,
        OpKind::CreateDir,
        OpKind::SyncDir,
    ];
    let ops = replay.ops().iter().filter(|op| watched.contains(&op.kind()));
    ops.map(|op| op.to_string().replace("SyncDir .", "SyncDir ")).collect()
}

#[test]
fn the_system_sees_what_the_simulated_disk_saw() {
    let home = tempfile::tempdir().expect("a place for temporary files");
    let base = home.path().canonicalize().expect("it is there");
    let calls = "trace=fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,link,linkat,\
                 mkdir,mkdirat,open,openat";
    let Some(report) = strace(&base, &["-e", calls]) else {
        let lane = Counters::new("crash/the_system_sees_what_the_simulated_disk_saw");
        return lane.skip("strace", "there is no strace here that may trace");
    };
    let text = base.to_string_lossy();
    let mut seen: Vec<String> = report.lines().filter_map(|line| seen(line, &text)).collect();
    let mut wanted = simulated();
    let unsynced = |ops: &mut Vec<String>| ops.retain(|op| op != "SyncDir ");
    // The simulation has no directories above the common one.
    let above = seen.iter().filter(|op| *op == "SyncDir ").count();
    assert!(above > 0, "the directory above a new store must be synced");
    unsynced(&mut seen);
    unsynced(&mut wanted);
    assert!(wanted.len() > 100, "{}", wanted.len());
    for (number, (seen, wanted)) in seen.iter().zip(&wanted).enumerate() {
        assert_eq!(seen, wanted, "operation {number}: seen from outside, and in the simulation");
    }
    assert_eq!(seen.len(), wanted.len());
}

#[test]
fn interrupted_calls_are_made_again() {
    for call in ["pwrite64", "fdatasync", "pread64"] {
        let home = tempfile::tempdir().expect("a place for temporary files");
        // The first calls are made by the loader, which gives up.
        let inject = format!("inject={call}:error=EINTR:when=13+3");
        let trace = format!("trace={call}");
        let Some(report) = strace(home.path(), &["-e", &trace, "-e", &inject]) else {
            let lane = Counters::new("crash/interrupted_calls_are_made_again");
            return lane.skip("strace", "there is no strace here that may trace");
        };
        let interrupted = report.lines().filter(|line| line.contains("(INJECTED)")).count();
        assert!(interrupted > 0 || call == "pread64", "{call} was never interrupted");
    }
}
