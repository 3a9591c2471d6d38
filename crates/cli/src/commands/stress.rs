//! `trommel stress`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use trommel_harness::Control;
use trommel_harness::stress::{
    Limits, Place, Profile, Report, StressPlan, StressSchedule, stress, work,
};
use trommel_harness::units::{parse_bytes, parse_count, parse_decimal, parse_part, parse_time};

use super::bench::filters::FilterArgs;
use crate::failure::Failure;
use crate::shared_args::{threads, whole, whole_in};

pub(crate) const LONG_ABOUT: &str = "\
Tests whether the store keeps its promises on this machine, with its disk and its kernel: many \
threads write, read and check at random, in a process that is killed (SIGKILL) repeatedly, at \
random times and at random calls to the disk. The expected state is in a file outside the store, \
which survives a killed process: after each kill every acknowledged write must be present, a write \
in flight may be present, a batch only as a whole, and nothing else may be present.

Options are drawn at random for each open: filters of all kinds and shapes (or those of \
--filters), sizes, read modes. Puts, deletes, batches, conditional writes, lookups, scans in both \
directions, cursors, snapshots, checkpoints, flushes, compactions, changes of options and verify \
run concurrently. Memory, file handles, space and the time of each operation are limited.

Prints its counters as one JSON object on standard output. If anything is wrong it stops at once, \
reports what it found and what was expected, keeps the store and the expected state, and ends with \
code 7. Otherwise it leaves nothing on the disk. A kill is not a power cut: data that was passed \
to the system is not lost.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel stress
      a minute in the temporary directory
  trommel stress --dir=/data/stress --duration=72h --profile=big --json=stress.jsonl
      three days on the disk to be tested
  trommel stress --faults=0.001 --kill-every=0
      one in a thousand calls to the disk fails, and nothing is killed
  trommel stress --dir=/data/stress --keep && trommel stress --dir=/data/stress
      the second continues the first";

/// The hidden command of a worker.
pub(crate) const WORKER: &str = "stress-worker";
/// Largest number of keys that are all read after each start of a worker.
const WHOLE_KEYS: u32 = 200_000;

#[derive(Debug, Args)]
pub(crate) struct StressArgs {
    /// Directory for the store, which is kept with --keep or if something is wrong; a run that was
    /// kept there is continued [default: a new one in the temporary directory]
    #[arg(long, alias = "db")]
    dir: Option<PathBuf>,
    /// Directory of the expected state [default: next to the store]
    #[arg(long, value_name = "DIR", alias = "expected-values-dir")]
    expected: Option<PathBuf>,
    /// How long: 10s, 5m, 72h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_time)]
    duration: Duration,
    /// Size of keys, values and buffers
    #[arg(long, value_enum, default_value = "default")]
    profile: Size,
    /// Threads that write and read
    #[arg(long, default_value = "4", value_parser = threads)]
    threads: usize,
    /// Keys, 100 to 100M [default: tiny 2K, default 100K, big 2M]
    #[arg(long, value_name = "COUNT", alias = "max-key", value_parser = keys)]
    keys: Option<u32>,
    /// Bytes of values, or minimum and maximum [default: tiny 16-200, default 16-1K, big 16-4K]
    #[arg(long, value_name = "SIZE[-SIZE]", value_parser = sizes)]
    value_size: Option<(u32, u32)>,
    /// Seed of all random draws; 0: taken from the clock
    #[arg(long, default_value = "0", value_parser = whole::<u64>)]
    seed: u64,
    /// Mean time between kills; 0: none
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    kill_every: Duration,
    /// Mean time between opens of the store in one process
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = positive_time)]
    reopen_every: Duration,
    /// Read all keys after every COUNTth restart, and some after the others [default: 1; 4 for more
    /// than 200K keys]
    #[arg(long, value_name = "COUNT", value_parser = whole_in(1_u64..))]
    whole_check_every: Option<u64>,
    /// Fraction of the calls to the disk that fail: by a failing or full disk, or for lack of file
    /// handles
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = rate)]
    faults: f64,
    /// Append the counters to FILE as a line of JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep the store and the expected state
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    filters: FilterArgs,
    #[command(flatten)]
    limits: StressLimitArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
