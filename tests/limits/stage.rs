//! Scenarios in processes of their own.
//!
//! 1. The test starts its own program again, for this one test, through `sh`, which prepares the
//!    environment: it mounts, or ignores signals.
//! 2. The child finds its name in the environment, runs the scenario and prints lines `counted NAME
//!    NUMBER`.
//! 3. The test checks that it succeeded, in time, and adds up its counters.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use trommel_tests::counters::Counters;
use trommel_tests::scratch::scratch;

/// The environment variable with the name of the scenario, in its process.
const NAME: &str = "TROMMEL_LIMITED";
/// The environment variable with the scenario's own directory.
const DIR: &str = "TROMMEL_LIMITED_DIR";
/// Time limit of a scenario, exceeded only by a hang.
const PATIENCE: Duration = Duration::from_secs(200);
/// A user without permissions.
const NOBODY: u32 = 65_534;

/// Counters that show that a scenario reached its limit: errors, writers that waited for space,
/// maps that were not made, threads that were not started, or counted.
const LIMITED: [&str; 5] =
    ["refusals", "waits", "maps_not_made", "threads_not_started", "threads_counted"];

/// The environment of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A directory; writes beyond `RLIMIT_FSIZE` are errors, not signals.
    Directory,
    /// A file system of 16 MiB.
    Small,
    /// A file system of 16 MiB for at most 24 files.
    FewFiles,
    /// A directory, and a user that is not root.
    Nobody,
}

impl Place {
    /// The options of the mount that `sh` makes before it becomes the scenario, if any.
    fn mount(self) -> Option<&'static str> {
        match self {
            Self::Small => Some("size=16m"),
            Self::FewFiles => Some("size=16m,nr_inodes=24"),
            Self::Directory | Self::Nobody => None,
        }
    }

    /// The reason why the scenario cannot run here, if it cannot.
    fn refusal(self) -> Option<&'static str> {
        static CAN_MOUNT: OnceLock<bool> = OnceLock::new();
        static CAN_BE_NOBODY: OnceLock<bool> = OnceLock::new();
        let works = |command: &mut Command| {
            let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
            quiet.status().is_ok_and(|status| status.success())
        };
        let can_mount = || {
            let dir = tempfile::tempdir().unwrap();
            let script = "mount -t tmpfs -o size=1m none \"$0\"";
            works(Command::new("unshare").args(["-rm", "sh", "-c", script]).arg(dir.path()))
        };
        let can_be_nobody = || {
            let list = std::env::current_exe().unwrap();
            let is_root = rustix::process::geteuid().is_root();
            !is_root || works(Command::new(list).arg("--list").uid(NOBODY).gid(NOBODY))
        };
        if self.mount().is_some() && !*CAN_MOUNT.get_or_init(can_mount) {
            return Some("the system refuses to mount a small file system");
        }
        if self == Self::Nobody && !*CAN_BE_NOBODY.get_or_init(can_be_nobody) {
            return Some("no other user can run this program");
        }
        None
    }
}

/// Runs a scenario: in this process if it was started for it, else in a new one.
pub(crate) fn run(path: &'static str, place: Place, body: fn(&Path)) {
    let name = path.split_once("::").expect("tests are in modules").1;
    if std::env::var(NAME).is_ok_and(|wanted| wanted == name) {
        return body(&PathBuf::from(std::env::var_os(DIR).expect("it is set with the name")));
    }
    let mut counters = Counters::new(format!("limits/{}", name.replace("::", "/")));
    if let Some(why) = place.refusal() {
        return counters.skip(if place == Place::Nobody { "users" } else { "limits" }, why);
    }
    let output = play(name, place);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{text}\n{errors}", output.status);
    counters.add("scenarios", 1);
    for line in text.lines() {
        // The test harness may not have ended its own line before a test prints.
        let Some((_, counted)) = line.split_once("counted ") else { continue };
        let (what, count) = counted.split_once(' ').expect("a name and a number");
        counters.add(what, count.parse().expect("a number"));
    }
    let written = counters.get("writes.acknowledged");
    let limited: u64 = LIMITED.iter().map(|what| counters.get(what)).sum();
    assert!(written > 0 && limited > 0, "{name}: it ran into no limit: {text}");
    counters.finish();
}

/// For the scenario: adds to a counter of its test.
pub(crate) fn counted(what: &str, count: u64) {
    println!("\ncounted {what} {count}");
}

fn play(name: &str, place: Place) -> Output {
    let dir = scratch();
    let script = match place.mount() {
        Some(options) => format!(
            "mount -t tmpfs -o {options} none \"$TROMMEL_LIMITED_DIR\" && exec \"$0\" \"$@\""
        ),
        None => "trap '' XFSZ; exec \"$0\" \"$@\"".to_owned(),
    };
    let mut command = Command::new(if place.mount().is_some() { "unshare" } else { "sh" });
    if place.mount().is_some() {
        command.args(["-rm", "sh"]);
    }
    command.args(["-c", &script]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads", "2"]);
    command.env(NAME, name).env(DIR, dir.path()).env_remove("TROMMEL_LANES_JSON");
    if place == Place::Nobody && rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let begun = Instant::now();
        if ended.recv_timeout(PATIENCE).is_err() && begun.elapsed() >= PATIENCE {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    let output = child.wait_with_output().unwrap();
    let _ = done.send(());
    output
}
