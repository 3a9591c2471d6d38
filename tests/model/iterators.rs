//! Iterators and cursors of the store, each moved together with its model.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::rc::Rc;

use trommel::{Db, DbCursor, Error, Range, Slice, Snapshot};

use crate::keys::{Bytes, KeyBounds, KeySpace, is_empty, show};
use crate::rng::Rng;

pub(crate) type Model = BTreeMap<Bytes, Bytes>;
/// An error as text.
pub(crate) type Check<T = ()> = Result<T, String>;

/// The live store, or a snapshot.
#[derive(Clone, Copy)]
pub(crate) enum Reader<'a> {
    Live(&'a Db),
    Past(&'a Snapshot),
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Reader<'_> {
            $(pub(crate) fn $name(self, $($argument: $type),*) -> $result {
                match self {
                    Self::Live(db) => db.$name($($argument),*),
                    Self::Past(snapshot) => snapshot.$name($($argument),*),
                }
            })*
        }
    };
}

forward! {
    get(key: &[u8]) -> trommel::Result<Option<Slice>>;
    contains_key(key: &[u8]) -> trommel::Result<bool>;
    multi_get(keys: &[Bytes]) -> trommel::Result<Vec<Option<Slice>>>;
    iter() -> Range;
    range(bounds: KeyBounds) -> Range;
    prefix(prefix: &[u8]) -> Range;
    cursor() -> trommel::Result<DbCursor>;
    cursor_in(bounds: KeyBounds) -> trommel::Result<DbCursor>;
    prefix_cursor(prefix: &[u8]) -> trommel::Result<DbCursor>;
}

/// Adds the failed operation to the store's error.
pub(crate) fn ok<T>(what: &str, outcome: trommel::Result<T>) -> Check<T> {
    outcome.map_err(|error| format!("{what}: {error}"))
}

fn show_entry(entry: Option<(&[u8], &[u8])>) -> String {
    entry.map_or("nothing".into(), |(key, value)| format!("{} = {}", show(key), show(value)))
}

fn same(what: &str, real: Option<(&[u8], &[u8])>, model: Option<(&[u8], &[u8])>) -> Check {
    if real == model {
        return Ok(());
    }
    Err(format!("{what}: got {}, should be {}", show_entry(real), show_entry(model)))
}

/// A range that is iterated from both ends, and the entries still to come.
pub(crate) struct CheckedRange {
    real: Range,
    rest: VecDeque<(Bytes, Bytes)>,
    /// Number of steps, of eight, that are taken from the back.
    back: usize,
}

impl CheckedRange {
    /// A range of one of three kinds, iterated forward, backward or from both ends.
    pub(crate) fn begin(reader: Reader<'_>, model: &Model, keys: &KeySpace, rng: &mut Rng) -> Self {
        let entry = |(key, value): (&Bytes, &Bytes)| (Rc::clone(key), Rc::clone(value));
        let (real, rest) = match rng.below(6) {
            0 => (reader.iter(), model.iter().map(entry).collect()),
            1 | 2 => {
                let prefix = keys.prefix(rng);
                let from = model.range((Included(Rc::clone(&prefix)), Unbounded));
                let inside = from.take_while(|(key, _)| key.starts_with(&prefix));
                (reader.prefix(&prefix), inside.map(entry).collect())
            }
            _ => {
                let bounds = keys.bounds(rng);
                let inside = (!is_empty(&bounds)).then(|| model.range(bounds.clone()));
                (reader.range(bounds), inside.into_iter().flatten().map(entry).collect())
            }
        };
        Self { real, rest, back: *rng.pick(&[0, 0, 8, 8, 4, 1, 7]) }
    }

    /// Takes up to `steps` steps; at the end, checks that it remains at the end from both sides.
    pub(crate) fn advance(&mut self, steps: usize, rng: &mut Rng) -> Check {
        for _ in 0..steps {
            let from_back = rng.below(8) < self.back;
            if !self.step(from_back)? {
                self.step(!from_back)?;
                self.step(from_back)?;
                return Ok(());
            }
        }
        Ok(())
    }

