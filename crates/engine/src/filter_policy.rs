//! Which filter a table gets, by level. The only place that knows both levels and filters.
//!
//! Levels here, in reports and in table properties are counted from the top among levels that hold
//! data: after L0, L1 is the base level, whatever its physical number. `last` is the deepest level
//! that holds data, and never L0.

mod budget;
mod presets;
mod typed;

use std::fmt;
use std::str::FromStr;

use trommel_filter::{FilterSpec, RangeSpec};
use trommel_tuning::Budget;

use crate::error::Error;

pub(crate) use budget::FilterBudget;

/// A rule for some levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LevelRule {
    levels: Levels,
    spec: FilterSpec,
}

/// The levels that a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Levels {
    All,
    Last,
    Range { from: u8, to: Option<u8> },
}

impl Levels {
    /// Whether `level` is among them; `is_last` if no deeper level holds data.
    pub(crate) fn match_level(self, level: usize, is_last: bool) -> bool {
        match self {
            Self::All => true,
            Self::Last => is_last && level > 0,
            Self::Range { from, to } => {
                level >= usize::from(from) && to.is_none_or(|to| level <= usize::from(to))
            }
        }
    }
}

impl fmt::Display for Levels {
    /// Writes the prefix of a level's spec.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::Last => f.write_str("last="),
            Self::Range { from, to: None } => write!(f, "L{from}-="),
            Self::Range { from, to: Some(to) } if from == to => write!(f, "L{from}="),
            Self::Range { from, to: Some(to) } => write!(f, "L{from}-{to}="),
        }
    }
}

/// The filters of each level's tables: a list of rules, each with a filter for some levels, of
/// which the last one that matches applies; or a budget, which is spent over all levels so that the
/// fewest reads are wasted.
///
/// ```
/// let policy: trommel::FilterPolicy = "L0=paired:20,L1-3=blocked:12.5,L4-=standard:10,last=none"
///     .parse()?;
/// assert_eq!(policy.for_level(2, false).to_string(), "blocked:12.5");
/// assert_eq!(policy.for_level(6, true).to_string(), "none");
/// let everywhere: trommel::FilterPolicy = "paired:23.4".parse()?;
/// assert_eq!(everywhere.for_level(3, true).to_string(), "paired:23.4");
/// // As in another store, except that the last level has none.
/// let pebble: trommel::FilterPolicy = "pebble.Progressive,last=none".parse()?;
/// assert_eq!(pebble.for_level(4, false).to_string(), "blocked:14");
/// // Ten bits per key on average, with more of them on the upper levels.
/// let budget: trommel::FilterPolicy = "budget=10/key".parse()?;
/// assert_eq!(budget.budget_bytes(1_000_000), Some(1_250_000));
/// let budget: trommel::FilterPolicy = "budget=64MiB,kinds=paired|blocked,misses=0.9".parse()?;
/// assert_eq!(budget.budget_bytes(1_000_000), Some(64 << 20));
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct FilterPolicy {
    choice: PolicyForm,
    /// The rules for range filters.
    ranges: Vec<RangeRule>,
}

/// A rule for range filters on some levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RangeRule {
    levels: Levels,
    spec: RangeSpec,
}

#[derive(Debug, Clone, PartialEq)]
enum PolicyForm {
    Rules(Vec<LevelRule>),
    Budget(FilterBudget),
}

