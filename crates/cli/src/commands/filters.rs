//! `trommel filters`: the filters of each level, and their quality.

use std::io::Write;

use clap::Args;
use trommel::{
    BudgetReport, Conformance, Db, DbCursor, FilterLevel, FilterPolicy, FilterReport,
    KeyspaceStats, LevelDrift, Options, TableDrift,
};
use trommel_harness::Unit;
use trommel_harness::units::parse_count;

use crate::commands::store_args::{FollowArgs, Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Column, Output, OutputArgs, Value};
use crate::shared_args::whole;

pub(crate) const LONG_ABOUT: &str = "\
Shows the filters of each level, and their quality: missing keys are looked up, and each level's \
false-positive rate is shown next to the theoretical rate of exactly these probes. The keys looked \
up are keys of the store with four random bytes appended, so they sort between its keys, and \
lookups reach every level. The counts are of these probes (in the shell, of all lookups since the \
store was opened). An alarm names a level whose filters have more distinct false positives than \
chance explains: their bits are not the ones that were built.

In a store with named keyspaces there is a row for each: its tables, and the rate at which their \
filters pass random keys, next to the theoretical one. As many random keys as there are lookups are \
divided among the keyspaces.

With --filters=budget=10/key (or another budget) each level's filters are shown next to those that \
the budget would give it today, and --tables lists every table with the reason for the difference. \
Nothing is written: filters change as tables are written under that policy.";

/// Bytes appended to a key to make an absent one.
const TAIL_BYTES: usize = 4;
/// Absent keys made from one present key.
const PER_KEY: u64 = 64;
/// Number of times that the range of keys is split to draw one of them.
const PARTINGS: usize = 12;

#[derive(Debug, Args)]
pub(crate) struct FiltersArgs {
    /// Only this level
    #[arg(long, value_name = "NUMBER", value_parser = whole::<usize>)]
    level: Option<usize>,
    /// A budget to compare the tables with, as in budget=10/key or budget=64MiB
    #[arg(long, value_name = "SPEC")]
    filters: Option<FilterPolicy>,
    /// List each table with the filter that the budget would give it
    #[arg(long)]
    tables: bool,
    #[command(flatten)]
    probes: ProbeArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Lookups of absent keys, in a store without other users.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Look up this many missing keys
    #[arg(long, value_name = "COUNT", default_value = "100K", value_parser = parse_count)]
    pub(crate) probe: u64,
    /// Seed of the keys to look up
    #[arg(long, default_value = "42", value_parser = whole::<u64>)]
    seed: u64,
}

impl ProbeArgs {
    /// Looks up the absent keys, with progress.
    pub(crate) fn query(&self, db: &Db, session: Session<'_>) -> Result<(), Failure> {
        session.step("probing", (self.probe, Unit::Keys), || probe(db, self, session))
    }
}

impl FiltersArgs {
    /// Rejects a policy without a budget.
    fn check(&self, session: Session<'_>) -> Result<(), Failure> {
        if let Some(filters) = &self.filters {
            if session.open.is_some() {
                return Err(Failure::Usage(
                    "the shell's store is already open with its policy: leave out --filters".into(),
                ));
            }
            if filters.budget_bytes(0).is_none() {
                return Err(Failure::Usage(format!(
                    "--filters={filters} is not a budget: a store's tables can only be compared \
                     with a budget, as in --filters=budget=10/key"
                )));
            }
        }
        Ok(())
    }
}