    /// After the store was closed: an error, and then nothing more.
    pub(crate) fn says_closed(mut self, rng: &mut Rng) -> Check {
        let mut step = |from_back: bool| {
            if from_back { self.real.next_back() } else { self.real.next() }
        };
        let first = step(rng.once_in(2));
        // It may have been at its end.
        if !matches!(first, None | Some(Err(Error::Closed))) {
            return Err(format!("a range of a closed store yields {first:?}"));
        }
        match step(rng.once_in(2)) {
            None => Ok(()),
            more => Err(format!("a range yields {more:?} after its error")),
        }
    }

    /// One step; false at the end.
    fn step(&mut self, from_back: bool) -> Check<bool> {
        let (what, real, model) = if from_back {
            ("next_back", self.real.next_back(), self.rest.pop_back())
        } else {
            ("next", self.real.next(), self.rest.pop_front())
        };
        let real = ok(what, real.transpose())?;
        let real = real.as_ref().map(|(key, value)| (&**key, &**value));
        same(what, real, model.as_ref().map(|(key, value)| (&**key, &**value)))?;
        Ok(real.is_some())
    }
}

/// A cursor that is moved around, and its expected position.
pub(crate) struct CheckedCursor {
    real: DbCursor,
    model: Rc<Model>,
    at: Option<Bytes>,
}

impl CheckedCursor {
    /// A cursor over everything, over a range or over a prefix.
    pub(crate) fn begin(
        reader: Reader<'_>,
        model: &Rc<Model>,
        keys: &KeySpace,
        rng: &mut Rng,
    ) -> Check<Self> {
        let owned = |(key, value): (&Bytes, &Bytes)| (Rc::clone(key), Rc::clone(value));
        let (real, model) = match rng.below(4) {
            0 => {
                let bounds = keys.bounds(rng);
                let inside = (!is_empty(&bounds)).then(|| model.range(bounds.clone()));
                let inside = inside.into_iter().flatten().map(owned).collect();
                (reader.cursor_in(bounds), Rc::new(inside))
            }
            1 => {
                let prefix = keys.prefix(rng);
                let from = model.range((Included(Rc::clone(&prefix)), Unbounded));
                let inside = from.take_while(|(key, _)| key.starts_with(&prefix));
                (reader.prefix_cursor(&prefix), Rc::new(inside.map(owned).collect()))
            }
            _ => (reader.cursor(), Rc::clone(model)),
        };
        let checked = Self { real: ok("cursor", real)?, model, at: None };
        checked.look("a new cursor")?;
        Ok(checked)
    }

    /// Makes `moves` moves. Steps mostly keep the direction of the last one.
    pub(crate) fn advance(&mut self, moves: usize, keys: &KeySpace, rng: &mut Rng) -> Check {
        let mut forward = rng.once_in(2);
        for _ in 0..moves {
            if rng.once_in(5) {
                forward = !forward;
            }
            match (rng.below(14), forward) {
                (0, _) => self.jump(rng)?,
                (12.., _) => self.visit(forward, *rng.pick(&[1, 3, 20, usize::MAX]))?,
                (1..=3, true) => self.seek(&keys.any(rng))?,
                (1..=3, false) => self.seek_for_prev(&keys.any(rng))?,
                (_, true) => self.next()?,
                (_, false) => self.prev()?,
            }
        }
        Ok(())
    }

    /// After the store was closed: every movement fails.
    pub(crate) fn says_closed(mut self, rng: &mut Rng) -> Check {
        let moved = match rng.below(4) {
            0 => self.real.next(),
            1 => self.real.prev(),
            2 => self.real.seek_to_last(),
            _ => self.real.visit(|_, _| true),
        };
        match moved {
            Err(Error::Closed) if !self.real.valid() => Ok(()),
            other => Err(format!("a cursor of a closed store answers {other:?}")),
        }
    }

    fn jump(&mut self, rng: &mut Rng) -> Check {
        if rng.once_in(2) {
            ok("seek_to_first", self.real.seek_to_first())?;
            self.at = self.model.keys().next().cloned();
            return self.look("seek_to_first");
        }
        ok("seek_to_last", self.real.seek_to_last())?;
        self.at = self.model.keys().next_back().cloned();
        self.look("seek_to_last")
    }

    fn seek(&mut self, key: &Bytes) -> Check {
        ok("seek", self.real.seek(key))?;
        self.at = self.model.range((Included(Rc::clone(key)), Unbounded)).next().map(first);
        self.look("seek").map_err(|fault| format!("{fault} (seeking {})", show(key)))
    }