impl FilterPolicy {
    /// The same filter on every level. [`FilterPolicy::on_levels`] adds others.
    ///
    /// ```
    /// use trommel::{FilterKind, FilterPolicy, FilterSpec};
    /// let policy = FilterPolicy::uniform(FilterSpec::new(FilterKind::Paired, 12.0)?);
    /// assert_eq!(policy, "paired:12".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn uniform(spec: FilterSpec) -> Self {
        Self::of(PolicyForm::Rules(vec![LevelRule { levels: Levels::All, spec }]))
    }

    /// A policy without range filters.
    fn of(choice: PolicyForm) -> Self {
        Self { choice, ranges: Vec::new() }
    }

    /// The filter of a table built for `level` (0, or 1 for the base level, and so on); `is_last`
    /// if no deeper level holds data. Level 0 is never the last. [`FilterSpec::NONE`] for a budget,
    /// which chooses for the tables of a tree and not by level.
    pub fn for_level(&self, level: usize, is_last: bool) -> FilterSpec {
        let PolicyForm::Rules(rules) = &self.choice else { return FilterSpec::NONE };
        let named = rules.iter().rev().find(|rule| rule.levels.match_level(level, is_last));
        named.map_or(FilterSpec::NONE, |rule| rule.spec)
    }

    /// The range filter of a table built for `level`, as [`for_level`](Self::for_level):
    /// [`RangeSpec::NONE`] unless the policy has one.
    ///
    /// ```
    /// let policy: trommel::FilterPolicy = "paired:12,ranges=infix:6,ranges.L0=none".parse()?;
    /// assert_eq!(policy.ranges_for_level(2, true).to_string(), "infix:6");
    /// assert_eq!(policy.ranges_for_level(0, false), trommel::RangeSpec::NONE);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn ranges_for_level(&self, level: usize, is_last: bool) -> RangeSpec {
        let named = self.ranges.iter().rev().find(|rule| rule.levels.match_level(level, is_last));
        named.map_or(RangeSpec::NONE, |rule| rule.spec)
    }

    /// The same policy, with these range filters, from the top, and no others. Levels below
    /// `last`, which do not exist yet, get its filter.
    pub(crate) fn with_ranges(
        self,
        levels: impl Iterator<Item = (usize, RangeSpec)>,
        last: usize,
    ) -> Self {
        let rules = levels.map(|(level, spec)| RangeRule {
            levels: Levels::Range { from: level as u8, to: (level != last).then_some(level as u8) },
            spec,
        });
        let ranges = rules.collect();
        Self { ranges, ..self }
    }

    /// The same policy, with the range filters of `other`.
    pub(crate) fn with_ranges_of(self, other: &Self) -> Self {
        Self { ranges: other.ranges.clone(), ..self }
    }

    /// Whether it has a range filter on any level.
    pub(crate) fn has_ranges(&self) -> bool {
        self.ranges.iter().any(|rule| rule.spec != RangeSpec::NONE)
    }

    /// Bytes that the filters of all tables of a store with `keys` keys may take in memory, if this
    /// is a budget. A key counts once for each table that holds it.
    pub fn budget_bytes(&self, keys: u64) -> Option<u64> {
        self.budget().map(|budget| budget.budget().bytes(keys))
    }

    /// The same policy with another budget, if this is one.
    pub(crate) fn with_budget(&self, budget: Budget) -> Self {
        match &self.choice {
            PolicyForm::Budget(old) => {
                let choice = PolicyForm::Budget(old.clone().of(budget));
                Self { choice, ranges: self.ranges.clone() }
            }
            PolicyForm::Rules(_) => self.clone(),
        }
    }

    /// The budget, if this is one.
    pub(crate) fn budget(&self) -> Option<&FilterBudget> {
        match &self.choice {
            PolicyForm::Budget(budget) => Some(budget),
            PolicyForm::Rules(_) => None,
        }
    }
}

impl Default for FilterPolicy {
    /// `L0=paired:16,L1-=paired:12`.
    fn default() -> Self {
        "L0=paired:16,L1-=paired:12".parse().expect("the default policy is well formed")
    }
}

impl From<FilterSpec> for FilterPolicy {
    fn from(spec: FilterSpec) -> Self {
        Self::uniform(spec)
    }
}

const EXAMPLE: &str =
    "for example paired:23.4, or L0=paired:20,L1-3=blocked:12.5,last=none, or budget=10/key";

impl FromStr for FilterPolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let fault = |what: String| {
            Error::option(format!("the filter policy \"{text}\" is not usable: {what} ({EXAMPLE})"))
        };
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(fault("an entry between commas is empty".into()));
        }
        let (of_ranges, parts): (Vec<&str>, Vec<&str>) =
            parts.into_iter().partition(|part| range_levels(part).is_some());
        let ranges = of_ranges.into_iter().map(parse_range_rule).collect::<Result<_, _>>();
        let ranges = ranges.map_err(fault)?;
        let is_of_budget = |part: &&str| {
            let name = part.split('=').next().unwrap_or_default().trim();
            ["budget", "kinds", "misses"].contains(&name)
        };
        if parts.iter().any(is_of_budget) {
            let budget = FilterBudget::parse(&parts).map_err(fault)?;
            return Ok(Self { choice: PolicyForm::Budget(budget), ranges });
        }
        let rules: Result<Vec<_>, _> = parts.into_iter().map(parse_rules).collect();
        Ok(Self { choice: PolicyForm::Rules(rules.map_err(fault)?.concat()), ranges })
    }
}

