//! `trommel filters`: the filters of each level, and their quality.

use std::io::Write;

use clap::Args;
use trommel::{BudgetReport, Db, DbCursor, FilterLevel, FilterPolicy, FilterReport, Options};
use trommel_harness::Unit;
use trommel_harness::units::parse_count;

use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, Value};
use crate::shared_args::whole;

pub(crate) const LONG_ABOUT: &str = "\
Shows the filters of each level, and how good they are: the store is asked for keys that it does not \
hold, and each level's rate of false positives stands beside what theory expects of exactly those \
probes. The keys asked for are keys of the store with four random bytes appended, so they lie \
between its keys and every level has to be asked. Counts are those of these probes (in the shell, of \
all lookups since the store was opened). Alarms, where there are any, are levels whose filters let more \
distinct keys pass than chance explains: their bits are not those that were built.

With --filters=budget=10/key (or another budget) each level's filters stand beside those that it should \
have today, and --tables lists every table with the reason why it differs. Nothing is written: filters \
change as tables are written under that policy.";

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
    /// A budget to hold the tables against, as in budget=10/key or budget=64MiB
    #[arg(long, value_name = "SPEC")]
    filters: Option<FilterPolicy>,
    /// List each table beside what the budget has for it
    #[arg(long)]
    tables: bool,
    #[command(flatten)]
    probes: ProbeArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Lookups of keys that are not there, for a store that nobody else asks.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Look up this many missing keys
    #[arg(long, value_name = "COUNT", default_value = "100K", value_parser = parse_count)]
    pub(crate) probe: u64,
    /// Selects the keys to look up
    #[arg(long, default_value = "42", value_parser = whole::<u64>)]
    seed: u64,
}

impl ProbeArgs {
    /// Looks up the absent keys, with progress.
    pub(crate) fn ask(&self, db: &Db, session: Session<'_>) -> Result<(), Failure> {
        session.step("probing", (self.probe, Unit::Keys), || probe(db, self, session))
    }
}