pub(crate) fn run(
    args: &FiltersArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    args.check(session)?;
    let held_against = |options: Options| match &args.filters {
        Some(filters) => options.filters(filters.clone()),
        None => options,
    };
    args.store.read_with(session, args.follow, held_against, |db| {
        if args.tables && db.filter_report().budget.is_none() {
            return Err(Failure::Usage(
                "--tables compares tables with a budget: give one, as in --filters=budget=10/key"
                    .into(),
            ));
        }
        args.probes.query(db, session)?;
        let report = db.filter_report();
        let mut output = args.output.begin("filters", out);
        let wanted = |level: &&FilterLevel| args.level.is_none_or(|number| level.level == number);
        // Only if some level has filters of prefixes.
        let of_prefixes = report.levels.iter().any(|level| level.prefix_tables > 0);
        let keys_are: Column<FilterLevel> = ("keys_are", |level| keys_are(level).into());
        let columns: Vec<_> = COLUMNS.into_iter().chain(of_prefixes.then_some(keys_are)).collect();
        output.rows("levels", &columns, report.levels.iter().filter(wanted))?;
        if !report.prefixes.is_empty() {
            let columns =
                COLUMNS.map(|(name, of)| (if name == "keys" { "prefixes" } else { name }, of));
            output.rows("prefixes", &columns, report.prefixes.iter().filter(wanted))?;
            let unused = Value::Count(report.unused_prefix_filters);
            output.record("prefix_filters", &[("tables_not_used", unused)])?;
        }
        if !report.ranges.is_empty() {
            output.rows("ranges", &COLUMNS, report.ranges.iter().filter(wanted))?;
        }
        if args.level.is_none() {
            write_keyspaces(db, args.probes.probe, session, &mut output)?;
        }
        write_alarms(&report, wanted, &mut output)?;
        if let Some(budget) = &report.budget {
            write_budget(budget, args, &mut output)?;
        }
        if report.fallbacks > 0 {
            output
                .record("fallbacks", &[("standard_for_ribbon", Value::Count(report.fallbacks))])?;
        }
        if args.level.is_none() {
            let wasted = report.expected_wasted_reads_per_miss;
            output.record(
                "all",
                &[
                    ("filter_bytes", Value::Size(report.filter_bytes)),
                    ("expected_wasted_reads_per_miss", Value::Float(wasted)),
                ],
            )?;
        }
        Ok(output.finish()?)
    })
}

/// Prints the filters of each keyspace, if there is one with a name.
fn write_keyspaces(
    db: &Db,
    probes: u64,
    session: Session<'_>,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let named = db.list_keyspaces()?.len() as u64;
    if named == 0 {
        return Ok(());
    }
    let each = probes.div_ceil(named + 1);
    let stats = session.call("probing keyspaces", db, move |db| db.keyspace_stats(each))?;
    let columns: [Column<KeyspaceStats>; 7] = [
        ("keyspace", |it| it.name.clone().map_or(Value::Null, Value::Text)),
        ("tables", |it| Value::Count(it.tables)),
        ("bytes", |it| Value::Size(it.bytes)),
        ("keys", |it| Value::Count(it.keys)),
        ("bits_per_key", |it| it.bits_per_key().into()),
        ("measured_rate", |it| it.measured_rate().into()),
        ("expected_rate", |it| it.expected_rate.into()),
    ];
    output.rows("keyspaces", &columns, &stats)?;
    Ok(())
}

/// Prints the alarms of filters with more false positives than chance explains, if any.
fn write_alarms(
    report: &FilterReport,
    wanted: impl Fn(&&FilterLevel) -> bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let alarms: Vec<_> = report.alarms().filter(|(level, _)| wanted(level)).collect();
    if alarms.is_empty() {
        return Ok(());
    }
    let columns: [Column<(&FilterLevel, &Conformance)>; 10] = [
        ("level", |(level, _)| Value::level(level.level)),
        ("filter", |(level, _)| level.kind.name().into()),
        ("false_positives", |(_, evidence)| Value::Count(evidence.false_positives)),
        ("distinct_keys", |(_, evidence)| Value::Count(evidence.distinct_keys)),
        ("expected", |(_, evidence)| evidence.expected.into()),
        ("deviation", |(_, evidence)| evidence.deviation.into()),
        ("excess", |(_, evidence)| evidence.excess().into()),
        ("most_of_one_key", |(_, evidence)| Value::Count(evidence.most_of_one_key)),
        ("worst_table", |(_, evidence)| Value::Integer(evidence.worst_table)),
        ("keys_of_worst_table", |(_, evidence)| Value::Count(evidence.keys_of_worst_table)),
    ];
    output.rows("alarms", &columns, alarms)?;
    Ok(())
}