/// The levels and the filter of an entry for ranges, `ranges=...` or `ranges.LEVELS=...`; `None`
/// for another entry.
fn range_levels(part: &str) -> Option<(Option<&str>, &str)> {
    let (name, spec) = part.strip_prefix("ranges")?.split_once('=')?;
    match name.trim() {
        "" => Some((None, spec.trim())),
        levels => Some((Some(levels.strip_prefix('.')?), spec.trim())),
    }
}

fn parse_range_rule(part: &str) -> Result<RangeRule, String> {
    let (levels, spec) = range_levels(part).unwrap_or((None, part));
    let levels = levels.map_or(Ok(Levels::All), parse_levels)?;
    let spec = spec.parse::<RangeSpec>().map_err(|error| error.to_string())?;
    Ok(RangeRule { levels, spec })
}

/// Parses one entry: a rule, a preset, or RocksDB's ribbon with its first level.
fn parse_rules(part: &str) -> Result<Vec<LevelRule>, String> {
    if let Some(rules) = presets::rules_of(part)? {
        return rules.split(',').map(parse_rule).collect();
    }
    match ribbon_from_level(part)? {
        Some(rules) => Ok(rules),
        None => Ok(vec![parse_rule(part)?]),
    }
}

/// Parses RocksDB's `ribbonfilter:BITS:LEVEL`: Bloom filters above that level, ribbons from it on.
/// 0 is all levels except flushes, which here are all of level 0; -1 is no level, and the largest
/// number is all of them.
fn ribbon_from_level(part: &str) -> Result<Option<Vec<LevelRule>>, String> {
    let words: Vec<&str> = part.split(':').collect();
    let ["ribbonfilter" | "rocksdb.RibbonFilter", bits, level] = words[..] else { return Ok(None) };
    let wrong = || {
        format!(
            "\"{level}\" in \"{part}\" is no level: write -1 for ribbons on all, or the first with one"
        )
    };
    let level: i32 = level.parse().map_err(|_| wrong())?;
    let spec = |text: String| text.parse::<FilterSpec>().map_err(|error| error.to_string());
    let (bloom, ribbon) =
        (spec(format!("bloomfilter:{bits}"))?, spec(format!("ribbonfilter:{bits}"))?);
    let above = match level {
        -1 => return Ok(Some(vec![LevelRule { levels: Levels::All, spec: ribbon }])),
        0 | 1 => 0,
        2.. => u8::try_from(level - 1).unwrap_or(u8::MAX).min(crate::levels::LEVELS as u8 - 1),
        _ => return Err(wrong()),
    };
    let is_all = usize::from(above) + 1 >= crate::levels::LEVELS;
    Ok(Some(match is_all {
        true => vec![LevelRule { levels: Levels::All, spec: bloom }],
        false => vec![
            LevelRule { levels: Levels::Range { from: 0, to: Some(above) }, spec: bloom },
            LevelRule { levels: Levels::Range { from: above + 1, to: None }, spec: ribbon },
        ],
    }))
}

fn parse_rule(part: &str) -> Result<LevelRule, String> {
    // `fpr=` belongs to a spec, so only the text before the first ':' can hold a level's '='.
    let level_end = part.find(':').unwrap_or(part.len());
    let (levels, spec) = match part[..level_end].find('=') {
        Some(at) => (parse_levels(&part[..at])?, &part[at + 1..]),
        None => (Levels::All, part),
    };
    let spec = spec.trim().parse::<FilterSpec>().map_err(|error| error.to_string())?;
    Ok(LevelRule { levels, spec })
}

