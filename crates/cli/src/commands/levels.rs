//! `trommel levels`, `trommel memory` and `trommel stats`: the contents of a store.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use clap::Args;
use trommel::Db;
use trommel_harness::units::parse_decimal;

use crate::commands::store_args::{DegradedArgs, FollowArgs, Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, Value};

#[derive(Debug, Args)]
pub(crate) struct LevelsArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    degraded: DegradedArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run_levels(
    args: &LevelsArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    args.store.read_degraded(session, args.degraded, |db| {
        let mut output = args.output.begin("levels", out);
        write_levels(db, &mut output)?;
        Ok(output.finish()?)
    })
}

/// A row for each level that holds data.
pub(crate) fn write_levels(db: &Db, output: &mut Output<'_>) -> Result<(), Failure> {
    output.list(
        "levels",
        &[
            "level",
            "tables",
            "file_bytes",
            "entries",
            "deletions",
            "keys",
            "deleted_keys",
            "filter_bytes",
        ],
    )?;
    for level in db.stats().levels {
        output.row(vec![
            format!("L{}", level.level).into(),
            Value::Count(level.tables),
            Value::Size(level.bytes),
            Value::Count(level.entries),
            Value::Count(level.deletions),
            Value::Count(level.keys),
            Value::Count(level.deleted_keys),
            Value::Size(level.filter_bytes),
        ])?;
    }
    Ok(())
}

pub(crate) const MEMORY_ABOUT: &str = "\
Shows the memory of the store, part by part. Outside the shell the store has just been opened: the \
contents of the log are in memtables, all tables are open (up to the limit on open files), so that \
the sizes of filters and indexes are included, and the block cache is empty.

Cached filters are part of the block cache and counted there; the filter limit is the maximum size \
of pinned filters.";

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run_memory(
    args: &MemoryArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    args.store.read_following(session, args.follow, |db| {
        // Opens the tables.
        db.filter_report();
        let memory = db.stats().memory;
        let mut output = args.output.begin("memory", out);
        output.record(
            "",
            &[
                ("memtables", Value::Size(memory.memtables)),
                ("idle_arenas", Value::Size(memory.idle_arenas)),
                ("block_cache", Value::Size(memory.block_cache)),
                ("cached_filters", Value::Size(memory.cached_filters)),
                ("filters", Value::Size(memory.filters)),
                ("filter_limit", memory.pinned_filter_limit.map_or(Value::Null, Value::Size)),
                ("index", Value::Size(memory.index)),
                ("other", Value::Size(memory.other)),
                ("construction", Value::Size(memory.construction)),
                ("deleted_ranges", Value::Size(memory.deleted_ranges)),
                ("total", Value::Size(memory.total())),
            ],
        )?;
        Ok(output.finish()?)
    })
}

pub(crate) const STATS_ABOUT: &str = "\
Shows statistics of the store: its state when it was opened, its files by level, and its \
compaction debt. The shell also shows the activity since the store was opened; elsewhere it has \
just been opened, and there was none.

Unusable filters are corrupt, or of a policy or kind that is not known here; filters not held fit \
neither in pinned memory nor in the block cache. Both are detected when a filter is first queried; \
verify queries all of them. Filter alarms, in the shell, name levels whose filters have more \
distinct false positives than chance explains.";

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Repeat at this interval in seconds, until interrupted; while a writer has the store open,
    /// report that instead
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    watch: Option<Duration>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// An interval: a tenth of a second to a day.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match parse_decimal(text) {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("it must be a number of seconds from 0.1 to 86400".into()),
    }
}

pub(crate) fn run_stats(
    args: &StatsArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let Some(pause) = args.watch else { return look(args, session, out) };
    loop {
        match look(args, session, out) {
            Err(Failure::Store(trommel::Error::Locked { dir })) => {
                let _ = writeln!(io::stderr(), "{} is being written", dir.display());
            }
            outcome => outcome?,
        }
        let start = Instant::now();
        while start.elapsed() < pause {
            session.go_on()?;
            std::thread::sleep(Duration::from_millis(20).min(pause));
        }
    }
}

fn look(args: &StatsArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    args.store.read_following(session, args.follow, |db| {
        let mut output = args.output.begin("stats", out);
        write_store(db, &mut output)?;
        if session.open.is_some() {
            write_activity(db, &mut output)?;
        }
        write_levels(db, &mut output)?;
        Ok(output.finish()?)
    })
}

