//! A supervised process: it ends by itself, or is killed with its children.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::binaries::{Outcome, Test, root};

/// Time between two checks of a process.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The result of a process.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) seconds: f64,
    /// Its output, with paths relative to the root: records must not identify the machine.
    pub(crate) output: String,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    Failed,
    /// Killed at its time limit.
    TimedOut,
}

/// Runs `command` for at most `limit`, with its output in the file `log`.
pub(crate) fn run(command: &mut Command, log: &Path, limit: Duration) -> Outcome<Ended> {
    let failed = |error: io::Error| format!("{}: {error}", log.display());
    let file = File::create(log).map_err(failed)?;
    command.stdout(file.try_clone().map_err(failed)?).stderr(file).stdin(io_null()?);
    let start = Instant::now();
    let name = command.get_program().to_string_lossy().into_owned();
    // A process group, so that its children are killed with it.
    let mut child = command.process_group(0).spawn().map_err(|error| format!("{name}: {error}"))?;
    let status = wait(&mut child, start, limit).map_err(|error| format!("{name}: {error}"))?;
    let end = match status {
        None => End::TimedOut,
        Some(status) if status.success() => End::Succeeded,
        Some(_) => End::Failed,
    };
    let bytes = std::fs::read(log).map_err(failed)?;
    let output = below(&root(), &String::from_utf8_lossy(&bytes));
    Ok(Ended { end, seconds: start.elapsed().as_secs_f64(), output })
}

/// `text` with paths made relative: below `root`, and in a registry to the package.
fn below(root: &Path, text: &str) -> String {
    const SOURCES: &str = "/registry/src/";
    let mut text = text.replace(&format!("{}/", root.display()), "");
    while let Some(at) = text.find(SOURCES) {
        let start = text[..at].rfind(char::is_whitespace).map_or(0, |before| before + 1);
        let index = at + SOURCES.len();
        let end = text[index..].find('/').map_or(index, |end| index + end + 1);
        text.replace_range(start..end, "");
    }
    text
}

fn io_null() -> Outcome<File> {
    File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))
}

/// Waits until `child` has ended; `None` if it had to be killed.
fn wait(child: &mut Child, start: Instant, limit: Duration) -> io::Result<Option<ExitStatus>> {
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    match id.map(|id| kill_process_group(id, Signal::KILL)) {
        Some(Err(error)) if io::Error::from(error).kind() != ErrorKind::NotFound => child.kill()?,
        _ => {}
    }
    child.wait()?;
    Ok(None)
}

/// The command that runs only `test`.
pub(crate) fn command_of(test: &Test) -> Command {
    let mut command = Command::new(&test.path);
    command.args([&*test.name, "--exact", "--test-threads=1"]);
    command.current_dir(root().join("tests"));
    // All promised cases, not the part that `cargo test` has time for.
    if std::env::var_os("TROMMEL_SCALE").is_none() {
        command.env("TROMMEL_SCALE", "1");
    }
    command
}

/// A directory for the output of processes.
pub(crate) fn scratch(name: &str) -> Outcome<PathBuf> {
    let dir = root().join("target").join("lanes").join(name);
    std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(dir)
}

/// The relevant output of a failed test: the lines that reproduce it, then its last lines, each
/// shortened. Backtraces are left out because they contain the toolchain's path.
pub(crate) fn words_of(output: &str) -> String {
    let replay = output.lines().filter(|line| line.contains("TROMMEL_")).take(3);
    let lines = output.lines().take_while(|line| !line.starts_with("stack backtrace:"));
    let lines: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
    let said = lines.iter().position(|line| line.contains("panicked at") || line.contains("hangs"));
    let from = said.unwrap_or(lines.len().saturating_sub(12));
    let said = lines[from..].iter().copied().take(12);
    replay.chain(said).map(|line| shortened(line.trim_end())).collect::<Vec<_>>().join("\n")
}

/// The line, truncated if it is long and does not reproduce a failure.
fn shortened(line: &str) -> String {
    const LONGEST: usize = 400;
    if line.contains("TROMMEL_") || line.chars().count() <= LONGEST {
        return line.to_owned();
    }
    line.chars().take(LONGEST).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_names_no_machine() {
        let printed = "thread 'a' panicked at tests/a.rs:1:1:\nleft in /home/me/store/target/tmp/a-0\n\
                       stack backtrace:\n  0: at /home/me/.rustup/lib.rs\n";
        let kept = words_of(&below(Path::new("/home/me/store"), printed));
        assert_eq!(kept, "thread 'a' panicked at tests/a.rs:1:1:\nleft in target/tmp/a-0");
    }

    #[test]
    fn what_is_kept_names_no_registry() {
        let printed =
            "panicked at /home/me/.cargo/registry/src/host-1f/raft-0.9/a.rs:1:9:\nleft: 1";
        let kept = below(Path::new("/home/me/store"), printed);
        assert_eq!(kept, "panicked at raft-0.9/a.rs:1:9:\nleft: 1");
    }

    #[test]
    fn long_lines_are_cut_unless_they_play_something_again() {
        let long = "x".repeat(1000);
        assert_eq!(words_of(&long), format!("{}...", "x".repeat(400)));
        let again = format!("TROMMEL_CRASH_ONLY={long}");
        assert!(words_of(&again).starts_with(&again));
    }
}
