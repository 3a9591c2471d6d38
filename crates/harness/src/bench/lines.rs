//! The lines that a bench prints in addition to those of its workloads.

use std::io::Write;

use super::Plan;
use crate::error::Error;
use crate::store::{Level, Opener};

/// Prints how the run is set up.
pub(super) fn write_header(
    plan: &Plan,
    opener: &dyn Opener,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let value_bytes = plan.values.value_bytes() as f64;
    let raw_bytes = (plan.keys.key_bytes() + value_bytes) * plan.keys.len() as f64;
    let mut lines = vec![
        (
            "Keys",
            format!("{:.0} bytes each (+ 0 bytes user-defined timestamp)", plan.keys.key_bytes()),
        ),
        (
            "Values",
            format!(
                "{value_bytes:.0} bytes each ({:.0} bytes after compression)",
                value_bytes * plan.values.compression_ratio()
            ),
        ),
        ("Entries", plan.keys.len().to_string()),
        ("RawSize", format!("{:.1} MB (estimated)", raw_bytes / 1_048_576.0)),
        ("Threads", plan.threads.to_string()),
        ("Seed", plan.seed.to_string()),
    ];
    if let Some(duration) = plan.duration {
        let seconds = duration.as_secs_f64();
        let text = format!("{seconds} s per workload, except those that go through all keys once");
        lines.push(("Duration", text));
    }
    let operations = |rate: f64| format!("{rate:.0} operations a second");
    let write_rate = plan.rates.write_bytes.map(|rate| format!("{rate:.0} bytes a second"));
    let read_rate = plan.rates.read.map(operations);
    lines.extend(plan.rates.all.map(|rate| ("Rate", operations(rate))));
    lines.extend(write_rate.map(|rate| ("Write rate", rate)));
    lines.extend(read_rate.map(|rate| ("Read rate", rate)));
    lines.extend(opener.describe());
    for (name, value) in lines {
        writeln!(out, "{:<11} {value}", format!("{name}:"))?;
    }
    writeln!(out, "{}", "-".repeat(48))?;
    Ok(out.flush()?)
}

/// db_bench's table of levels; MB are 1,048,576 bytes.
pub(super) fn level_stats(levels: &[Level]) -> String {
    let mut text = format!("Level Files Size(MB)\n{}\n", "-".repeat(20));
    for level in levels {
        let megabytes = level.bytes as f64 / 1_048_576.0;
        text += &format!("{:3} {:8} {megabytes:8.0}\n", level.level, level.files);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_shown_as_db_bench_shows_them() {
        let level = |level, files, megabytes: u64| Level { level, files, bytes: megabytes << 20 };
        assert_eq!(
            level_stats(&[level(0, 2, 8), level(1, 0, 0), level(6, 12345, 123_456)]),
            "Level Files Size(MB)\n--------------------\n  0        2        8\n  \
             1        0        0\n  6    12345   123456\n"
        );
    }
}
