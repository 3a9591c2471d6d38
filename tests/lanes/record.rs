//! The records: JSON files, and the fields that all of them start with.

use std::process::Command;

use serde_json::{Value, json};

use crate::binaries::{Outcome, root};

/// The record at `path`, relative to the root; null if there is none.
pub(crate) fn read(path: &str) -> Outcome<Value> {
    let path = root().join(path);
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(Value::Null) };
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a record.
pub(crate) fn write(path: &str, record: &Value) -> Outcome<()> {
    let text = serde_json::to_string_pretty(record).map_err(|error| error.to_string())?;
    write_text(path, &(text + "\n"))
}

/// Writes a text file below the root.
pub(crate) fn write_text(path: &str, text: &str) -> Outcome<()> {
    let whole = root().join(path);
    std::fs::write(&whole, text).map_err(|error| format!("{}: {error}", whole.display()))?;
    eprintln!("written: {path}");
    Ok(())
}

/// Seconds with one decimal.
pub(crate) fn rounded(seconds: f64) -> Value {
    json!((seconds * 10.0).round() / 10.0)
}

/// The commit that is checked out; empty if git fails.
pub(crate) fn commit() -> String {
    said_by("git", &["rev-parse", "HEAD"])
}

/// The first line that a program prints; empty if it cannot be run.
fn said_by(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(root()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// The first fields of every record: the command, the commit, the day, the machine.
pub(crate) fn head(command: &str) -> Outcome<Value> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let changed = !said_by("git", &["status", "--porcelain", "--", "crates", "tests"]).is_empty();
    Ok(json!({
        "command": format!("cargo run -p trommel-tests --bin lanes -- {command}"),
        "commit": commit(),
        "uncommitted_changes": changed,
        "date": said_by("date", &["-u", "+%F"]),
        "machine": {
            "cpu": model.map_or("", |(_, model)| model),
            "cores": cores,
            "system": said_by("uname", &["-sr"]),
            "rustc": said_by("rustc", &["--version"]),
        },
    }))
}
