//! Why a level should have its filter, in a sentence.

use std::fmt;

use trommel_filter::{FilterKind, FilterSpec};

use super::seen::{Seen, SeenLevel};
use super::{AdviceVerdict, FilterAdvice, LOOKUPS_FOR_ADVICE, LevelAdvice};

/// Reads of a lookup below which a level is as good as never read in vain.
const NEVER: f64 = 1e-5;
/// Bits that are not worth a word.
const ALIKE: f64 = 0.5;

impl FilterAdvice {
    /// What it comes to, in a few sentences.
    pub fn summary(&self) -> String {
        match self.verdict {
            AdviceVerdict::NoTables => {
                "no advice: the store has no tables, so there is nothing to filter yet".to_owned()
            }
            AdviceVerdict::TooFewLookups => format!(
                "no advice: {} lookups came to tables since the counters were reset, and it takes \
                 {LOOKUPS_FOR_ADVICE} to know where they go",
                self.lookups
            ),
            AdviceVerdict::Keep => format!(
                "keep the filters: others of {} would save less than a twentieth; {}",
                kib(self.budget_bytes),
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

    /// What changes, for how many misses.
    fn change(&self) -> String {
        let (now, advised) = (&self.now, &self.advised);
        let misses = 100.0 * self.misses;
        let of = if self.measured_misses == Some(self.misses) { "as measured" } else { "as given" };
        format!(
            "a lookup ({misses:.1}% find nothing, {of}) wastes {:.3e} reads now, {:.3e} as advised; \
             filters take {} now, {} as advised; asking them touches {:.2} cache lines now, {:.2} as \
             advised ({} lookups seen)",
            now.wasted_reads,
            advised.wasted_reads,
            kib(now.bytes),
            kib(advised.bytes),
            now.lines,
            advised.lines,
            self.lookups
        )
    }

    /// Gives each level its reason.
    pub(super) fn give_reasons(&mut self, seen: &Seen) {
        let keys: u64 = self.levels.iter().map(|level| level.keys).sum();
        let in_vain: f64 = self.levels.iter().map(|level| level.in_vain).sum();
        let deepest = self.levels.last().map_or(0, |level| level.level);
        let keeps = self.verdict == AdviceVerdict::Keep;
        for (level, seen_level) in self.levels.iter_mut().zip(&seen.levels) {
            let share = Share {
                keys: level.keys as f64 / keys.max(1) as f64,
                in_vain: if in_vain > 0.0 { level.in_vain / in_vain } else { 0.0 },
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
    /// Says what the advice does not reach.
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

/// A level's part of all.
struct Share {
    keys: f64,
    in_vain: f64,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, in_vain) = (100.0 * self.keys, 100.0 * self.in_vain);
        write!(f, "{keys:.1}% of the keys and {in_vain:.1}% of the reads in vain")
    }
}

fn reason(level: &LevelAdvice, bits: f64, share: &Share, is_last: bool) -> String {
    if level.filter == FilterSpec::NONE {
        return unfiltered(level, share, is_last);
    }
    let more = level.filter.bits_per_key() - bits;
    if more.abs() < ALIKE {
        return format!("about as it is: it has {share}");
    }
    let saved = (level.now.wasted_reads - level.advised.wasted_reads).abs();
    let bytes = level.advised.bytes.abs_diff(level.now.bytes);
    if more > 0.0 {
        format!(
            "more bits: it has {share}, so a byte saves more reads here than elsewhere; {} more save \
             {saved:.2e} reads a lookup",
            kib(bytes)
        )
    } else {
        format!(
            "fewer bits: it has {share}, so a byte saves fewer reads here than elsewhere, or next to \
             none; {} less cost {saved:.2e} reads a lookup",
            kib(bytes)
        )
    }
}

/// Why there should be no filter, and for whom that is wrong.
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
            "wrong for whoever asks for missing keys: each comes to the last level too, and without a \
             filter costs about {:.2} reads there",
            level.reach.min(level.tables as f64)
        )
    } else {
        "wrong as soon as missing keys, or keys of deeper levels, are asked for".to_owned()
    };
    let no =
        if level.filter_now == FilterKind::None.name() { "still no filter" } else { "no filter" };
    format!("{no}: {why}; {wrong}")
}

fn kib(bytes: u64) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0)
}
