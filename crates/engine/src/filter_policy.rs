//! Which filter the tables of which level get. The only place that knows both levels and filters.
//!
//! Levels here, in reports and in table properties are counted from the top among levels that
//! hold data: L0, then L1 is the base level whatever dynamic sizing calls it. `last` is the
//! deepest level that holds data, and never L0.

use std::fmt;
use std::str::FromStr;

use trommel_filter::FilterSpec;

use crate::error::Error;

/// A rule for some levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    levels: Levels,
    spec: FilterSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Levels {
    All,
    Last,
    Range { from: u8, to: Option<u8> },
}

/// Filter specs per level; the last rule that matches a level wins.
///
/// ```
/// let policy: trommel::FilterPolicy = "L0=paired:20,L1-3=blocked:12.5,L4-=standard:10,last=none"
///     .parse()?;
/// assert_eq!(policy.for_level(2, false).to_string(), "blocked:12.5");
/// assert_eq!(policy.for_level(6, true).to_string(), "none");
/// let everywhere: trommel::FilterPolicy = "paired:23.4".parse()?;
/// assert_eq!(everywhere.for_level(3, true).to_string(), "paired:23.4");
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterPolicy {
    rules: Vec<Rule>,
}

impl FilterPolicy {
    /// The same filter on every level.
    pub fn uniform(spec: FilterSpec) -> Self {
        Self { rules: vec![Rule { levels: Levels::All, spec }] }
    }

    /// The filter of a table built for `level` (0, or 1 for the base level, and so on); `is_last`
    /// where no deeper level holds data. Level 0 is never the last.
    pub fn for_level(&self, level: usize, is_last: bool) -> FilterSpec {
        let matches = |rule: &&Rule| match rule.levels {
            Levels::All => true,
            Levels::Last => is_last && level > 0,
            Levels::Range { from, to } => {
                level >= usize::from(from) && to.is_none_or(|to| level <= usize::from(to))
            }
        };
        self.rules.iter().rev().find(matches).map_or(FilterSpec::NONE, |rule| rule.spec)
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
    "for example paired:23.4, or L0=paired:20,L1-3=blocked:12.5,L4-=standard:10,last=none";

impl FromStr for FilterPolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let fault = |what: String| {
            Error::option(format!("the filter policy \"{text}\" is not usable: {what} ({EXAMPLE})"))
        };
        let mut rules = Vec::new();
        for part in text.split(',').map(str::trim) {
            if part.is_empty() {
                return Err(fault("an entry between commas is empty".into()));
            }
            if part.starts_with("budget=") {
                return Err(fault("budgets are not solved by this version".into()));
            }
            rules.push(parse_rule(part).map_err(fault)?);
        }
        Ok(Self { rules })
    }
}

fn parse_rule(part: &str) -> Result<Rule, String> {
    // `fpr=` belongs to a spec, so only what stands before the first ':' can hold a level's '='.
    let level_end = part.find(':').unwrap_or(part.len());
    let (levels, spec) = match part[..level_end].find('=') {
        Some(at) => (parse_levels(&part[..at])?, &part[at + 1..]),
        None => (Levels::All, part),
    };
    let spec = spec.trim().parse::<FilterSpec>().map_err(|error| error.to_string())?;
    Ok(Rule { levels, spec })
}

fn parse_levels(text: &str) -> Result<Levels, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("last") {
        return Ok(Levels::Last);
    }
    let wrong = || format!("\"{text}\" names no level: write L0, L1-3, L4- or last");
    let number = |digits: &str| {
        let level: u8 = digits.trim().parse().map_err(|_| wrong())?;
        let deepest = crate::version::LEVELS as u8 - 1;
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
        for (i, rule) in self.rules.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match rule.levels {
                Levels::All => {}
                Levels::Last => f.write_str("last=")?,
                Levels::Range { from, to: None } => write!(f, "L{from}-=")?,
                Levels::Range { from, to: Some(to) } if from == to => write!(f, "L{from}=")?,
                Levels::Range { from, to: Some(to) } => write!(f, "L{from}-{to}=")?,
            }
            write!(f, "{}", rule.spec)?;
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

    #[test]
    fn text_and_policy_round_trip() {
        for text in [
            "paired:23.4",
            "none",
            "L0=paired:16,L1-=paired:12",
            "L0=paired:20,L1-3=blocked:12.5,L4-=standard:10,last=none",
            "L0=paired:fpr=0.00001,blocked:10",
        ] {
            let policy: FilterPolicy = text.parse().unwrap();
            assert_eq!(policy.to_string().parse::<FilterPolicy>().unwrap(), policy, "{text}");
        }
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
            ("budget=10/key", "budget"),
        ] {
            let error = text.parse::<FilterPolicy>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(error.contains("for example"), "{text}: {error}");
        }
    }
}
