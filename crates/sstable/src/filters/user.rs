//! Filters of a user's own making: built, stored and asked, and never trusted further.
//!
//! 1. A [`UserFilterBuilder`] takes the keys of a table and ends in bytes. They are opened at once
//!    and asked for a sample of the keys: bytes that cannot be opened, or that deny a key, are not
//!    stored, and the table has no filter.
//! 2. The bytes get a frame and a checksum like any block; the table's directory names the policy.
//! 3. A reader of that name ([`UserFilterReader`]) opens them at their first use. Where it is not
//!    there, or will not take them, the table answers "maybe".
//! 4. A panic in any of this is caught (where panics unwind), told to the reader, and answers
//!    "maybe". The filter is not asked again. What is the user's is dropped by [`Held`] alone, as
//!    dropping it runs his code, too.
//!
//! What is left to the user is that a filter denies no key of its table. The sample finds those that
//! always lie; verification asks for every key.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::directory::{FilterPart, FilterRole, FilterShape};
use super::{BuiltPart, FilterFacts, FilterLabel, Verdict};

/// Builds one filter of a user's own kind.
///
/// # Panics
/// A panic costs the table its filter. But one of `Drop` while a panic of
/// [`finish`](Self::finish) unwinds ends the process, as it does anywhere.
pub trait UserFilterBuilder: Send + fmt::Debug {
    /// Takes a key, which is not the one before it, and its [`trommel_filter::hash`]. Keys ascend.
    fn add(&mut self, key: &[u8], hash: u64);

    /// The finished filter. The bytes are stored with a checksum; they come back as they are, or
    /// not at all.
    fn finish(self: Box<Self>) -> Vec<u8>;

    /// Bytes of memory that it takes from now to its end, at most, the finished filter included.
    /// Asked after every few keys.
    fn memory_bytes(&self) -> usize;
}

/// A filter of a user's own kind, opened.
///
/// Where it is dropped, the store may hold locks: its `Drop` must not call into the store.
pub trait UserFilter: Send + Sync + fmt::Debug {
    /// Whether `key`, whose [`trommel_filter::hash`] this is, may be one of those that it was built
    /// of.
    ///
    /// # Contract
    /// True for every one of them: a "no" means that the table is not searched, and what it holds
    /// for the key is not found.
    fn may_contain(&self, key: &[u8], hash: u64) -> bool;

    /// How often it says "maybe" of a key that it was not built of, by theory: 0 to 1. Reports set
    /// it beside what was measured.
    fn expected_fpr(&self) -> f64;

    /// Bytes of memory that it takes.
    fn memory_bytes(&self) -> usize;
}

/// Who reads the filters that one policy has made.
pub trait UserFilterReader: Send + Sync + fmt::Debug {
    /// The policy's name, stored with each table.
    fn name(&self) -> &str;

    /// Opens what a builder of this policy made. The bytes have the right checksum, and may still
    /// be those of another version of it.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    fn open(&self, bytes: &[u8]) -> Result<Box<dyn UserFilter>, String>;

    /// Hears that the policy's own code has failed.
    fn failed(&self, what: &str);
}

/// Runs a user's code; what it said when it panicked, if it did.
///
/// # Errors
/// The panic, in words.
pub fn contained<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| {
        let why = format!("a panic: {}", said(&*payload));
        // What was thrown is the user's, too. Where dropping it panics, that is as far as it goes.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(another);
        }
        why
    })
}

fn said(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// More than any filter takes: what a user states may be anything.
const MOST_MEMORY_BYTES: usize = 1 << 40;

/// What is of a user's making, dropped with a panic contained.
#[derive(Debug)]
struct Held<T: ?Sized> {
    /// There until it is taken or dropped.
    thing: Option<Box<T>>,
    reader: Arc<dyn UserFilterReader>,
}

impl<T: ?Sized> Held<T> {
    fn new(thing: Box<T>, reader: Arc<dyn UserFilterReader>) -> Self {
        Self { thing: Some(thing), reader }
    }

    /// Runs `code` on it.
    #[inline]
    fn contained<R>(&self, code: impl FnOnce(&T) -> R) -> Result<R, String> {
        contained(|| code(self.thing.as_deref().expect(HELD)))
    }

    fn contained_mut<R>(&mut self, code: impl FnOnce(&mut T) -> R) -> Result<R, String> {
        contained(|| code(self.thing.as_deref_mut().expect(HELD)))
    }

    /// Runs `code` on it, which is its end.
    fn end<R>(mut self, code: impl FnOnce(Box<T>) -> R) -> Result<R, String> {
        contained(|| code(self.thing.take().expect(HELD)))
    }
}

const HELD: &str = "only what is dropped is taken";

impl<T: ?Sized> Drop for Held<T> {
    fn drop(&mut self) {
        if let Err(why) = contained(|| drop(self.thing.take())) {
            self.reader.failed(&format!("when it was dropped: {why}"));
        }
    }
}

/// A builder of a user's, and what it is held to.
#[derive(Debug)]
pub(crate) struct UserBuild {
    reader: Arc<dyn UserFilterReader>,
    builder: Result<Held<dyn UserFilterBuilder>, String>,
    keys: u64,
    sample: Sample,
}

impl UserBuild {
    pub(crate) fn new(
        reader: Arc<dyn UserFilterReader>,
        builder: Box<dyn UserFilterBuilder>,
    ) -> Self {
        let builder = Ok(Held::new(builder, Arc::clone(&reader)));
        Self { reader, builder, keys: 0, sample: Sample::default() }
    }

    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], hash: u64) {
        let Ok(builder) = &mut self.builder else { return };
        match builder.contained_mut(|builder| builder.add(key, hash)) {
            Ok(()) => {
                self.keys += 1;
                self.sample.add(key, hash);
            }
            Err(why) => self.builder = Err(why),
        }
    }

    pub(crate) fn memory_bytes(&mut self) -> u64 {
        let Ok(builder) = &self.builder else { return 0 };
        match builder.contained(UserFilterBuilder::memory_bytes) {
            Ok(bytes) => bytes.min(MOST_MEMORY_BYTES) as u64,
            Err(why) => {
                self.builder = Err(why);
                0
            }
        }
    }

    /// The part to be stored; the reader hears of it if there can be none.
    pub(crate) fn finish(self) -> Result<BuiltPart, String> {
        let Self { reader, builder, keys, sample } = self;
        let built = builder
            .and_then(|builder| builder.end(UserFilterBuilder::finish))
            .and_then(|payload| {
                let opened = OpenUserFilter::open(Arc::clone(&reader), &payload)?;
                sample.ask(&opened)?;
                Ok((payload, opened.expected))
            })
            .inspect_err(|why| reader.failed(why));
        let (payload, expected_fpr) = built?;
        let part = FilterPart {
            role: FilterRole::Keys,
            shape: FilterShape::Whole,
            expected_fpr,
            keys,
            bytes: 0,
            top_bytes: 0,
            spec: FilterLabel::User.name().to_owned(),
            policy: reader.name().to_owned(),
            extractor: String::new(),
        };
        Ok(BuiltPart { part, pieces: vec![payload], top: None, fallbacks: 0 })
    }
}