/// Prints the budget's filter for each level, and on request for each table.
fn write_budget(
    budget: &BudgetReport,
    args: &FiltersArgs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let wanted = |level: usize| args.level.is_none_or(|number| level == number);
    let columns: [Column<LevelDrift>; 9] = [
        ("level", |level| Value::level(level.level)),
        ("tables", |level| Value::Count(level.tables)),
        ("built_bits", |level| level.built_bits().into()),
        ("planned_bits", |level| level.planned_bits().into()),
        ("built_bytes", |level| Value::Size(level.built_bytes)),
        ("planned_bytes", |level| Value::Size(level.planned_bytes)),
        ("drifted", |level| Value::Count(level.drifted)),
        ("dropped", |level| Value::Count(level.dropped)),
        ("extra_reads", |level| level.wasted_reads.into()),
    ];
    let levels = budget.levels.iter().filter(|level| wanted(level.level));
    output.rows("budget_levels", &columns, levels)?;
    if args.tables {
        let columns: [Column<TableDrift>; 9] = [
            ("table", |table| Value::Integer(table.number)),
            ("level", |table| Value::level(table.level)),
            ("keys", |table| Value::Count(table.keys)),
            ("built_bytes", |table| Value::Size(table.built_bytes)),
            ("planned_bytes", |table| Value::Size(table.planned_bytes)),
            ("planned", |table| table.planned.to_string().into()),
            ("dropped", |table| table.is_dropped.into()),
            ("extra_reads", |table| table.wasted_reads.into()),
            ("reason", |table| table.reason.to_string().into()),
        ];
        let tables = budget.tables.iter().filter(|table| wanted(table.level));
        output.rows("tables", &columns, tables)?;
    }
    Ok(output.record(
        "budget",
        &[
            ("spec", budget.spec.as_str().into()),
            ("budget_bytes", Value::Size(budget.space.budget_bytes)),
            ("built_bytes", Value::Size(budget.space.built_bytes)),
            ("resident_bytes", Value::Size(budget.space.resident_bytes)),
            ("dropped_tables", Value::Count(budget.space.dropped_tables)),
            ("dropped_bytes", Value::Size(budget.space.dropped_bytes)),
            ("queued_rebuilds", Value::Count(budget.queued_rebuilds)),
            ("rebuild_failure", budget.rebuild_failure.clone().map_or(Value::Null, Into::into)),
            ("price_per_byte", Some(budget.value.price).filter(|price| price.is_finite()).into()),
            ("misses", budget.value.misses.into()),
            ("misses_seen_in", budget.value.misses_seen_in.map_or(Value::Null, Value::Count)),
            ("expected_wasted_reads", budget.value.expected_wasted_reads.into()),
            ("planned_wasted_reads", budget.value.planned_wasted_reads.into()),
        ],
    )?)
}

/// The columns of a level's filters.
const COLUMNS: [Column<FilterLevel>; 14] = [
    ("level", |level| Value::level(level.level)),
    ("filter", |level| level.kind.name().into()),
    ("tables", |level| Value::Count(level.tables)),
    ("keys", |level| Value::Count(level.keys)),
    ("bits_requested", |level| level.bits_requested.into()),
    ("bits_stored", |level| level.bits_stored.into()),
    ("filter_bytes", |level| Value::Size(level.filter_bytes)),
    ("probes", |level| Value::Count(level.counts.probes)),
    ("negatives", |level| Value::Count(level.counts.negatives)),
    ("false_positives", |level| Value::Count(level.counts.false_positives)),
    ("true_positives", |level| Value::Count(level.counts.true_positives)),
    ("measured_rate", |level| level.rates.measured.into()),
    ("interval_95", |level| {
        level.rates.interval.map(|(low, high)| vec![low.into(), high.into()]).into()
    }),
    ("expected_rate", |level| level.rates.expected.into()),
];

/// The kind of the keys of a row.
fn keys_are(level: &FilterLevel) -> &'static str {
    match level.prefix_tables {
        0 => "keys",
        tables if tables == level.tables => "prefixes",
        _ => "keys and prefixes",
    }
}

/// Looks up absent keys: keys of the store with random bytes appended, several for each key drawn.
/// If keys are dense such a key may be present; then its lookup is not a false positive.
fn probe(db: &Db, args: &ProbeArgs, session: Session<'_>) -> Result<(), Failure> {
    let mut random = fastrand::Rng::with_seed(args.seed);
    let mut cursor = db.cursor()?;
    cursor.seek_to_last()?;
    let Some(last) = cursor.key().map(<[u8]>::to_vec) else { return Ok(()) };
    cursor.seek_to_first()?;
    let ends = (cursor.key().unwrap_or_default().to_vec(), last);
    let mut left = args.probe;
    while left > 0 {
        session.go_on()?;
        let key = draw_key(db, &mut cursor, ends.clone(), &mut random)?;
        let now = left.min(PER_KEY);
        for _ in 0..now {
            let mut absent = key.clone();
            absent.extend((0..TAIL_BYTES).map(|_| random.u8(..)));
            if absent.len() <= trommel::MAX_KEY_BYTES {
                db.contains_key(&absent)?;
            }
        }
        session.control.progress.advance(now);
        left -= now;
    }
    Ok(())
}