fn write_store(db: &Db, output: &mut Output<'_>) -> Result<(), Failure> {
    let (stats, recovery) = (db.stats(), db.recovery_report());
    let dropped = recovery.dropped.iter().map(|dropped| dropped.to_string().into());
    let unusable = stats.filters.unusable.iter();
    let unusable = unusable.map(|(number, why)| format!("table {number}: {why}").into());
    Ok(output.record(
        "store",
        &[
            ("directory", db.dir().to_string_lossy().as_ref().into()),
            ("id", format!("{:016x}", db.id()).into()),
            ("was_closed", recovery.was_closed.into()),
            ("replayed_batches", Value::Count(recovery.replayed_batches)),
            ("dropped", none_if_empty(dropped.collect())),
            ("last_seqno", Value::Integer(stats.last_seqno)),
            ("tables", Value::Count(stats.levels.iter().map(|level| level.tables).sum())),
            ("file_bytes", Value::Size(stats.levels.iter().map(|level| level.bytes).sum())),
            ("compaction_debt", Value::Size(stats.background.compaction_debt)),
            ("unusable_filters", none_if_empty(unusable.collect())),
            ("filters_not_held", Value::Count(stats.filters.not_held)),
            ("filter_fallbacks", Value::Count(stats.filters.fallbacks)),
        ],
    )?)
}

fn none_if_empty(values: Vec<Value>) -> Value {
    if values.is_empty() { Value::Null } else { Value::List(values) }
}

/// The activity since the store was opened.
fn write_activity(db: &Db, output: &mut Output<'_>) -> Result<(), Failure> {
    let (stats, filters) = (db.stats(), db.filter_report());
    let alarms = filters
        .alarms()
        .map(|(level, evidence)| format!("L{} {}: {evidence}", level.level, level.kind).into());
    let seconds = |stall: trommel::Stall| Value::Float(stall.total.as_secs_f64());
    if stats.prefixes.checked + stats.prefixes.unused > 0 {
        output.record(
            "prefix_filters",
            &[
                ("checked", Value::Count(stats.prefixes.checked)),
                ("useful", Value::Count(stats.prefixes.useful)),
                ("not_used", Value::Count(stats.prefixes.unused)),
                ("scan_block_reads", Value::Count(stats.scans.block_reads)),
                ("scan_cache_hits", Value::Count(stats.scans.cache_hits)),
            ],
        )?;
    }
    if let Some(last) = &stats.background.error {
        let seconds = |time: Duration| Value::Float(time.as_secs_f64());
        output.record(
            "background_error",
            &[
                ("job", last.job.to_string().into()),
                ("error", last.error.to_string().into()),
                ("seconds_ago", seconds(last.age)),
                ("failures_in_a_row", Value::Count(last.failures_in_a_row)),
                ("failures", Value::Count(last.failures)),
                ("retries", Value::Count(last.retries)),
                ("seconds_to_next_retry", last.next_retry.map_or(Value::Null, seconds)),
            ],
        )?;
    }
    Ok(output.record(
        "since_open",
        &[
            ("lookups", Value::Count(stats.lookups.gets)),
            ("found", Value::Count(stats.lookups.found)),
            ("block_reads", Value::Count(stats.lookups.block_reads)),
            ("cache_hits", Value::Count(stats.lookups.cache_hits)),
            ("scan_entries_skipped", Value::Count(stats.scans.entries_skipped)),
            ("scan_reseeks", Value::Count(stats.scans.reseeks)),
            ("filter_alarms", none_if_empty(alarms.collect())),
            ("writes", Value::Count(stats.writes.operations)),
            ("user_bytes", Value::Size(stats.writes.user_bytes)),
            ("log_bytes", Value::Size(stats.writes.log_bytes)),
            ("log_syncs", Value::Count(stats.writes.log_syncs)),
            ("flushes", Value::Count(stats.background.flushes.count)),
            ("flush_bytes", Value::Size(stats.background.flushes.bytes)),
            ("compactions", Value::Count(stats.background.compactions.count)),
            ("trivial_moves", Value::Count(stats.background.compactions.trivial_moves)),
            ("compaction_bytes_read", Value::Size(stats.background.compactions.bytes_read)),
            ("compaction_bytes_written", Value::Size(stats.background.compactions.bytes_written)),
            ("rate_limited_bytes", Value::Size(stats.background.rate_limited_bytes)),
            ("seconds_stalled_by_memtables", seconds(stats.background.stalls.memtables)),
            ("seconds_stalled_by_level_0", seconds(stats.background.stalls.level_0)),
            ("seconds_stalled_by_debt", seconds(stats.background.stalls.debt)),
        ],
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{self, LOOKUPS};
    use crate::output::{ColorChoice, Format};

    #[test]
    fn activity_lists_alarms() {
        let db = testing::store();
        let said = || {
            let mut text = Vec::new();
            let args = OutputArgs { format: Format::Json, color: ColorChoice::Never };
            let mut output = args.begin("stats", &mut text);
            write_activity(&db, &mut output).unwrap();
            output.finish().unwrap();
            let mut text: serde_json::Value = serde_json::from_slice(&text).unwrap();
            text["since_open"]["filter_alarms"].take()
        };
        let alarms = said();
        let [alarm] = &alarms.as_array().unwrap()[..] else { panic!("one alarm: {alarms}") };
        let words =
            format!("L0 user: {LOOKUPS} false positives of {LOOKUPS} distinct keys where 5.0 ");
        assert!(alarm.as_str().unwrap().starts_with(&words), "{alarm}");
        db.reset_stats();
        assert!(said().is_null());
    }
}
