//! The keys, values and state of a lean model, and iterators that are compared with it.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::rc::Rc;

use trommel::{DbCursor, Range, Slice};

use crate::iterators::{Check, ok};
use crate::keys::{Bytes, KeyBounds, KeySpace, show};
use crate::rng::Rng;

/// A stamp for each key: the number of the write that set it, 0 if it has no value.
pub(crate) type State = Vec<u32>;

/// Longest value except for a rare large one, in bytes.
const NOISE_BYTES: usize = 16 << 10;

/// The keys in order, and the bytes of values.
pub(crate) struct Alphabet {
    pub(crate) keys: Vec<Bytes>,
    noise: Vec<u8>,
    longest: usize,
}

impl Alphabet {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let count = *rng.pick(&[5, 24, 100, 300, 600]);
        let space = KeySpace::new(rng, 256);
        let mut keys: Vec<Bytes> = (0..count * 2).map(|_| space.any(rng)).collect();
        keys.retain(|key| key.len() < 300);
        keys.push([][..].into());
        keys.sort();
        keys.dedup();
        while keys.len() > count {
            keys.swap_remove(rng.below(keys.len()));
        }
        keys.sort();
        let noise = rng.bytes(NOISE_BYTES);
        Self { keys, noise, longest: *rng.pick(&[8, 30, 60, 120, 400]) }
    }

    /// A key to look up.
    pub(crate) fn any(&self, rng: &mut Rng) -> usize {
        let hot = self.keys.len().min(8);
        let end = if rng.once_in(4) { hot } else { self.keys.len() };
        rng.below(end)
    }

    /// A key to write: one in five never is.
    pub(crate) fn own(&self, rng: &mut Rng) -> usize {
        let at = self.any(rng);
        if at % 5 == 3 { at - 1 } else { at }
    }

    /// The numbers of a range of keys to delete: usually few, sometimes none, or all from one on.
    pub(crate) fn some_range(&self, rng: &mut Rng) -> std::ops::Range<usize> {
        let from = self.any(rng);
        let most = *rng.pick(&[0, 1, 4, 4, 20, 20, 100]);
        let to = if rng.once_in(30) { self.keys.len() } else { from + rng.within(0, most) };
        from..to.min(self.keys.len())
    }

    /// Bounds that hold these of the keys.
    pub(crate) fn bounds(&self, keys: &std::ops::Range<usize>, rng: &mut Rng) -> KeyBounds {
        let key = |at: usize| Rc::clone(&self.keys[at]);
        let (from, to) = (keys.start, keys.end);
        let low = match from {
            0 if rng.once_in(2) => Unbounded,
            0 => Included(key(0)),
            _ if rng.once_in(2) => Excluded(key(from - 1)),
            _ => Included(key(from)),
        };
        let high = match to {
            _ if to > from && rng.once_in(2) => Included(key(to - 1)),
            _ if to == self.keys.len() => Unbounded,
            _ => Excluded(key(to)),
        };
        (low, high)
    }

    /// The part of the noise that follows the stamp in value `stamp`. Some are longer than blocks
    /// and memtables.
    fn tail(&self, stamp: u32) -> &[u8] {
        let mixed = Rng::new(u64::from(stamp)).u64();
        let longest = if mixed.is_multiple_of(500) { NOISE_BYTES / 2 } else { self.longest };
        let length = (mixed >> 16) as usize % longest;
        let start = (mixed >> 40) as usize % (NOISE_BYTES - length);
        &self.noise[start..start + length]
    }

    pub(crate) fn value<'a>(&self, stamp: u32, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        buffer.clear();
        buffer.extend(stamp.to_le_bytes());
        buffer.extend(self.tail(stamp));
        buffer
    }

    /// Whether the value is that of `stamp`; none for 0.
    pub(crate) fn is_value(&self, found: Option<&[u8]>, stamp: u32) -> bool {
        match found.map(|found| found.split_at_checked(4)) {
            None => stamp == 0,
            Some(Some((head, tail))) => {
                stamp != 0 && head == stamp.to_le_bytes() && tail == self.tail(stamp)
            }
            Some(None) => false,
        }
    }

    pub(crate) fn check(&self, what: &str, at: usize, found: Option<&[u8]>, stamp: u32) -> Check {
        if self.is_value(found, stamp) {
            return Ok(());
        }
        let found = found.map_or("nothing".into(), show);
        Err(format!("{what} of key {at} ({}): {found} is not {stamp}", show(&self.keys[at])))
    }

    /// Checks that an entry is that of key `at`, or none if `at` is none.
    fn check_entry(
        &self,
        what: &str,
        real: Option<(&[u8], &[u8])>,
        at: Option<usize>,
        state: &State,
    ) -> Check {
        match (real, at) {
            (None, None) => Ok(()),
            (Some((key, value)), Some(at)) if *key == *self.keys[at] => {
                self.check(what, at, Some(value), state[at])
            }
            (real, at) => {
                let real = real.map_or("the end".into(), |(key, _)| show(key));
                let at = at.map_or("the end".into(), |at| show(&self.keys[at]));
                Err(format!("{what}: {real} instead of {at}"))
            }
        }
    }

    /// The index of the first key that is not below `key`.
    pub(crate) fn place(&self, key: &[u8]) -> usize {
        self.keys.partition_point(|other| **other < *key)
    }

    /// Compares all entries of an iterator, forward.
    pub(crate) fn check_all(&self, range: Range, state: &Rc<State>) -> Check {
        let (low, high) = (0, self.keys.len());
        let mut iterator = LeanRange { range, state: Rc::clone(state), low, high };
        while iterator.step(self, false)? {}
        Ok(())
    }

    /// Compares all entries of an iterator, backward.
    pub(crate) fn check_all_backward(&self, range: Range, state: &Rc<State>) -> Check {
        let (low, high) = (0, self.keys.len());
        let mut iterator = LeanRange { range, state: Rc::clone(state), low, high };
        while iterator.step(self, true)? {}
        Ok(())
    }
}

