//! The reason for a level's filter, in a sentence.

use std::fmt;

use trommel_filter::{FilterKind, FilterSpec};

use super::seen::{Seen, SeenLevel};
use super::{AdviceVerdict, FilterAdvice, LOOKUPS_FOR_ADVICE, LevelAdvice};

/// Below this many wasted reads per lookup, a level counts as one without any.
const NEVER: f64 = 1e-5;
/// Reads per lookup that are not noticeable: one in a billion lookups.
const UNSEEN: f64 = 1e-9;
/// Differences in bits that are not worth mentioning.
const ALIKE: f64 = 0.5;

impl FilterAdvice {
    /// The outcome, in a few sentences.
    pub fn summary(&self) -> String {
        match self.verdict {
            AdviceVerdict::NoTables => {
                "no advice: the store has no tables, so there is nothing to filter yet".to_owned()
            }
            AdviceVerdict::TooFewLookups => format!(
                "no advice: {} lookups came to tables since the counters were reset, and it takes \
                 {LOOKUPS_FOR_ADVICE} to know where they go, and what a byte of filters is worth",
                self.lookups
            ),
            AdviceVerdict::Keep => format!(
                "keep the filters: others of {} would save less than a twentieth; {}",
                amount(self.budget_bytes),
                self.change()
            ),
            AdviceVerdict::Change => {
                let policy = self.policy.as_ref().map(ToString::to_string).unwrap_or_default();
                let is_budget =
                    self.policy.as_ref().is_some_and(|policy| policy.budget().is_some());
                let do_it =
                    if is_budget { "rebuild the filters, by" } else { "change the filters to" };
                format!("{do_it} {policy}: {}", self.change())
            }
        }
    }

    /// What changes, and for which share of misses.
    fn change(&self) -> String {
        let (now, advised) = (&self.now, &self.advised);
        let misses = 100.0 * self.misses;
        let of = if self.are_misses_given { "as given" } else { "as measured" };
        let are_alike = self.levels.iter().all(|level| level.read_cost == 1.0);
        let cost = match are_alike {
            true => String::new(),
            false => format!(
                ", which cost {:.3e} now, {:.3e} as advised, by what a read costs on each level",
                now.wasted_cost, advised.wasted_cost
            ),
        };
        format!(
            "a lookup ({misses:.1}% find nothing, {of}) wastes {:.3e} reads now, {:.3e} as advised{cost}; \
             filters take {} now, {} as advised; querying them touches {:.2} cache lines now, {:.2} as \
             advised ({} lookups seen)",
            now.wasted_reads,
            advised.wasted_reads,
            amount(now.bytes),
            amount(advised.bytes),
            now.lines,
            advised.lines,
            self.lookups
        )
    }

    /// Sets the reason of each level.
    pub(super) fn give_reasons(&mut self, seen: &Seen) {
        let keys: u64 = self.levels.iter().map(|level| level.keys).sum();
        let weight = |level: &LevelAdvice| level.in_vain * level.read_cost;
        let in_vain: f64 = self.levels.iter().map(weight).sum();
        let are_alike = self.levels.iter().all(|level| level.read_cost == 1.0);
        let deepest = self.levels.last().map_or(0, |level| level.level);
        let keeps = self.verdict == AdviceVerdict::Keep;
        for (level, seen_level) in self.levels.iter_mut().zip(&seen.levels) {
            let share = Share {
                keys: level.keys as f64 / keys.max(1) as f64,
                in_vain: if in_vain > 0.0 { weight(level) / in_vain } else { 0.0 },
                are_alike,
            };
            let is_last = level.level == deepest;
            level.reason = match keeps {
                true => format!("keep {}: it has {share}", level.filter_now),
                false => reason(level, seen_level.bits(), &share, is_last),
            };
            level.note_exceptions(seen_level, is_last && level.level > 0 && seen.spares_last);
        }
    }
}

impl LevelAdvice {
    /// Adds notes on cases that the advice does not cover.
    fn note_exceptions(&mut self, seen: &SeenLevel, is_spared: bool) {
        if seen.has_foreign() {
            self.reason += "; filters of your own making are here, of which bytes and rate are what \
                            they say: the advice is for the store's own";
        }
        if is_spared && self.filter != FilterSpec::NONE {
            self.reason += "; the option filters_on_last_level is off, so set it too, or nothing \
                            changes here";
        }
    }
}

/// A level's share of the total.
struct Share {
    keys: f64,
    /// Share of the cost of wasted reads.
    in_vain: f64,
    /// Whether wasted reads cost the same everywhere.
    are_alike: bool,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, in_vain) = (100.0 * self.keys, 100.0 * self.in_vain);
        let of = if self.are_alike { "the wasted reads" } else { "what wasted reads cost" };
        write!(f, "{keys:.1}% of the keys and {in_vain:.1}% of {of}")
    }
}

fn reason(level: &LevelAdvice, bits: f64, share: &Share, is_last: bool) -> String {
    if level.filter == FilterSpec::NONE {
        return unfiltered(level, share, is_last);
    }
    let more = level.filter.bits_per_key() - bits;
    let bytes = level.advised.bytes.abs_diff(level.now.bytes);
    if more.abs() < ALIKE || bytes == 0 {
        return format!("about as it is: it has {share}");
    }
    let (bytes, effect) =
        (amount(bytes), effect(level.now.wasted_reads - level.advised.wasted_reads));
    if level.advised.bytes > level.now.bytes {
        format!(
            "more bits: it has {share}, so a byte saves more reads here than elsewhere; {bytes} more \
             {effect}"
        )
    } else {
        format!(
            "fewer bits: it has {share}, so a byte saves fewer reads here than elsewhere, or next to \
             none; {bytes} less {effect}"
        )
    }
}

/// The effect of other filters, which save `saved` wasted reads; negative if they cost some.
fn effect(saved: f64) -> String {
    if saved.abs() < UNSEEN {
        return "make no difference that could be seen".to_owned();
    }
    let verb = if saved > 0.0 { "save" } else { "cost" };
    format!("{verb} {:.2e} reads a lookup", saved.abs())
}

/// Why there should be no filter, and when that is wrong.
fn unfiltered(level: &LevelAdvice, share: &Share, is_last: bool) -> String {
    let why = if level.in_vain < NEVER {
        let found = if level.hits > 0.0 {
            "every lookup that came here found its key"
        } else {
            "no lookup came here"
        };
        format!("{found}, so a filter saves nothing")
    } else {
        format!("it has {share}, and the bytes of its filter save more on other levels")
    };
    let wrong = if is_last {
        format!(
            "wrong for lookups of missing keys: each comes to the last level too, and without a \
             filter costs about {:.2} reads there",
            level.reach.min(level.tables as f64)
        )
    } else {
        "wrong as soon as missing keys, or keys of deeper levels, are looked up".to_owned()
    };
    let no =
        if level.filter_now == FilterKind::None.name() { "still no filter" } else { "no filter" };
    format!("{no}: {why}; {wrong}")
}

/// Formats a number of bytes. Less than a KiB is not rounded to KiB, or it would read as nothing.
pub(super) fn amount(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        _ => format!("{:.1} KiB", bytes as f64 / 1024.0),
    }
}