struct StressLimitArgs {
    /// The store's own memory limit, in most opens [default: tiny 8M, default 128M, big 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory_limit: Option<u64>,
    /// Limit on the process's memory that is not file-backed; 0: none [default: 256M and twice the
    /// above]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_memory: Option<u64>,
    /// Limit on the process's file handles; 0: none [default: 100 more than the store may have
    /// open]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    max_handles: Option<u64>,
    /// Limit on the bytes of files per byte of data, beyond 16 write buffers and 64M; 0: none
    #[arg(long, value_name = "FACTOR", default_value = "8", value_parser = factor)]
    max_space: f64,
    /// Limit on the time of one operation; 0: none [default: 60s, big 10m]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    longest: Option<Duration>,
}

/// The profiles of the harness, by name.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Size {
    /// Thousands of keys, buffers of kilobytes: many flushes and compactions in a short time
    Tiny,
    /// A hundred thousand keys, buffers of a megabyte
    Default,
    /// Two million keys, buffers of the store's default size
    Big,
}

impl From<Size> for Profile {
    fn from(size: Size) -> Self {
        match size {
            Size::Tiny => Self::Tiny,
            Size::Default => Self::Default,
            Size::Big => Self::Big,
        }
    }
}

/// What the parent gives its worker.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    store: PathBuf,
    expected: PathBuf,
}

fn positive_time(text: &str) -> Result<Duration, String> {
    let time = parse_time(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("it must be more than 0".into()) } else { Ok(time) }
}

fn keys(text: &str) -> Result<u32, String> {
    match parse_count(text).map(u32::try_from) {
        Ok(Ok(keys @ 100..=100_000_000)) => Ok(keys),
        _ => Err("it must be a number from 100 to 100M".into()),
    }
}

