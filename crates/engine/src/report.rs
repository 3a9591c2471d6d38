//! The filter report: what each level's filters did, and what theory predicts.
//!
//! For every probe of a table for a key that is not in it, the table's own exact expected rate is
//! summed; divided by the number of such probes, the sum gives the rate that theory predicts for
//! exactly these probes, however unequal the tables are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use trommel_filter::FilterKind;
use trommel_sstable::{FilterFacts, FilterLabel};

use crate::budget::{BudgetReport, Reads};
use crate::conformance::{Conformance, Evidence};
use crate::counters::FilterTotals;
use crate::engine::Engine;
use crate::filter_kinds::{KINDS, kind_index};
use crate::prefix::Prefix;
use crate::reach::Reach;
use crate::user_filters::{PolicyReport, UserPolicy};
use crate::version::logical_level;
use crate::version::{Keeping, TableFile};

/// The filters of one kind on one level.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FilterLevel {
    /// 0, or 1 for the first level below that holds data, and so on.
    pub level: usize,
    /// Kind of the filters; [`FilterKind::None`] for tables without a usable one.
    pub kind: FilterLabel,
    /// Tables with such filters now.
    pub tables: u64,
    /// Distinct keys in those tables, counted separately for each table; prefixes for prefix
    /// filters.
    pub keys: u64,
    /// Tombstones among the entries of those tables. Their keys are in the filters.
    pub tombstones: u64,
    /// Tables among them with a prefix filter. In a row of lookups, these tables have no whole-key
    /// filter.
    pub prefix_tables: u64,
    /// Bits per key configured, averaged over keys; `None` without filters, and for user filters.
    pub bits_requested: Option<f64>,
    /// Bits per key stored, including headers: eight times [`filter_bytes`](Self::filter_bytes)
    /// divided by [`keys`](Self::keys).
    pub bits_stored: f64,
    /// Bytes of the filters in memory if all tables were open.
    pub filter_bytes: u64,
    /// What the filters answered since the counters were reset.
    pub counts: FilterCounts,
    /// The rates that follow from these counts.
    pub rates: FilterRates,
    /// Whether no more distinct keys than expected were false positives; `None` for scans, and
    /// until there is a false positive.
    pub conformance: Option<Conformance>,
}

/// Probes of filters, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FilterCounts {
    /// Lookups that probed such a table since the counters were reset. Lookups at a snapshot that
    /// do not find the key in a table with newer entries are left out, because it is unknown
    /// whether the positive was true.
    pub probes: u64,
    /// Probes answered with a negative: each saves a read.
    pub negatives: u64,
    /// Probes answered "maybe" for a key that is not in the table: each wastes a read.
    pub false_positives: u64,
    /// Probes for a key that is in the table.
    pub true_positives: u64,
}

/// False-positive rates among the probes for keys that are not in the table; `None` without such
/// probes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct FilterRates {
    /// The measured rate.
    pub measured: Option<f64>,
    /// 95% interval of the rate (Wilson's score interval).
    pub interval: Option<(f64, f64)>,
    /// The rate that theory predicts for the same probes.
    pub expected: Option<f64>,
}