/// Parses `L0`, `L1-3`, `L4-` or `last`.
pub(crate) fn parse_levels(text: &str) -> Result<Levels, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("last") {
        return Ok(Levels::Last);
    }
    let wrong = || format!("\"{text}\" names no level: write L0, L1-3, L4- or last");
    let number = |digits: &str| {
        let level: u8 = digits.trim().parse().map_err(|_| wrong())?;
        let deepest = crate::levels::LEVELS as u8 - 1;
        if level > deepest {
            return Err(format!("level {level} does not exist: the deepest is L{deepest}"));
        }
        Ok(level)
    };
    let digits = text.strip_prefix(['L', 'l']).ok_or_else(wrong)?;
    match digits.split_once('-') {
        None => number(digits).map(|level| Levels::Range { from: level, to: Some(level) }),
        Some((from, "")) => Ok(Levels::Range { from: number(from)?, to: None }),
        Some((from, to)) => {
            let (from, to) = (number(from)?, number(to)?);
            if from > to {
                return Err(format!("\"{text}\" counts backwards"));
            }
            Ok(Levels::Range { from, to: Some(to) })
        }
    }
}

impl fmt::Display for FilterPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: &[LevelRule] = match &self.choice {
            PolicyForm::Budget(budget) => {
                budget.fmt(f)?;
                &[]
            }
            PolicyForm::Rules(rules) => rules,
        };
        for (i, LevelRule { levels, spec }) in rules.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{levels}{spec}")?;
        }
        for (i, RangeRule { levels, spec }) in self.ranges.iter().enumerate() {
            let is_first =
                i == 0 && matches!(&self.choice, PolicyForm::Rules(rules) if rules.is_empty());
            let (comma, dot) =
                (if is_first { "" } else { "," }, if *levels == Levels::All { "=" } else { "." });
            write!(f, "{comma}ranges{dot}{levels}{spec}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_matching_rule_wins() {
        let policy: FilterPolicy =
            "L0=paired:20,L1-3=blocked:12.5,L4-=standard:10,last=none".parse().unwrap();
        let spec = |level, last| policy.for_level(level, last).to_string();
        assert_eq!(spec(0, false), "paired:20");
        assert_eq!(spec(0, true), "paired:20", "L0 is never the last level");
        assert_eq!(spec(1, false), "blocked:12.5");
        assert_eq!(spec(3, false), "blocked:12.5");
        assert_eq!(spec(4, false), "standard:10");
        assert_eq!(spec(1, true), "none");
        let partial: FilterPolicy = "L0=paired:20".parse().unwrap();
        assert_eq!(partial.for_level(1, false), FilterSpec::NONE);
    }

    /// Regression: RocksDB's option strings were refused.
    #[test]
    fn rocksdb_s_strings_are_understood() {
        for (text, means) in [
            ("bloomfilter:10:false", "blocked:10"),
            ("rocksdb.BloomFilter:10:false", "blocked:10"),
            ("rocksdb.RibbonFilter:10", "ribbon:fpr=0.00966"),
            ("ribbonfilter:10:-1", "ribbon:fpr=0.00966"),
            ("ribbonfilter:10:0", "L0=blocked:10,L1-=ribbon:fpr=0.00966"),
            ("ribbonfilter:10:1", "L0=blocked:10,L1-=ribbon:fpr=0.00966"),
            ("ribbonfilter:10:3", "L0-2=blocked:10,L3-=ribbon:fpr=0.00966"),
            ("ribbonfilter:10:2147483647", "blocked:10"),
            (
                "L0=bloomfilter:10:false,L1-=ribbonfilter:10:-1",
                "L0=blocked:10,L1-=ribbon:fpr=0.00966",
            ),
        ] {
            let policy: FilterPolicy = text.parse().unwrap();
            assert_eq!(policy, means.parse().unwrap(), "{text}");
        }
        for (text, says) in [
            ("bloomfilter:10:true", "block-based"),
            ("ribbonfilter:10:-2", "is no level"),
            ("ribbonfilter:10:x", "is no level"),
            ("L1=ribbonfilter:10:2", "one filter has no levels"),
        ] {
            let error = text.parse::<FilterPolicy>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn text_and_policy_round_trip() {
        for text in [
            "paired:23.4",
            "none",
            "L0=paired:16,L1-=paired:12",
            "L0=paired:20,L1-3=blocked:12.5,L4-=standard:10,last=none",
            "L0=paired:fpr=0.00001,blocked:10",
            "budget=10/key",
            "budget=64MiB,kinds=paired|blocked,misses=0.9",
            "budget=0,kinds=ribbon",
            "misses=0, budget=2.5/key ,kinds=standard|paired|standard",
            "budget=1G,L0=8..24,last=..8,L1-3=4..",
            "paired:12,ranges=infix:6",
            "ranges=infix:6.5",
            "budget=10/key,ranges.L1-3=infix:8,ranges.last=none",
            "ranges.L0=none,L0=paired:16,ranges=infix:6,L1-=paired:12",
        ] {
            let policy: FilterPolicy = text.parse().unwrap();
            assert_eq!(policy.to_string().parse::<FilterPolicy>().unwrap(), policy, "{text}");
        }
    }

    #[test]
    fn a_budget_is_printed_in_one_order() {
        for (text, printed) in [
            ("kinds=paired,budget=10/key", "budget=10/key"),
            (
                "last=..8,misses=0.25,kinds=blocked,budget=64M",
                "budget=64MiB,kinds=blocked,misses=0.25,last=0..8",
            ),
            ("budget=1000,L2-=4..", "budget=1000,L2-=4..40"),
        ] {
            let policy: FilterPolicy = text.parse().unwrap();
            assert_eq!(policy.to_string(), printed);
            assert_eq!(policy.for_level(0, false), FilterSpec::NONE);
        }
        let policy: FilterPolicy = "budget=12/key".parse().unwrap();
        assert_eq!(policy.budget_bytes(1000), Some(1500));
        assert_eq!(FilterPolicy::default().budget_bytes(1000), None);
    }

    #[test]
    fn bounds_hold_for_their_levels() {
        let policy: FilterPolicy = "budget=10/key,L0=8..24,L1-=4..30,last=..9".parse().unwrap();
        let rules = policy.budget().unwrap().rules(3, true);
        let bounds = |level| (rules.of(level).floor(), rules.of(level).cap());
        assert_eq!([bounds(0), bounds(1), bounds(2)], [(8.0, 24.0), (4.0, 30.0), (4.0, 30.0)]);
        assert_eq!(bounds(3), (0.0, 9.0));
        let rules = policy.budget().unwrap().rules(2, false);
        assert_eq!(rules.of(2).cap(), 0.0, "the last level is to have no filters");
        let rules = policy.budget().unwrap().rules(0, false);
        assert_eq!(rules.of(0).cap(), 24.0, "level 0 is never the last");
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, part) in [
            ("", "empty"),
            ("L0=paired:20,,last=none", "empty"),
            ("L9=paired:10", "the deepest is L6"),
            ("L3-1=paired:10", "backwards"),
            ("level1=paired:10", "names no level"),
            ("L0=paired", "paired:"),
            ("budget=ten", "as in 10/key"),
            ("budget=65/key", "0 to 64 bits"),
            ("budget=10/key,budget=9/key", "twice"),
            ("budget=10/key,,misses=1", "empty"),
            ("budget=10/key,misses=90", "fraction of lookups"),
            ("budget=10/key,misses=nan", "fraction of lookups"),
            ("budget=10/key,kinds=bloom", "write paired"),
            ("budget=10/key,kinds=none", "write paired"),
            ("budget=10/key,kinds=", "write paired"),
            ("kinds=paired", "no budget"),
            ("misses=0.5,paired:10", "does not go with a budget"),
            ("budget=10/key,paired:10", "does not go with a budget"),
            ("budget=10/key,L0=paired:10", "does not go with a budget"),
            ("budget=10/key,L0=24..8", "above the cap"),
            ("budget=10/key,L0=0.1..", "0.5 to 64"),
            ("budget=10/key,L0=x..", "no number of bits"),
            ("budget=10/key,L9=8..", "the deepest is L6"),
        ] {
            let error = text.parse::<FilterPolicy>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(error.contains("for example"), "{text}: {error}");
        }
    }
}
