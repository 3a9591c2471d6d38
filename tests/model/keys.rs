//! Keys and values that find mistakes: few hot keys, long shared prefixes, keys that are prefixes
//! of each other, the empty key, runs of 0xff and of 0, keys of many KiB; values from empty to
//! larger than a memtable.

use std::ops::Bound;
use std::rc::Rc;

use crate::rng::Rng;

pub(crate) type Bytes = Rc<[u8]>;

/// A bound of a range of keys.
pub(crate) type KeyBounds = (Bound<Bytes>, Bound<Bytes>);

/// The keys of one sequence.
pub(crate) struct KeySpace {
    /// Keys that are written, looked up and used as bounds.
    pool: Vec<Bytes>,
    /// Keys near those of the pool that are never written.
    strangers: Vec<Bytes>,
    longest_value: usize,
    block_bytes: usize,
}

impl KeySpace {
    pub(crate) fn new(rng: &mut Rng, block_bytes: usize) -> Self {
        let count = *rng.pick(&[12, 60, 250, 600, 1200]);
        let has_giants = rng.once_in(3);
        let prefixes: Vec<Vec<u8>> = (0..rng.within(1, 4))
            .map(|_| {
                let length = *rng.pick(&[0, 3, 17, 40, 150]);
                rng.bytes(length)
            })
            .collect();
        let mut pool: Vec<Bytes> = Vec::with_capacity(count);
        while pool.len() < count {
            let key = Self::key(rng, &prefixes, &pool, has_giants);
            pool.push(key.into());
        }
        let strangers = (0..count / 2 + 2).map(|_| Self::neighbour(rng, &pool)).collect();
        let longest_value = *rng.pick(&[8, 60, 60, 300, 300, 2000]);
        Self { pool, strangers, longest_value, block_bytes }
    }

    fn key(rng: &mut Rng, prefixes: &[Vec<u8>], pool: &[Bytes], has_giants: bool) -> Vec<u8> {
        let mut key = rng.pick(prefixes).clone();
        match rng.below(16) {
            0 => key = Vec::new(),
            1 => key = vec![0xff; rng.within(1, 20)],
            2 => key = vec![0; rng.within(1, 12)],
            3 if !pool.is_empty() => {
                // A key and its own continuation.
                key = rng.pick(pool).to_vec();
                let more = rng.within(1, 3);
                key.extend(rng.bytes(more));
            }
            4 if !pool.is_empty() => {
                let whole = rng.pick(pool).clone();
                key = whole[..rng.within(0, whole.len())].to_vec();
            }
            5 if has_giants && rng.once_in(30) => {
                let length = rng.within(1 << 10, 60 << 10);
                key.extend(rng.bytes(length));
            }
            6 => key.extend(vec![0xff; rng.within(1, 9)]),
            7..=10 => key.extend(format!("{:06}", rng.below(100_000)).bytes()),
            _ => {
                let length = rng.within(1, 14);
                key.extend(rng.bytes(length));
            }
        }
        key
    }

    /// A key close to one of the pool, and most likely not in it.
    fn neighbour(rng: &mut Rng, pool: &[Bytes]) -> Bytes {
        let mut key = rng.pick(pool).to_vec();
        match (rng.below(3), key.last_mut()) {
            (0, Some(last)) => *last ^= 1,
            (1, Some(_)) => {
                key.pop();
            }
            _ => key.push(*rng.pick(&[0, 1, 0x7f, 0xff])),
        }
        key.into()
    }

    /// A key to write: one time in three one of a few hot ones.
    pub(crate) fn own(&self, rng: &mut Rng) -> Bytes {
        let hot = self.pool.len().min(8);
        let end = if rng.once_in(3) { hot } else { self.pool.len() };
        Rc::clone(&self.pool[rng.below(end)])
    }

    /// A key to look up or to use as a bound.
    pub(crate) fn any(&self, rng: &mut Rng) -> Bytes {
        if rng.once_in(3) { Rc::clone(rng.pick(&self.strangers)) } else { self.own(rng) }
    }

    pub(crate) fn value(&self, rng: &mut Rng) -> Bytes {
        let length = match rng.below(400) {
            0 => rng.within(4 << 10, 40 << 10),
            1..=20 => rng.within(self.block_bytes / 2, self.block_bytes * 4),
            21..=60 => 0,
            _ => rng.within(0, self.longest_value),
        };
        rng.bytes(length).into()
    }

    pub(crate) fn bounds(&self, rng: &mut Rng) -> KeyBounds {
        let mut bound = || match rng.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(self.any(rng)),
            _ => Bound::Excluded(self.any(rng)),
        };
        let (from, to) = (bound(), bound());
        // Reversed bounds stay so one time in four: they are an empty range.
        if is_empty(&(from.clone(), to.clone())) && !rng.once_in(4) {
            (to, from)
        } else {
            (from, to)
        }
    }

    pub(crate) fn prefix(&self, rng: &mut Rng) -> Bytes {
        let key = self.any(rng);
        let length = if rng.once_in(3) { key.len() } else { rng.within(0, key.len().min(20)) };
        key[..length].into()
    }
}

/// Whether no key can be within `bounds`; covers all cases in which `BTreeMap::range` would panic.
pub(crate) fn is_empty(bounds: &KeyBounds) -> bool {
    let key = |bound: &Bound<Bytes>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(Rc::clone(key)),
        Bound::Unbounded => None,
    };
    let (Some(from), Some(to)) = (key(&bounds.0), key(&bounds.1)) else { return false };
    let both_included = matches!(bounds, (Bound::Included(_), Bound::Included(_)));
    from > to || (from == to && !both_included)
}

/// A short display form of a key or value.
pub(crate) fn show(bytes: &[u8]) -> String {
    let head: String = bytes[..bytes.len().min(24)].escape_ascii().to_string();
    if bytes.len() > 24 {
        format!("\"{head}\"... ({} bytes)", bytes.len())
    } else {
        format!("\"{head}\"")
    }
}