/// What each level's filters did since the counters were reset. `Display` prints a table.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct FilterReport {
    /// By level, then by kind.
    pub levels: Vec<FilterLevel>,
    /// Prefix filters in scans and seeks, by level, then by kind, if there are any. `keys` are
    /// prefixes, a probe is a table probed in one scan, a negative is a table that the scan
    /// skipped, and a false positive a table that held nothing of the scan's range. For a scan that
    /// begins in the middle of its range this is unknown, and only tables that held part of the
    /// range count.
    pub prefixes: Vec<FilterLevel>,
    /// Range filters, by level, if there are any. A probe is a query for a data block
    /// at an end of a scan's range, a negative a block that was skipped, and a false positive a
    /// block that was read and held nothing of the rest of the range.
    pub ranges: Vec<FilterLevel>,
    /// Tables whose prefix filter is not used, because it was built with an extractor other than
    /// the current one.
    pub unused_prefix_filters: u64,
    /// Reads of data blocks that a lookup of a missing key within the store's key range is expected
    /// to waste, by theory, in the current tree.
    pub expected_wasted_reads_per_miss: f64,
    /// Bytes of all filters if all tables were open.
    pub filter_bytes: u64,
    /// Tables whose stored filters are neither held nor probed because they are in the last level:
    /// see
    /// [`FilterSettings::filters_on_last_level`](crate::settings::FilterSettings::filters_on_last_level).
    pub spared_tables: u64,
    /// Stored bytes of those filters.
    pub spared_bytes: u64,
    /// Filters built as [`FilterKind::Standard`] because no ribbon or fuse filter of their keys was
    /// found: see [`FilterStats::fallbacks`](crate::FilterStats::fallbacks). Partitioned filters
    /// are not counted here.
    pub fallbacks: u64,
    /// The state of the budget, if [`Options::filters`](crate::Options::filters) is one.
    pub budget: Option<BudgetReport>,
    /// The user's policy, if the store was opened with one.
    pub policy: Option<PolicyReport>,
}

impl FilterLevel {
    /// The evidence, if more distinct keys passed these filters than chance explains.
    pub fn alarm(&self) -> Option<&Conformance> {
        self.conformance.as_ref().filter(|conformance| conformance.is_alarming())
    }
}

impl FilterReport {
    /// The filters that more distinct keys passed than chance explains, with the evidence. These
    /// filters are not what they claim to be: corrupted in memory, built by a broken policy, or
    /// declared with a wrong rate.
    pub fn alarms(&self) -> impl Iterator<Item = (&FilterLevel, &Conformance)> {
        self.levels.iter().filter_map(|level| Some((level, level.alarm()?)))
    }
}

impl Engine {
    pub(crate) fn filter_report(&self) -> FilterReport {
        if self.access.opener().is_forked() {
            return FilterReport::default();
        }
        let version = self.version();
        let reach = Reach::of(&version, Some(&self.files.tables));
        let (totals, evidence) =
            (self.statistics.counters.totals(), self.statistics.counters.evidence());
        let (mut keys, mut prefixes, mut ranges) =
            (Rows::default(), Rows::default(), Rows::default());
        let (mut met, mut facts) = (Vec::new(), Vec::new());
        let (mut filter_bytes, mut unused, mut fallbacks) = (0, 0, 0);
        for ((physical, run), evidence) in version.levels.iter().enumerate().zip(evidence) {
            // A level that has lost its data shares its number with the one that replaced it, so
            // its counts join that one's row.
            let level = logical_level(&version, physical).0;
            for file in run {
                let extractor = self.options.extractor_for(&file.smallest);
                let open = Opened::of(self, file, extractor.as_ref());
                met.push((reach.share(file), rate(&open.keys)));
                facts.push(open.keys);
                filter_bytes += open.bytes;
                let stands_in = open.keys.is_of_prefixes;
                let of_row = if stands_in { open.keys.keys } else { file.keys };
                keys.hold(level, HeldFilter::new(open.keys, of_row, file));
                fallbacks += u64::from(open.keys.is_fallback && !stands_in);
                fallbacks += u64::from(open.prefixes.is_fallback);
                if open.prefixes.kind != FilterKind::None {
                    prefixes.hold(level, HeldFilter::new(open.prefixes, open.prefixes.keys, file));
                    unused += u64::from(!open.prefixes_are_used);
                }
                if open.ranges.kind != FilterKind::None {
                    ranges.hold(level, HeldFilter::new(open.ranges, open.ranges.keys, file));
                }
            }
            keys.count(level, &totals.filters[physical]);
            keys.note(level, evidence);
            prefixes.count(level, &totals.prefixes[physical]);
            ranges.count_ranges(level, &totals.ranges[physical]);
        }
        let (levels, prefixes) = (keys.report(), prefixes.report());
        let is_spared = |table: &TableFile| {
            table.keeping() == Keeping::NotInLastLevel && table.built_bytes() > 0
        };
        let spared = || version.tables().filter(|(_, table)| is_spared(table));
        let options = self.options.load();
        let budget = options.filters.budget();
        FilterReport {
            budget: budget.and_then(|budget| self.budget_report(budget, &version, &facts)),
            filter_bytes,
            levels,
            prefixes,
            ranges: ranges.report(),
            unused_prefix_filters: unused,
            fallbacks,
            expected_wasted_reads_per_miss: trommel_tuning::wasted_reads_per_miss(met),
            spared_tables: spared().count() as u64,
            spared_bytes: spared().map(|(_, table)| table.built_bytes()).sum(),
            policy: options.filtering.user_filters.as_ref().map(UserPolicy::report),
        }
    }