fn pair(entry: &Option<(Slice, Slice)>) -> Option<(&[u8], &[u8])> {
    entry.as_ref().map(|(key, value)| (&**key, &**value))
}

/// A range that is iterated from both ends.
pub(crate) struct LeanRange {
    pub(crate) range: Range,
    pub(crate) state: Rc<State>,
    /// The keys still to come, from `low` to before `high`.
    pub(crate) low: usize,
    pub(crate) high: usize,
}

impl LeanRange {
    /// One step; false at the end.
    pub(crate) fn step(&mut self, alphabet: &Alphabet, from_back: bool) -> Check<bool> {
        let (low, high) = (self.low, self.high.max(self.low));
        let mut left = self.state[low..high].iter();
        if from_back {
            let real = ok("next_back", self.range.next_back().transpose())?;
            let at = left.rposition(|stamp| *stamp != 0).map(|at| low + at);
            alphabet.check_entry("next_back", pair(&real), at, &self.state)?;
            self.high = at.unwrap_or(low);
            Ok(at.is_some())
        } else {
            let real = ok("next", self.range.next().transpose())?;
            let at = left.position(|stamp| *stamp != 0).map(|at| low + at);
            alphabet.check_entry("next", pair(&real), at, &self.state)?;
            self.low = at.map_or(high, |at| at + 1);
            Ok(at.is_some())
        }
    }
}

/// A cursor over all keys, and its expected position.
pub(crate) struct LeanCursor {
    pub(crate) cursor: DbCursor,
    pub(crate) state: Rc<State>,
    pub(crate) at: Option<usize>,
}

impl LeanCursor {
    fn look(&mut self, what: &str, alphabet: &Alphabet, at: Option<usize>) -> Check {
        self.at = at;
        let value = self.cursor.value();
        let real = self.cursor.key().map(|key| (key, value.as_deref().unwrap_or_default()));
        alphabet.check_entry(what, real, at, &self.state)
    }

    fn after(&self, place: usize) -> Option<usize> {
        let at = self.state[place..].iter().position(|stamp| *stamp != 0);
        at.map(|at| place + at)
    }

    fn before(&self, place: usize) -> Option<usize> {
        self.state[..place].iter().rposition(|stamp| *stamp != 0)
    }

    /// A seek of one of four kinds. Some targets are not keys of the store, but between two.
    pub(crate) fn seek(&mut self, alphabet: &Alphabet, rng: &mut Rng) -> Check {
        let mut key = alphabet.keys[alphabet.any(rng)].to_vec();
        if rng.once_in(4) {
            key.push(*rng.pick(&[0, 0xff]));
        }
        let place = alphabet.place(&key);
        match rng.below(12) {
            0 => {
                ok("seek_to_first", self.cursor.seek_to_first())?;
                self.look("seek_to_first", alphabet, self.after(0))
            }
            1 => {
                ok("seek_to_last", self.cursor.seek_to_last())?;
                self.look("seek_to_last", alphabet, self.before(self.state.len()))
            }
            2..=6 => {
                ok("seek", self.cursor.seek(&key))?;
                self.look("seek", alphabet, self.after(place))
            }
            _ => {
                ok("seek_for_prev", self.cursor.seek_for_prev(&key))?;
                let exact = alphabet.keys.get(place).is_some_and(|other| **other == *key);
                self.look("seek_for_prev", alphabet, self.before(place + usize::from(exact)))
            }
        }
    }

    pub(crate) fn step(&mut self, alphabet: &Alphabet, forward: bool) -> Check {
        if forward {
            ok("cursor next", self.cursor.next())?;
            self.look("cursor next", alphabet, self.at.and_then(|at| self.after(at + 1)))
        } else {
            ok("cursor prev", self.cursor.prev())?;
            self.look("cursor prev", alphabet, self.at.and_then(|at| self.before(at)))
        }
    }
}