/// A random key of the store, with a probability of about its share of the bytes in tables, however
/// unevenly keys are distributed.
///
/// 1. A point between two keys is drawn; the keys next to it split the range in two.
/// 2. One half is drawn, weighted by its bytes in table files, and split again.
fn draw_key(
    db: &Db,
    cursor: &mut DbCursor,
    (mut low, mut high): (Vec<u8>, Vec<u8>),
    random: &mut fastrand::Rng,
) -> Result<Vec<u8>, Failure> {
    for _ in 0..PARTINGS {
        if low == high {
            break;
        }
        cursor.seek_for_prev(between(&low, &high, random))?;
        let Some(below) = cursor.key().map(<[u8]>::to_vec) else { break };
        cursor.next()?;
        let above = cursor.key().map(<[u8]>::to_vec).filter(|above| *above <= high);
        let Some(above) = above else { break };
        // Without the upper end itself: after a table's last key there is no data.
        let bytes_below = db.approximate_bytes(&low..&above)?;
        let bytes_above = db.approximate_bytes(&above..&high)?;
        let all = bytes_below + bytes_above;
        if all == 0 && random.bool() || all > 0 && random.u64(..all) < bytes_below {
            high = below;
        } else {
            low = above;
        }
    }
    Ok(low)
}

/// A random point from the first key on, and rarely after the last: their common prefix, followed
/// by a number between their next eight bytes.
fn between(first: &[u8], last: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let bytes = key[common..].iter().copied().chain(std::iter::repeat(0)).take(8);
        bytes.fold(0_u64, |number, byte| number << 8 | u64::from(byte))
    };
    let (low, high) = (number(first), number(last));
    let drawn = if low < high { random.u64(low..high) } else { low };
    let mut point = first[..common].to_vec();
    point.extend((0..8).rev().map(|place| (drawn >> (8 * place)) as u8));
    // Nothing below the first key: its own tail may be longer than eight bytes.
    if *point < *first { first.to_vec() } else { point }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{self, LOOKUPS};
    use crate::output::{ColorChoice, Format};

    /// The alarms of a report as one JSON document.
    fn alarms(report: &FilterReport, wanted: impl Fn(&&FilterLevel) -> bool) -> serde_json::Value {
        let mut text = Vec::new();
        let args = OutputArgs { format: Format::Json, color: ColorChoice::Never };
        let mut output = args.begin("filters", &mut text);
        write_alarms(report, wanted, &mut output).unwrap();
        output.finish().unwrap();
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()["alarms"].take()
    }

    #[test]
    fn alarms_are_listed_with_their_evidence() {
        let db = testing::store();
        let report = db.filter_report();
        let (_, evidence) = report.alarms().next().unwrap();
        assert_eq!(
            alarms(&report, |_| true),
            serde_json::json!([{
                "level": "L0",
                "filter": "user",
                "false_positives": LOOKUPS,
                "distinct_keys": LOOKUPS,
                "expected": evidence.expected,
                "deviation": evidence.deviation,
                "excess": evidence.excess(),
                "most_of_one_key": 1,
                "worst_table": evidence.worst_table,
                "keys_of_worst_table": LOOKUPS,
            }])
        );
        assert!(evidence.excess() > 20.0, "{evidence}");
        assert!((evidence.expected - 5.0).abs() < 1e-6, "{evidence}");
        assert!(alarms(&report, |level| level.level == 1).is_null(), "another level is selected");
        db.reset_stats();
        assert!(alarms(&db.filter_report(), |_| true).is_null(), "there is none any more");
    }

    #[test]
    fn points_lie_between_the_keys() {
        let mut random = fastrand::Rng::with_seed(1);
        for (first, last) in [
            (&b"key000"[..], &b"key999"[..]),
            (b"", b"\xff\xff"),
            (b"a", b"a"),
            (b"", b""),
            (b"abc", b"abcdefghijklmnop"),
            (b"a0123456789", b"b"),
        ] {
            let mut points = std::collections::BTreeSet::new();
            for _ in 0..100 {
                let point = between(first, last, &mut random);
                assert!(*first <= *point, "{first:?} {point:?}");
                let past_last = *point > *last;
                assert!(!past_last || point.starts_with(last), "{point:?} {last:?}");
                points.insert(point);
            }
            assert!(points.len() > 50 || first == last, "{first:?} {last:?}: {}", points.len());
        }
    }
}