    /// An estimate of [`FilterReport::expected_wasted_reads_per_miss`] that opens no table: the
    /// filters of closed tables count like those of the open ones of their level. The same value if
    /// all tables are open; NaN if all tables of a level are closed.
    pub(crate) fn wasted_reads_by_open_tables(&self) -> f64 {
        let version = self.version();
        let reach = Reach::of(&version, None);
        let of_level = |tables: &Vec<Arc<TableFile>>| {
            let (mut all, mut open, mut wasted) = (0.0, 0.0, 0.0);
            for table in tables {
                let share = reach.share(table);
                all += share;
                if let Some(reader) = table.open_reader() {
                    open += share;
                    wasted += share * rate(&reader.table().filters().facts());
                }
            }
            if all > 0.0 { wasted / open * all } else { 0.0 }
        };
        version.levels.iter().map(of_level).sum()
    }
}

/// The rate of a filter. One that cannot be held passes every key, whatever its rate.
fn rate(facts: &FilterFacts) -> f64 {
    if facts.is_held { facts.expected } else { 1.0 }
}

/// The filters of a table.
struct Opened {
    keys: FilterFacts,
    prefixes: FilterFacts,
    ranges: FilterFacts,
    prefixes_are_used: bool,
    /// Bytes of all of them if they were loaded.
    bytes: u64,
}

impl Opened {
    /// Opens the table; one that cannot be opened counts as unfiltered.
    fn of(engine: &Engine, file: &Arc<TableFile>, extractor: Option<&Prefix>) -> Self {
        let Ok(table) = engine.files.tables.reader(file) else {
            let none = FilterFacts::NONE;
            let (keys, prefixes, ranges) = (none, none, none);
            return Self { keys, prefixes, ranges, prefixes_are_used: false, bytes: 0 };
        };
        let filters = table.filters();
        let name = filters.prefixes_part().map(|part| part.extractor.as_str());
        let in_force = extractor.or(table.stored_prefix());
        let believed = in_force.filter(|prefix| prefix.breach().is_none());
        let (keys, prefixes) = (filters.facts(), filters.prefix_facts());
        let ranges = filters.range_facts();
        // Without a whole-key filter, the prefix filter answers for it.
        let keys_bytes = if filters.keys_part().is_some() { keys.bytes } else { 0 };
        Self {
            keys,
            prefixes,
            ranges,
            bytes: keys_bytes + prefixes.bytes + ranges.bytes,
            prefixes_are_used: name.is_some() && name == believed.map(Prefix::name),
        }
    }
}

/// One table's filter.
struct HeldFilter {
    facts: FilterFacts,
    keys: u64,
    tombstones: u64,
    table: u64,
}

impl HeldFilter {
    fn new(facts: FilterFacts, keys: u64, table: &TableFile) -> Self {
        Self { facts, keys, tombstones: table.deletions, table: table.number }
    }
}

/// Rows by level and kind.
#[derive(Default)]
struct Rows(BTreeMap<(usize, usize), Row>);

/// The place of range filters among the kinds of a level, which are in a report of their own.
const OF_RANGES: usize = KINDS.len();

