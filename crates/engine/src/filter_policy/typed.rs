//! Policies made in code, without their text form.

use std::ops::{Bound, RangeBounds};

use trommel_filter::{FilterSpec, RangeSpec};
use trommel_tuning::Budget;

use super::{FilterBudget, FilterPolicy, LevelRule, Levels, PolicyForm, RangeRule};
use crate::levels::LEVELS;

impl FilterPolicy {
    /// The same policy, with this filter on the levels of a range: 0, or 1 for the first level
    /// below that holds data, and so on. The last filter given for a level applies. A budget is
    /// replaced, and other levels then have no filter.
    ///
    /// ```
    /// use trommel::{FilterKind, FilterPolicy, FilterSpec, Options};
    /// let policy = FilterPolicy::uniform(FilterSpec::new(FilterKind::Blocked, 10.0)?)
    ///     .on_levels(0..=0, FilterSpec::new(FilterKind::Paired, 20.0)?)
    ///     .on_levels(1..3, FilterSpec::with_fpr(FilterKind::Paired, 1e-3)?)
    ///     .on_last_level(FilterSpec::NONE);
    /// assert_eq!(policy, "blocked:10,L0=paired:20,L1-2=paired:fpr=1e-3,last=none".parse()?);
    /// let options = Options::default().filters(policy);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on_levels(self, levels: impl RangeBounds<usize>, spec: FilterSpec) -> Self {
        match levels_of(levels) {
            Some(levels) => self.with_rule(levels, spec),
            None => self,
        }
    }

    /// The same policy, with this range filter on the levels of a range, as
    /// [`FilterPolicy::on_levels`].
    ///
    /// ```
    /// use trommel::{FilterPolicy, RangeSpec};
    /// let policy = FilterPolicy::default().ranges_on_levels(1.., RangeSpec::new(6.0)?);
    /// assert_eq!(policy, "L0=paired:16,L1-=paired:12,ranges.L1-=infix:6".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn ranges_on_levels(mut self, levels: impl RangeBounds<usize>, spec: RangeSpec) -> Self {
        self.ranges.extend(levels_of(levels).map(|levels| RangeRule { levels, spec }));
        self
    }

    /// The same policy, with this filter on the deepest level that holds data, unless that is level
    /// 0. See [`FilterPolicy::on_levels`].
    ///
    /// ```
    /// use trommel::{FilterPolicy, FilterSpec};
    /// let policy = FilterPolicy::default().on_last_level(FilterSpec::NONE);
    /// assert_eq!(policy.for_level(3, true), FilterSpec::NONE);
    /// ```
    #[must_use]
    pub fn on_last_level(self, spec: FilterSpec) -> Self {
        self.with_rule(Levels::Last, spec)
    }

    /// A budget of this many bits, from 0 to 64, for each key of each table, divided among all
    /// tables so that the fewest reads are wasted: `budget=10/key` in code.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for another number.
    ///
    /// ```
    /// let policy = trommel::FilterPolicy::budget_per_key(10.0)?;
    /// assert_eq!(policy.budget_bytes(1_000_000), Some(1_250_000));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn budget_per_key(bits: f64) -> crate::Result<Self> {
        let budget = Budget::per_key(bits);
        budget.map(Self::of_budget).map_err(|error| crate::Error::option(error.to_string()))
    }

    /// A budget of this many bytes of memory for the filters of all tables: `budget=64MiB` in code.
    ///
    /// ```
    /// let policy = trommel::FilterPolicy::budget_of_bytes(64 << 20);
    /// assert_eq!(policy.budget_bytes(1_000_000), Some(64 << 20));
    /// ```
    pub fn budget_of_bytes(bytes: u64) -> Self {
        Self::of_budget(Budget::Bytes(bytes))
    }

    fn of_budget(budget: Budget) -> Self {
        Self::of(PolicyForm::Budget(FilterBudget::new(budget)))
    }

    fn with_rule(self, levels: Levels, spec: FilterSpec) -> Self {
        let mut rules = match self.choice {
            PolicyForm::Rules(rules) => rules,
            PolicyForm::Budget(_) => Vec::new(),
        };
        rules.push(LevelRule { levels, spec });
        Self { choice: PolicyForm::Rules(rules), ranges: self.ranges }
    }
}

/// The levels of a range of numbers; `None` if there are none.
fn levels_of(levels: impl RangeBounds<usize>) -> Option<Levels> {
    let deepest = LEVELS - 1;
    let from = match levels.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match levels.end_bound() {
        Bound::Included(to) => Some(*to),
        Bound::Excluded(0) => return None,
        Bound::Excluded(end) => Some(end - 1),
        Bound::Unbounded => None,
    };
    if from > to.unwrap_or(deepest).min(deepest) {
        return None;
    }
    let to = to.filter(|to| *to < deepest).map(|to| to as u8);
    Some(Levels::Range { from: from as u8, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy made in code equals the one parsed from its text.
    #[test]
    fn policies_in_code_are_those_of_their_text() {
        let spec = |text: &str| text.parse::<FilterSpec>().unwrap();
        let none = || FilterPolicy::uniform(FilterSpec::NONE);
        let deep = spec("paired:8");
        for (policy, text) in [
            (none().on_levels(.., deep), "none,L0-=paired:8"),
            (none().on_levels(2.., deep), "none,L2-=paired:8"),
            (none().on_levels(1..3, deep), "none,L1-2=paired:8"),
            (none().on_levels(1..=6, deep), "none,L1-=paired:8"),
            (none().on_levels(1..99, deep), "none,L1-=paired:8"),
            (none().on_levels((Bound::Excluded(0), Bound::Included(1)), deep), "none,L1=paired:8"),
            (none().on_levels(0..0, deep), "none"),
            (none().on_levels(7.., deep), "none"),
            (none().on_last_level(deep), "none,last=paired:8"),
            (FilterPolicy::budget_of_bytes(9000).on_levels(..1, deep), "L0=paired:8"),
            (FilterPolicy::budget_of_bytes(9000), "budget=9000"),
            (FilterPolicy::budget_per_key(7.5).unwrap(), "budget=7.5/key"),
        ] {
            assert_eq!(policy, text.parse().unwrap(), "{text}");
            assert_eq!(policy.to_string().parse::<FilterPolicy>().unwrap(), policy, "{text}");
        }
        assert!(FilterPolicy::budget_per_key(65.0).is_err());
        assert!(FilterPolicy::budget_per_key(f64::NAN).is_err());
    }
}