fn sizes(text: &str) -> Result<(u32, u32), String> {
    let wrong =
        || "it must be a size up to 16M, or two such as 16-1K, the smaller first".to_owned();
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let size = |text| parse_bytes(text).ok().filter(|bytes| *bytes <= 16 << 20);
    match (size(least), size(most)) {
        (Some(least), Some(most)) if least <= most => Ok((least as u32, most as u32)),
        _ => Err(wrong()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = parse_part(text).ok().filter(|rate| *rate <= 0.5);
    rate.ok_or_else(|| "it must be a fraction from 0 to 0.5, such as 0.001 or 0.1%".into())
}

fn factor(text: &str) -> Result<f64, String> {
    let factor =
        parse_decimal(text).ok().filter(|factor| *factor == 0.0 || (1.0..1e9).contains(factor));
    factor.ok_or_else(|| "it must be 0, or a number from 1".into())
}

fn plan(args: &StressArgs) -> Result<StressPlan, Failure> {
    let profile = Profile::from(args.profile);
    let sizes = profile.sizes();
    let keys = args.keys.unwrap_or(sizes.keys);
    let memory_limit = args.limits.memory_limit.unwrap_or(sizes.memory_limit);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    // The expected state is in memory too, and a copy of it during the check of a checkpoint.
    let memory = (256 << 20) + memory_limit.saturating_mul(2).saturating_add(u64::from(keys) * 64);
    let limits = Limits {
        memory: args.limits.max_memory.unwrap_or(memory),
        handles: args.limits.max_handles.unwrap_or(sizes.open_files + 100),
        space: args.limits.max_space,
        space_free: (64 << 20) + 16 * sizes.write_buffer,
        longest: args.limits.longest.unwrap_or(sizes.longest),
    };
    Ok(StressPlan {
        profile,
        keys,
        value_size: args.value_size.unwrap_or(sizes.values),
        threads: args.threads,
        // A seed short enough to type.
        seed: if args.seed == 0 { (now() as u64 >> 10) % 1_000_000_000 + 1 } else { args.seed },
        schedule: StressSchedule {
            duration: args.duration,
            kill_every: args.kill_every,
            reopen_every: args.reopen_every,
            whole_check_every: args.whole_check_every.unwrap_or(if keys > WHOLE_KEYS {
                4
            } else {
                1
            }),
        },
        faults: args.faults,
        memory_limit,
        filters: args.filters.are_given().then(|| args.filters.policy()).transpose()?,
        limits,
    })
}

pub(crate) fn run(
    args: &StressArgs,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let plan = plan(args)?;
    // Opened before the run: after three days it is too late to find that it cannot be.
    let counters = args.json.as_deref().map(counters_file).transpose()?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::Other(format!("this program cannot be found: {error}")))?;
    let worker = || {
        let mut command = Command::new(&program);
        command.arg(WORKER);
        command
    };
    let temporary = std::env::temp_dir();
    let place = Place::new(args.dir.as_deref(), args.expected.as_deref(), &temporary)?;
    let ran = stress(&plan, &place, &worker, control);
    let is_kept = args.keep || !ran.as_ref().is_ok_and(|report| report.finding.is_none());
    let kept = if is_kept { Some(place.keep()?) } else { place.remove().map(|()| None)? };
    let report = ran.map_err(|error| match &kept {
        Some(kept) => Failure::from(error).with(kept_note(kept)),
        None => error.into(),
    })?;
    let printed = print(&report, counters, out);
    if let (Some(kept), None) = (&kept, &report.finding) {
        control.progress.say(&kept_note(kept));
    }
    let found = match &report.finding {
        Some(finding) => Err(failure_of(finding.kind, &finding.what, &report, kept.as_ref())),
        None if report.interrupted => Err(Failure::Interrupted),
        None => Ok(()),
    };
    // Return the finding even if the reader of the counters is gone.
    found.and(printed)
}

fn failure_of(kind: &str, what: &str, report: &Report, kept: Option<&Kept>) -> Failure {
    let mut text = format!("{kind}: {what}");
    if let Some(kept) = kept {
        text += &format!("\n{}", kept_note(kept));
    }
    text += &format!("\nrun again: trommel stress --seed={} {}", report.setup.seed, other_flags());
    Failure::Check(text.trim_end().to_owned())
}

/// The directories of a store and of its expected state.
type Kept = (PathBuf, PathBuf);

fn kept_note((store, expected): &Kept) -> String {
    format!("kept: the store in {}, the expected state in {}", store.display(), expected.display())
}

/// The flags of this run as they were given, quoted for a shell, except for the seed.
fn other_flags() -> String {
    let mut flags = Vec::new();
    let mut given = std::env::args_os().skip(2);
    while let Some(flag) = given.next() {
        let flag = flag.to_string_lossy();
        if flag == "--seed" {
            given.next();
        } else if !flag.starts_with("--seed=") {
            flags.push(quoted(&flag));
        }
    }
    flags.join(" ")
}

/// A word quoted for a shell if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    match word.chars().all(is_plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A file to which the counters are appended.
struct Counters {
    path: PathBuf,
    file: File,
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    Failure::Other(format!("writing {} failed: {error}", path.display()))
}

fn counters_file(path: &Path) -> Result<Counters, Failure> {
    #[expect(clippy::disallowed_methods, reason = "it is no store's file")]
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let file = opened.map_err(|error| not_written(path, &error))?;
    Ok(Counters { path: path.to_path_buf(), file })
}

fn print(report: &Report, counters: Option<Counters>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut line = serde_json::to_string(report)
        .map_err(|error| Failure::Other(format!("the counters cannot be written: {error}")))?;
    line.push('\n');
    // The file first: the reader of the output may be gone.
    if let Some(Counters { path, mut file }) = counters {
        file.write_all(line.as_bytes()).map_err(|error| not_written(&path, &error))?;
    }
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}

/// The worker of a run; not meant for people.
pub(crate) fn run_worker(args: &WorkerArgs) -> Result<(), Failure> {
    // The program holds the lock of its standard output, to which all of the worker's threads
    // write.
    let output = io::stdout().as_fd().try_clone_to_owned().map(File::from)?;
    Ok(work(&args.store, &args.expected, BufReader::new(io::stdin()), output)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        for (word, written) in [
            ("--dir=/a/b_c.d", "--dir=/a/b_c.d"),
            ("16-1K", "16-1K"),
            ("", "''"),
            ("--dir=/a b", "'--dir=/a b'"),
            ("~", "'~'"),
            ("it's $HOME", r"'it'\''s $HOME'"),
        ] {
            assert_eq!(quoted(word), written);
        }
    }
}
