//! The choices allowed to the solver, level by level: kinds, floors, caps.

use trommel_filter::FilterKind;

use crate::error::{TuningError, within};

/// The filters that may be chosen for a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    kinds: Vec<FilterKind>,
    floor: f64,
    cap: f64,
}

/// A number of bits per key beyond which filters are never worth their bytes.
const CAP: f64 = 40.0;

impl Rule {
    /// Filters of these kinds, of up to 40 bits per key, or none.
    ///
    /// A ribbon wins whenever it is smaller for its rate, which is nearly always: time is not
    /// priced. Allow it only where its time is acceptable.
    ///
    /// # Errors
    /// There is no kind, or one that has no bits.
    pub fn new(kinds: &[FilterKind]) -> Result<Self, TuningError> {
        if kinds.is_empty() || kinds.contains(&FilterKind::None) {
            let message = "a rule needs kinds of filters to choose from, such as blocked or \
                           paired; for no filter at all set a cap of 0";
            return Err(TuningError::Rule(message.to_owned()));
        }
        Ok(Self { kinds: kinds.to_vec(), floor: 0.0, cap: CAP })
    }

    /// At least `floor` and at most `cap` bits per key. A floor of 0 allows having no filter; a cap
    /// of 0 allows nothing else.
    ///
    /// # Errors
    /// A bound is neither 0 nor from 0.5 to 64, or the floor is above the cap.
    pub fn with_bits(mut self, floor: f64, cap: f64) -> Result<Self, TuningError> {
        for bound in [floor, cap] {
            let least = if bound == 0.0 { 0.0 } else { 0.5 };
            within("a floor or cap of bits per key", bound, (least, 64.0), "0, or 0.5 to 64")?;
        }
        if floor > cap {
            let message = format!("the floor of {floor} bits per key is above the cap of {cap}");
            return Err(TuningError::Rule(message));
        }
        (self.floor, self.cap) = (floor, cap);
        Ok(self)
    }

    /// The kinds.
    #[must_use]
    pub fn kinds(&self) -> &[FilterKind] {
        &self.kinds
    }

    /// The fewest bits per key; 0 if having no filter is allowed.
    #[must_use]
    pub fn floor(&self) -> f64 {
        self.floor
    }

    /// The most bits per key.
    #[must_use]
    pub fn cap(&self) -> f64 {
        self.cap
    }
}

impl Default for Rule {
    /// Paired filters of up to 40 bits per key, or none.
    fn default() -> Self {
        Self { kinds: vec![FilterKind::Paired], floor: 0.0, cap: CAP }
    }
}

/// A rule for every level.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rules {
    everywhere: Rule,
    levels: Vec<(usize, Rule)>,
}

impl Rules {
    /// The same rule on all levels.
    #[must_use]
    pub fn everywhere(rule: Rule) -> Self {
        Self { everywhere: rule, levels: Vec::new() }
    }

    /// Sets another rule for `level`.
    #[must_use]
    pub fn with_level(mut self, level: usize, rule: Rule) -> Self {
        self.levels.push((level, rule));
        self
    }

    /// The rule of `level`: the last one set.
    #[must_use]
    pub fn of(&self, level: usize) -> &Rule {
        let named = self.levels.iter().rev().find(|(other, _)| *other == level);
        named.map_or(&self.everywhere, |(_, rule)| rule)
    }
}