impl Rows {
    fn hold(&mut self, level: usize, held: HeldFilter) {
        let kind = match held.facts.kind {
            FilterLabel::Ranges => OF_RANGES,
            kind => kind_index(kind),
        };
        self.0.entry((level, kind)).or_default().held.push(held);
    }

    fn count_ranges(&mut self, level: usize, cell: &FilterTotals) {
        if cell.probes() > 0 {
            self.0.entry((level, OF_RANGES)).or_default().totals.add(cell);
        }
    }

    fn count(&mut self, level: usize, cells: &[FilterTotals]) {
        for (kind, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.probes() > 0) {
            self.0.entry((level, kind)).or_default().totals.add(cell);
        }
    }

    fn note(&mut self, level: usize, cells: [Evidence; KINDS.len()]) {
        for (kind, evidence) in cells.into_iter().enumerate() {
            if let Some(row) = self.0.get_mut(&(level, kind)) {
                row.evidence.join(evidence);
            }
        }
    }

    fn report(&self) -> Vec<FilterLevel> {
        let label = |kind: &usize| KINDS.get(*kind).copied().unwrap_or(FilterLabel::Ranges);
        self.0.iter().map(|((level, kind), row)| row.report(*level, label(kind))).collect()
    }
}

/// One row of the report: the tables of one kind on one level, and the counts of their filters.
#[derive(Default)]
struct Row {
    held: Vec<HeldFilter>,
    totals: FilterTotals,
    evidence: Evidence,
}

impl Row {
    fn report(&self, level: usize, kind: FilterLabel) -> FilterLevel {
        let Self { held, totals, evidence } = self;
        let keys: u64 = held.iter().map(|held| held.keys).sum();
        let filter_bytes: u64 = held.iter().map(|held| held.facts.bytes).sum();
        let per_key = |value: fn(&HeldFilter) -> f64| {
            let sum: f64 = held.iter().map(|held| value(held) * held.keys as f64).sum();
            if keys == 0 { 0.0 } else { sum / keys as f64 }
        };
        let is_ours = kind != FilterLabel::User;
        let absent = totals.negatives + totals.false_positives;
        FilterLevel {
            level,
            kind,
            tables: held.len() as u64,
            keys,
            tombstones: held.iter().map(|held| held.tombstones).sum(),
            prefix_tables: held.iter().filter(|held| held.facts.is_of_prefixes).count() as u64,
            bits_requested: (is_ours && kind != FilterKind::None)
                .then(|| per_key(|held| held.facts.bits_requested)),
            bits_stored: filter_bytes as f64 * 8.0 / keys.max(1) as f64,
            filter_bytes,
            counts: FilterCounts {
                probes: totals.probes(),
                negatives: totals.negatives,
                false_positives: totals.false_positives,
                true_positives: totals.true_positives,
            },
            rates: FilterRates {
                measured: (absent > 0).then(|| totals.false_positives as f64 / absent as f64),
                interval: (absent > 0).then(|| wilson(totals.false_positives, absent)),
                expected: (absent > 0).then(|| totals.expected / absent as f64),
            },
            conformance: evidence
                .judge(&held.iter().map(|held| (held.table, held.facts)).collect()),
        }
    }
}

/// Wilson's score interval at 95% for `hits` of `trials` (E. B. Wilson, "Probable inference, the
/// law of succession, and statistical inference", 1927).
pub fn wilson(hits: u64, trials: u64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let z = 1.959_963_984_540_054;
    let n = trials as f64;
    let rate = hits as f64 / n;
    let scale = 1.0 + z * z / n;
    let middle = (rate + z * z / (2.0 * n)) / scale;
    let half = z / scale * (rate * (1.0 - rate) / n + z * z / (4.0 * n * n)).sqrt();
    // If no trial or every trial is a hit, the interval reaches 0 or 1, except for rounding.
    let low = if hits == 0 { 0.0 } else { (middle - half).max(0.0) };
    let high = if hits == trials { 1.0 } else { (middle + half).min(1.0) };
    (low, high)
}