    fn seek_for_prev(&mut self, key: &Bytes) -> Check {
        ok("seek_for_prev", self.real.seek_for_prev(key))?;
        self.at = self.model.range((Unbounded, Included(Rc::clone(key)))).next_back().map(first);
        self.look("seek_for_prev").map_err(|fault| format!("{fault} (seeking {})", show(key)))
    }

    fn next(&mut self) -> Check {
        ok("cursor next", self.real.next())?;
        let Some(at) = self.at.take() else { return self.look("next off the end") };
        self.at = self.model.range((Excluded(at), Unbounded)).next().map(first);
        self.look("cursor next")
    }

    fn prev(&mut self) -> Check {
        ok("cursor prev", self.real.prev())?;
        let Some(at) = self.at.take() else { return self.look("prev off the end") };
        self.at = self.model.range((Unbounded, Excluded(at))).next_back().map(first);
        self.look("cursor prev")
    }

    /// Visits `wanted` entries, or all that are left.
    fn visit(&mut self, forward: bool, wanted: usize) -> Check {
        let mut seen = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            seen.push((key.to_vec(), value.to_vec()));
            seen.len() < wanted
        };
        let what = if forward { "visit" } else { "visit_back" };
        ok(what, if forward { self.real.visit(visit) } else { self.real.visit_back(visit) })?;
        let mut seen = seen.iter();
        while let Some(at) = self.at.take() {
            let entry = seen.next().map(|(key, value)| (&**key, &**value));
            same(what, entry, Some((&at, &self.model[&at])))?;
            if seen.len() == 0 && entry.is_some() && self.real.valid() {
                self.at = Some(at);
                break;
            }
            self.at = match forward {
                true => self.model.range((Excluded(at), Unbounded)).next().map(first),
                false => self.model.range((Unbounded, Excluded(at))).next_back().map(first),
            };
        }
        same(what, seen.next().map(|(key, value)| (&**key, &**value)), None)?;
        self.look(what)
    }

    fn look(&self, what: &str) -> Check {
        if self.real.valid() != self.at.is_some() {
            return Err(format!("{what}: valid() is {}", self.real.valid()));
        }
        let value = self.real.value();
        let real = self.real.key().map(|key| (key, value.as_deref().unwrap_or_default()));
        let model = self.at.as_ref().map(|key| (&**key, &*self.model[key]));
        same(what, real, model)?;
        same(what, self.real.entry(), model)
    }
}

fn first((key, _): (&Bytes, &Bytes)) -> Bytes {
    Rc::clone(key)
}

/// Compares every entry, in both directions.
pub(crate) fn compare_all(reader: Reader<'_>, model: &Model) -> Check {
    let mut real = reader.iter();
    for (key, value) in model {
        let entry = ok("a full scan", real.next().transpose())?;
        let entry = entry.as_ref().map(|(key, value)| (&**key, &**value));
        same("a full scan", entry, Some((key, value)))?;
    }
    same("the end of a full scan", ok("scan", real.next().transpose())?.as_ref().map(pair), None)?;
    let mut real = reader.iter().rev();
    for (key, value) in model.iter().rev() {
        let entry = ok("a full scan backward", real.next().transpose())?;
        same("a full scan backward", entry.as_ref().map(pair), Some((key, value)))?;
    }
    same(
        "the start of a full scan",
        ok("scan", real.next().transpose())?.as_ref().map(pair),
        None,
    )?;
    for forward in [true, false] {
        let mut cursor = ok("cursor", reader.cursor())?;
        let start = if forward { cursor.seek_to_first() } else { cursor.seek_to_last() };
        ok("the start of a visit", start)?;
        let mut seen = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            seen.push((key.to_vec(), value.to_vec()));
            true
        };
        let visited = if forward { cursor.visit(visit) } else { cursor.visit_back(visit) };
        ok("a full visit", visited)?;
        if !forward {
            seen.reverse();
        }
        let mut seen = seen.iter().map(|(key, value)| (&**key, &**value));
        for (key, value) in model {
            same("a full visit", seen.next(), Some((key, value)))?;
        }
        same("the end of a full visit", seen.next(), None)?;
    }
    Ok(())
}

fn pair((key, value): &(Slice, Slice)) -> (&[u8], &[u8]) {
    (key, value)
}