impl FiltersArgs {
    /// Rejects a policy without a budget.
    fn check(&self, session: Session<'_>) -> Result<(), Failure> {
        if let Some(filters) = &self.filters {
            if session.open.is_some() {
                return Err(Failure::Usage(
                    "the shell's store has its policy already: leave --filters out".into(),
                ));
            }
            if filters.budget_bytes(0).is_none() {
                return Err(Failure::Usage(format!(
                    "--filters={filters} is no budget: a store's tables can be held against one, as in \
                     --filters=budget=10/key"
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
    args.store.read_with(session, held_against, |db| {
        if args.tables && db.filter_report().budget.is_none() {
            return Err(Failure::Usage(
                "--tables lists tables beside a budget: give one, as in --filters=budget=10/key"
                    .into(),
            ));
        }
        args.probes.ask(db, session)?;
        let report = db.filter_report();
        let mut output = args.output.begin("filters", out);
        let wanted = |level: &&FilterLevel| args.level.is_none_or(|number| level.level == number);
        // Only if some level has filters of prefixes.
        let of_prefixes = report.levels.iter().any(|level| level.prefix_tables > 0);
        let columns: Vec<&'static str> =
            COLUMNS.into_iter().chain(of_prefixes.then_some("keys_are")).collect();
        output.list("levels", &columns)?;
        for level in report.levels.iter().filter(wanted) {
            let keys_are = of_prefixes.then(|| keys_are(level).into());
            output.row(row(level).into_iter().chain(keys_are).collect())?;
        }
        if !report.prefixes.is_empty() {
            output.list(
                "prefixes",
                &COLUMNS.map(|name| if name == "keys" { "prefixes" } else { name }),
            )?;
            for level in report.prefixes.iter().filter(wanted) {
                output.row(row(level))?;
            }
            let unused = Value::Count(report.unused_prefix_filters);
            output.record("prefix_filters", &[("tables_not_used", unused)])?;
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
    output.list(
        "alarms",
        &[
            "level",
            "filter",
            "false_positives",
            "distinct_keys",
            "expected",
            "deviation",
            "excess",
            "most_of_one_key",
            "worst_table",
            "keys_of_worst_table",
        ],
    )?;
    for (level, evidence) in alarms {
        output.row(vec![
            format!("L{}", level.level).into(),
            level.kind.name().into(),
            Value::Count(evidence.false_positives),
            Value::Count(evidence.distinct_keys),
            evidence.expected.into(),
            evidence.deviation.into(),
            evidence.excess().into(),
            Value::Count(evidence.most_of_one_key),
            Value::Integer(evidence.worst_table),
            Value::Count(evidence.keys_of_worst_table),
        ])?;
    }
    Ok(())
}

/// Prints the budget's filter for each level, and on request for each table.
fn write_budget(
    budget: &BudgetReport,
    args: &FiltersArgs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let wanted = |level: usize| args.level.is_none_or(|number| level == number);
    output.list("budget_levels", &BUDGET_COLUMNS)?;
    for level in budget.levels.iter().filter(|level| wanted(level.level)) {
        output.row(vec![
            format!("L{}", level.level).into(),
            Value::Count(level.tables),
            level.built_bits().into(),
            level.planned_bits().into(),
            Value::Size(level.built_bytes),
            Value::Size(level.planned_bytes),
            Value::Count(level.drifted),
            Value::Count(level.dropped),
            level.wasted_reads.into(),
        ])?;
    }
    if args.tables {
        output.list("tables", &TABLE_COLUMNS)?;
        for table in budget.tables.iter().filter(|table| wanted(table.level)) {
            output.row(vec![
                Value::Integer(table.number),
                format!("L{}", table.level).into(),
                Value::Count(table.keys),
                Value::Size(table.built_bytes),
                Value::Size(table.planned_bytes),
                table.planned.to_string().into(),
                table.is_dropped.into(),
                table.wasted_reads.into(),
                table.reason.to_string().into(),
            ])?;
        }
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

const BUDGET_COLUMNS: [&str; 9] = [
    "level",
    "tables",
    "built_bits",
    "planned_bits",
    "built_bytes",
    "planned_bytes",
    "drifted",
    "dropped",
    "extra_reads",
];

const TABLE_COLUMNS: [&str; 9] = [
    "table",
    "level",
    "keys",
    "built_bytes",
    "planned_bytes",
    "planned",
    "dropped",
    "extra_reads",
    "reason",
];

const COLUMNS: [&str; 14] = [
    "level",
    "filter",
    "tables",
    "keys",
    "bits_asked",
    "bits_stored",
    "filter_bytes",
    "probes",
    "negatives",
    "false_positives",
    "true_positives",
    "measured_rate",
    "interval_95",
    "expected_rate",
];

/// The kind of the keys of a row.
fn keys_are(level: &FilterLevel) -> &'static str {
    match level.prefix_tables {
        0 => "keys",
        tables if tables == level.tables => "prefixes",
        _ => "keys and prefixes",
    }
}

fn row(level: &FilterLevel) -> Vec<Value> {
    let interval = level.rates.interval.map(|(low, high)| vec![low.into(), high.into()]);
    vec![
        format!("L{}", level.level).into(),
        level.kind.name().into(),
        Value::Count(level.tables),
        Value::Count(level.keys),
        level.bits_asked.into(),
        level.bits_stored.into(),
        Value::Size(level.filter_bytes),
        Value::Count(level.counts.probes),
        Value::Count(level.counts.negatives),
        Value::Count(level.counts.false_positives),
        Value::Count(level.counts.true_positives),
        level.rates.measured.into(),
        interval.into(),
        level.rates.expected.into(),
    ]
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
    use crate::commands::alarmed::{self, LOOKUPS};
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
        let db = alarmed::store();
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
        assert!(alarms(&report, |level| level.level == 1).is_null(), "another level is asked for");
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