impl fmt::Display for FilterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>5} {:>6} {:>10} {:>8} {:>7} {:>7} {:>10} {:>11} {:>11} {:>9} {:>10} {:>10} {:>21} {:>10}",
            "level",
            "tables",
            "keys",
            "filter",
            "wanted",
            "stored",
            "KiB",
            "probes",
            "negatives",
            "false",
            "true",
            "measured",
            "95% interval",
            "expected"
        )?;
        for level in &self.levels {
            level.fmt(f)?;
        }
        for (level, conformance) in self.alarms() {
            writeln!(f, "ALARM: L{} {}: {conformance}", level.level, level.kind)?;
        }
        for (title, levels) in [
            ("filters of prefixes, queried by scans:", &self.prefixes),
            ("range filters, queried by scans for blocks:", &self.ranges),
        ] {
            if !levels.is_empty() {
                writeln!(f, "{title}")?;
            }
            levels.iter().try_for_each(|level| level.fmt(f))?;
        }
        if self.fallbacks > 0 {
            let count = self.fallbacks;
            writeln!(
                f,
                "fallbacks: {count} filters are standard ones, as no other could be built"
            )?;
        }
        if self.unused_prefix_filters > 0 {
            let tables = self.unused_prefix_filters;
            writeln!(f, "not used: the prefix filters of {tables} tables, which another made")?;
        }
        write!(
            f,
            "filters take {:.1} KiB; a missing key is expected to waste {} reads",
            self.filter_bytes as f64 / 1024.0,
            Reads(self.expected_wasted_reads_per_miss)
        )?;
        if self.spared_tables > 0 {
            write!(
                f,
                "\nlast level: the filters of {} tables, {:.1} KiB, are not used",
                self.spared_tables,
                self.spared_bytes as f64 / 1024.0
            )?;
        }
        if let Some(budget) = &self.budget {
            write!(f, "\n{budget}")?;
        }
        let Some(policy) = &self.policy else { return Ok(()) };
        write!(f, "\nuser filters: policy {:?}, {} failures", policy.name, policy.failures)?;
        match &policy.first_failure {
            Some(first) => write!(f, ", the first: {first}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for FilterLevel {
    /// Writes a line of the report's table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| Reads(rate).to_string());
        let interval = self
            .rates
            .interval
            .map_or("-".to_owned(), |(low, high)| format!("{} - {}", Reads(low), Reads(high)));
        write!(
            f,
            "{:>5} {:>6} {:>10} {:>8} {:>7} {:>7.2} {:>10.1} {:>11} {:>11} {:>9} {:>10} {:>10} {:>21} {:>10}",
            format!("L{}", self.level),
            self.tables,
            self.keys,
            self.kind.name(),
            self.bits_requested.map_or("-".to_owned(), |bits| format!("{bits:.2}")),
            self.bits_stored,
            self.filter_bytes as f64 / 1024.0,
            self.counts.probes,
            self.counts.negatives,
            self.counts.false_positives,
            self.counts.true_positives,
            rate(self.rates.measured),
            interval,
            rate(self.rates.expected)
        )?;
        match self.prefix_tables {
            0 => {}
            tables if tables == self.tables => write!(f, "  keys are prefixes")?,
            tables => write!(f, "  keys of {tables} tables are prefixes")?,
        }
        match self.tombstones {
            0 => writeln!(f),
            tombstones => writeln!(f, "  {tombstones} tombstones"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilsons_interval_has_its_textbook_values() {
        let (low, high) = wilson(10, 100);
        assert!((low - 0.0552).abs() < 1e-4 && (high - 0.1744).abs() < 1e-4, "{low} {high}");
        let (low, high) = wilson(0, 1000);
        assert!(low == 0.0 && (high - 0.003_827).abs() < 1e-6, "{low} {high}");
    }
}