/// Some of a table's keys, evenly spread: at most [`Sample::MOST`].
#[derive(Debug)]
struct Sample {
    keys: Vec<(Box<[u8]>, u64)>,
    /// Of so many keys, one is taken.
    stride: u64,
    seen: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Self { keys: Vec::new(), stride: 1, seen: 0 }
    }
}

impl Sample {
    const MOST: usize = 128;

    fn add(&mut self, key: &[u8], hash: u64) {
        if self.seen.is_multiple_of(self.stride) {
            if self.keys.len() == Self::MOST {
                let mut place = 0;
                self.keys.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.stride *= 2;
            }
            // After the stride has doubled, this key is one that it still reaches: the length was
            // even.
            self.keys.push((key.into(), hash));
        }
        self.seen += 1;
    }

    fn ask(&self, filter: &OpenUserFilter) -> Result<(), String> {
        for (key, hash) in &self.keys {
            if !filter.filter.contained(|filter| filter.may_contain(key, *hash))? {
                return Err("its filter denies a key that it was built of".into());
            }
        }
        Ok(())
    }
}

/// A filter of a user's, where it can be asked.
#[derive(Debug)]
pub(crate) struct OpenUserFilter {
    filter: Held<dyn UserFilter>,
    /// What it says of its rate, if that is one.
    expected: f64,
    memory_bytes: usize,
    failed: AtomicBool,
}

impl OpenUserFilter {
    pub(super) fn open(reader: Arc<dyn UserFilterReader>, bytes: &[u8]) -> Result<Self, String> {
        let filter = Held::new(contained(|| reader.open(bytes))??, reader);
        let (expected, memory_bytes) =
            filter.contained(|filter| (filter.expected_fpr(), filter.memory_bytes()))?;
        let expected = if (0.0..=1.0).contains(&expected) { expected } else { 1.0 };
        let memory_bytes = memory_bytes.min(MOST_MEMORY_BYTES);
        Ok(Self { filter, expected, memory_bytes, failed: AtomicBool::new(false) })
    }

    #[inline]
    pub(super) fn verdict(&self, key: &[u8], hash: u64) -> Verdict {
        if self.failed.load(Ordering::Relaxed) {
            return Verdict::UNFILTERED;
        }
        match self.filter.contained(|filter| filter.may_contain(key, hash)) {
            Ok(maybe) => Verdict { maybe, kind: FilterLabel::User, expected: self.expected },
            Err(why) => {
                self.failed.store(true, Ordering::Relaxed);
                self.filter.reader.failed(&why);
                Verdict::UNFILTERED
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// What it is, where `said` is what its table says of it.
    pub(super) fn facts(&self, said: &FilterPart) -> FilterFacts {
        let bits = said.bytes as f64 * 8.0;
        FilterFacts {
            kind: FilterLabel::User,
            bits_asked: 0.0,
            bits_stored: if said.keys == 0 { 0.0 } else { bits / said.keys as f64 },
            keys: said.keys,
            is_of_prefixes: false,
            is_fallback: false,
            probes: 0,
            expected: self.expected,
            bytes: self.memory_bytes as u64,
            is_held: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_all_keys() {
        for keys in [0, 1, 127, 128, 129, 1000, 100_000u64] {
            let mut sample = Sample::default();
            for key in 0..keys {
                sample.add(&key.to_le_bytes(), key);
            }
            let taken: Vec<u64> = sample.keys.iter().map(|(_, hash)| *hash).collect();
            let evenly: Vec<u64> = (0..keys).step_by(sample.stride as usize).collect();
            assert_eq!(taken, evenly, "of {keys} keys");
            assert!(taken.len() <= Sample::MOST && taken.len() as u64 * 2 >= keys.min(128));
        }
    }
}
