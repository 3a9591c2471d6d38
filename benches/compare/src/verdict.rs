//! Targets, against the measured figures.

use trommel_harness::units::grouped;

use crate::figures::{Figure, Results};
use crate::report::number;

/// The prefix of Trommel's set-ups.
pub(crate) const OURS: &str = "trommel";

/// A target, and whether it was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The measured figure, and the target.
    pub(crate) text: String,
    pub(crate) is_met: bool,
    /// What bounds it, and what was tried; empty if unknown.
    bound: &'static str,
    /// Number of rounds, if known.
    rounds: Option<usize>,
}

impl Verdict {
    /// A target of at most `limit`.
    pub(crate) fn at_most(what: &str, measured: f64, limit: f64) -> Self {
        let text = format!("{what}: {}, target at most {}", number(measured), number(limit));
        Self { text, is_met: measured <= limit, bound: "", rounds: None }
    }

    /// A target of at least `limit`.
    pub(crate) fn at_least(what: &str, measured: f64, limit: f64) -> Self {
        let text = format!("{what}: {}, target at least {}", number(measured), number(limit));
        Self { text, is_met: measured >= limit, bound: "", rounds: None }
    }

    /// Adds what bounds the figure, for a missed target.
    pub(crate) fn bounded_by(self, bound: &'static str) -> Self {
        Self { bound, ..self }
    }

    /// Sets the number of rounds, if it is not known yet.
    pub(crate) fn of_rounds(self, rounds: usize) -> Self {
        Self { rounds: self.rounds.or(Some(rounds)), ..self }
    }

    /// Adds the number of keys, if several were measured.
    pub(crate) fn of_keys(self, num: u64) -> Self {
        Self { text: format!("{} keys, {}", grouped(num), self.text), ..self }
    }

    /// Adds a remark on the measurement.
    pub(crate) fn noting(self, remark: &str) -> Self {
        Self { text: self.text + remark, ..self }
    }

    /// Whether there are enough rounds for a reliable median.
    pub(crate) fn is_of_enough_rounds(&self) -> bool {
        self.rounds.is_some_and(|rounds| rounds >= ENOUGH_ROUNDS)
    }

    /// A line of a list, for a page.
    pub(crate) fn line(&self) -> String {
        let text = format!("{}{}", self.text, self.rounds.map_or_else(String::new, few));
        match (self.is_met, self.bound) {
            (true, _) => format!("{text}: met"),
            (false, "") => format!("{text}: **not met**"),
            (false, bound) => format!("{text}: **not met**; {bound}"),
        }
    }
}

/// The best set-up of Trommel against the best of the rivals whose names begin with one of
/// `rivals`; the target is at most their time divided by `times`. None if either was not measured.
pub(crate) fn beside(
    results: &Results,
    num: u64,
    what: &str,
    figure: &Figure,
    rivals: &[&str],
    times: f64,
) -> Option<Verdict> {
    let best = |starts: &[&str]| {
        let names = results.names(num).into_iter();
        names
            .filter(|name| starts.iter().any(|start| name.starts_with(start)))
            .filter_map(|name| Some((name, results.figure(num, name, figure)?)))
            .min_by(|a, b| a.1.median.total_cmp(&b.1.median))
    };
    let ((name, ours), (rival, theirs)) = (best(&[OURS])?, best(rivals)?);
    let rounds = Some(ours.rounds.min(theirs.rounds));
    let ratio = theirs.median / ours.median.max(f64::MIN_POSITIVE);
    let by_round = round_by_round(&results.ratios(num, (name, rival), figure), times);
    let (ours, theirs) = (number(ours.median), number(theirs.median));
    let text = format!(
        "{what}: {name} {ours}, {rival} {theirs}, which is {} times as much{by_round}, target at least {}",
        number(ratio),
        number(times),
    );
    Some(Verdict { text, is_met: ratio >= times, bound: "", rounds })
}

/// The least and greatest of several rounds' ratios, and the number of those that reach the target.
fn round_by_round(ratios: &[f64], times: f64) -> String {
    if ratios.len() < 2 {
        return String::new();
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = ratios.iter().copied().fold(0.0, f64::max);
    let reached = ratios.iter().filter(|ratio| **ratio >= times).count();
    let (least, greatest, rounds) = (number(least), number(greatest), ratios.len());
    format!(" ({least} to {greatest} by round, {reached} of {rounds} reach it)")
}

/// Number of rounds with a reliable median.
const ENOUGH_ROUNDS: usize = 5;

/// A remark if there are few rounds.
fn few(rounds: usize) -> String {
    match rounds {
        ENOUGH_ROUNDS.. => String::new(),
        1 => " (of one round)".to_owned(),
        few => format!(" (of {few} rounds)"),
    }
}

/// All `verdicts`, missed ones first.
pub(crate) fn shortfalls_first(mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
    verdicts.sort_by_key(|verdict| verdict.is_met);
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_are_reported() {
        assert_eq!(few(1), " (of one round)");
        assert_eq!(few(4), " (of 4 rounds)");
        assert_eq!(few(5), "");
        let of = |rounds| Verdict::at_most("syncs", 0.5, 0.5).of_rounds(rounds);
        assert_eq!(of(1).line(), "syncs: 0.500, target at most 0.500 (of one round): met");
        assert_eq!(of(2).of_rounds(5), of(2), "what it is of by itself counts");
    }

    #[test]
    fn rounds_are_reported_with_their_median() {
        assert_eq!(round_by_round(&[3.0], 2.0), "");
        let text = round_by_round(&[3.0, 2.55, 3.5], 3.0);
        assert_eq!(text, " (2.55 to 3.50 by round, 2 of 3 reach it)");
    }

    #[test]
    fn a_target_is_met_at_its_limit_and_shortfalls_come_first() {
        let met = Verdict::at_most("syncs", 0.5, 0.5);
        let short = Verdict::at_least("keys", 3.9, 4.0);
        assert!(met.is_met && !short.is_met);
        assert_eq!(met.line(), "syncs: 0.500, target at most 0.500: met");
        let bounded = short.clone().bounded_by("the disk").line();
        assert!(bounded.ends_with("**not met**; the disk"), "{bounded}");
        assert_eq!(met.clone().bounded_by("the disk").line(), met.line());
        assert_eq!(
            met.clone().of_keys(5000).line(),
            "5,000 keys, syncs: 0.500, target at most 0.500: met"
        );
        let noted = met.clone().noting(" (a remark)").line();
        assert_eq!(noted, "syncs: 0.500, target at most 0.500 (a remark): met");
        let sorted = shortfalls_first(vec![met.clone(), short.clone()]);
        assert_eq!(sorted, [short.clone(), met]);
        assert!(short.line().ends_with("target at least 4.00: **not met**"));
    }
}
