//! The parameters of a budget (how much, for what, within what bounds) and their text form.
//!
//! `budget=10/key,kinds=paired|blocked,misses=0.9,L0=8..24,last=..8`, in any order: 10 bits per key
//! on average, in filters of two kinds, if nine lookups of ten find nothing, with 8 to 24 bits per
//! key in level 0 and at most 8 in the last.

use std::fmt;

use trommel_filter::FilterKind;
use trommel_tuning::{Budget, Rule, Rules, TuningError};

use super::{Levels, parse_levels};
use crate::levels::LEVELS;

/// A memory budget for filters, and how it is to be spent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FilterBudget {
    budget: Budget,
    /// The choices on any level.
    rule: Rule,
    /// The share of lookups that find nothing; measured if not given.
    misses: Option<f64>,
    /// Bounds for levels; the last that matches wins.
    bounds: Vec<LevelBounds>,
}

#[derive(Debug, Clone, PartialEq)]
struct LevelBounds {
    levels: Levels,
    rule: Rule,
}

impl FilterBudget {
    /// A budget with the defaults in everything else.
    pub(super) fn new(budget: Budget) -> Self {
        Self { budget, rule: Rule::default(), misses: None, bounds: Vec::new() }
    }

    /// The amount of memory.
    pub(crate) fn budget(&self) -> Budget {
        self.budget
    }

    /// The same with another amount of memory.
    pub(crate) fn of(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// The share of lookups that find nothing, if it is given.
    pub(crate) fn misses(&self) -> Option<f64> {
        self.misses
    }

    /// The kinds to choose from.
    pub(crate) fn kinds(&self) -> &[FilterKind] {
        self.rule.kinds()
    }

    /// The rules for a tree whose last level has this number, 0 if there is only level 0; without
    /// `filters_last` that level gets no filters.
    pub(crate) fn rules(&self, last: usize, filters_last: bool) -> Rules {
        let mut rules = Rules::everywhere(self.rule.clone());
        for level in 0..LEVELS {
            let is_last = level > 0 && level == last;
            if is_last && !filters_last {
                let none = self.rule.clone().with_bits(0.0, 0.0);
                rules = rules.with_level(level, none.unwrap_or_else(|_| self.rule.clone()));
                continue;
            }
            let bounds = self.bounds.iter().rev();
            let named = { bounds }.find(|bounds| bounds.levels.match_level(level, is_last));
            if let Some(bounds) = named {
                rules = rules.with_level(level, bounds.rule.clone());
            }
        }
        rules
    }

    /// Parses the entries of a policy that has one beginning with `budget=`; the error text
    /// describes what is wrong.
    pub(crate) fn parse(parts: &[&str]) -> Result<Self, String> {
        let (mut budget, mut rule, mut misses) = (None, None, None);
        let mut bounds = Vec::new();
        for part in parts {
            let Some((name, value)) = part.split_once('=') else { return Err(mixed(part)) };
            let value = value.trim();
            let is_news = match name.trim() {
                "budget" => budget
                    .replace(value.parse().map_err(|error: TuningError| error.to_string())?)
                    .is_none(),
                "kinds" => rule.replace(parse_kinds(value)?).is_none(),
                "misses" => misses.replace(parse_misses(value)?).is_none(),
                levels => {
                    let (floor, cap) = value.split_once("..").ok_or_else(|| mixed(part))?;
                    bounds.push((parse_levels(levels)?, floor, cap));
                    true
                }
            };
            if !is_news {
                return Err(format!("{} is given twice", name.trim()));
            }
        }
        let budget: Budget = budget.ok_or("it has no budget, as in budget=10/key")?;
        let rule = rule.unwrap_or_default();
        let bounds = bounds.into_iter().map(|(levels, floor, cap)| {
            let (floor, cap) = (parse_bits(floor, 0.0)?, parse_bits(cap, rule.cap())?);
            let rule = rule
                .clone()
                .with_bits(floor, cap)
                .map_err(|error: TuningError| error.to_string())?;
            Ok(LevelBounds { levels, rule })
        });
        let bounds = bounds.collect::<Result<_, String>>()?;
        Ok(Self { budget, rule, misses, bounds })
    }
}

fn mixed(part: &str) -> String {
    format!(
        "\"{part}\" does not go with a budget, which chooses the filters itself: beside budget= it \
         takes kinds=paired|blocked, misses=0.9, and bounds of a level's bits, as in L0=8..24"
    )
}

fn parse_kinds(text: &str) -> Result<Rule, String> {
    let mut kinds: Vec<FilterKind> = Vec::new();
    for name in text.split('|').map(str::trim) {
        let kind = FilterKind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| {
            format!(
                "\"{name}\" is no kind that a budget can be spent on: write paired, blocked, ribbon, \
                 fuse or standard, several with | between them"
            )
        })?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    Rule::new(&kinds).map_err(|error: TuningError| error.to_string())
}

fn parse_misses(text: &str) -> Result<f64, String> {
    let misses = text.parse().ok().filter(|misses| (0.0..=1.0).contains(misses));
    misses.ok_or_else(|| {
        format!(
            "misses={text}: it is the fraction of lookups that find nothing, 0 to 1, as in misses=0.9"
        )
    })
}

/// Parses the bits of a bound; `default` if it is empty.
fn parse_bits(text: &str, default: f64) -> Result<f64, String> {
    if text.trim().is_empty() {
        return Ok(default);
    }
    let bits = text.trim().parse().ok().filter(|bits: &f64| bits.is_finite());
    bits.ok_or_else(|| format!("\"{text}\" is no number of bits per key: write L0=8..24"))
}

impl fmt::Display for FilterBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "budget={}", self.budget)?;
        if self.rule != Rule::default() {
            let names: Vec<&str> = self.rule.kinds().iter().map(|kind| kind.name()).collect();
            write!(f, ",kinds={}", names.join("|"))?;
        }
        if let Some(misses) = self.misses {
            write!(f, ",misses={misses}")?;
        }
        for LevelBounds { levels, rule } in &self.bounds {
            write!(f, ",{levels}{}..{}", rule.floor(), rule.cap())?;
        }
        Ok(())
    }
}
