//! Filters of a user's policy: its traits, and the containment of the user's code.
//!
//! 1. A [`UserFilterBuilder`] takes the keys of a table and ends in bytes, which are stored as a
//!    block like any other; the table's directory names the policy (`filters/user_build.rs`).
//! 2. A [`UserFilterReader`] of that name opens them at their first use. Without one, or where it
//!    refuses the bytes, the table answers "maybe".
//! 3. A panic in any of this is caught (where panics unwind), reported to the reader, and answers
//!    "maybe". The filter is not queried again. The user's values are dropped by [`Contained`]
//!    alone, as dropping them runs the user's code, too.
//!
//! The user remains responsible for a filter that denies no key of its table. A sample of the keys
//! finds filters that always lie; verification queries every key.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::verdict::{FilterLabel, Verdict};

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
    /// Called after every few keys.
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

    /// Its rate of false positives, by theory: 0 to 1. Reports compare it with the measured rate.
    fn expected_fpr(&self) -> f64;

    /// Bytes of memory that it takes.
    fn memory_bytes(&self) -> usize;
}

/// Reads the filters that one policy has made.
pub trait UserFilterReader: Send + Sync + fmt::Debug {
    /// The policy's name, stored with each table.
    fn name(&self) -> &str;

    /// Opens what a builder of this policy made. The bytes have the right checksum, and may still
    /// be those of another version of it.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    fn open(&self, bytes: &[u8]) -> Result<Box<dyn UserFilter>, String>;

    /// Notified when the policy's own code has failed.
    fn failed(&self, what: &str);
}

/// Runs a user's code, and catches its panic.
///
/// # Errors
/// The panic, in words.
pub fn contained<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| {
        let why = format!("a panic: {}", message(&*payload));
        // The payload is the user's, too. A panic while it is dropped is not contained any further.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(another);
        }
        why
    })
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// More than any filter takes: users may state anything.
pub(crate) const MOST_MEMORY_BYTES: usize = 1 << 40;

/// A value of a user's type, called and dropped with panics contained.
#[derive(Debug)]
pub(crate) struct Contained<T: ?Sized> {
    /// There until it is finished or dropped.
    value: Option<Box<T>>,
    reader: Arc<dyn UserFilterReader>,
}

impl<T: ?Sized> Contained<T> {
    pub(crate) fn new(value: Box<T>, reader: Arc<dyn UserFilterReader>) -> Self {
        Self { value: Some(value), reader }
    }

    /// Runs `code` on the value.
    #[inline]
    pub(crate) fn run<R>(&self, code: impl FnOnce(&T) -> R) -> Result<R, String> {
        contained(|| code(self.value.as_deref().expect(PRESENT)))
    }

    pub(crate) fn run_mut<R>(&mut self, code: impl FnOnce(&mut T) -> R) -> Result<R, String> {
        contained(|| code(self.value.as_deref_mut().expect(PRESENT)))
    }

    /// Runs `code`, which consumes the value.
    pub(crate) fn finish<R>(mut self, code: impl FnOnce(Box<T>) -> R) -> Result<R, String> {
        contained(|| code(self.value.take().expect(PRESENT)))
    }
}

const PRESENT: &str = "the value is taken only when it is finished or dropped";

impl<T: ?Sized> Drop for Contained<T> {
    fn drop(&mut self) {
        if let Err(why) = contained(|| drop(self.value.take())) {
            self.reader.failed(&format!("when it was dropped: {why}"));
        }
    }
}

/// A user's filter that was opened and can be queried.
#[derive(Debug)]
pub(crate) struct OpenUserFilter {
    filter: Contained<dyn UserFilter>,
    /// The rate that it states, if that is one.
    expected_fpr: f64,
    memory_bytes: usize,
    failed: AtomicBool,
}

impl OpenUserFilter {
    pub(crate) fn open(reader: Arc<dyn UserFilterReader>, bytes: &[u8]) -> Result<Self, String> {
        let filter = Contained::new(contained(|| reader.open(bytes))??, reader);
        let (expected, memory_bytes) =
            filter.run(|filter| (filter.expected_fpr(), filter.memory_bytes()))?;
        let expected_fpr = if (0.0..=1.0).contains(&expected) { expected } else { 1.0 };
        let memory_bytes = memory_bytes.min(MOST_MEMORY_BYTES);
        Ok(Self { filter, expected_fpr, memory_bytes, failed: AtomicBool::new(false) })
    }

    /// What it answers for `key`; "maybe" once it has panicked.
    #[inline]
    pub(crate) fn verdict(&self, key: &[u8], hash: u64) -> Verdict {
        if self.failed.load(Ordering::Relaxed) {
            return Verdict::UNFILTERED;
        }
        match self.may_contain(key, hash) {
            Ok(maybe) => Verdict { maybe, kind: FilterLabel::User, expected: self.expected_fpr },
            Err(why) => {
                self.failed.store(true, Ordering::Relaxed);
                self.filter.reader.failed(&why);
                Verdict::UNFILTERED
            }
        }
    }

    /// Whether it may hold `key`.
    ///
    /// # Errors
    /// Its panic, in words.
    #[inline]
    pub(crate) fn may_contain(&self, key: &[u8], hash: u64) -> Result<bool, String> {
        self.filter.run(|filter| filter.may_contain(key, hash))
    }

    pub(crate) fn expected_fpr(&self) -> f64 {
        self.expected_fpr
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}
