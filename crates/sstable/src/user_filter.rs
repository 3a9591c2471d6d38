//! User-defined filters: the traits of a policy, and the containment of the user's code.
//!
//! 1. A [`UserFilterBuilder`] takes the keys of a table and returns bytes, which are stored as a
//!    block like any other. The table's directory names the policy (`filters/user_build.rs`).
//! 2. The [`UserFilterReader`] of that name opens them on first use. Without a reader, or if it
//!    rejects the bytes, the table answers "maybe".
//! 3. A panic in user code is caught (if panics unwind), reported to the reader, and answered with
//!    "maybe". The filter is not queried again. Only [`Contained`] drops the user's values, as
//!    dropping them runs user code too.
//!
//! The user must ensure that a filter denies no key of its table. A check of sampled keys finds
//! filters that are always wrong; verification queries every key.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::verdict::{FilterLabel, Verdict};

/// Builds one user-defined filter.
///
/// # Panics
/// A panic costs the table its filter. However, a panic in `Drop` while a panic of
/// [`finish`](Self::finish) unwinds aborts the process, as anywhere.
pub trait UserFilterBuilder: Send + fmt::Debug {
    /// Adds a key, which differs from the last one, with its hash. Keys ascend. The hash depends on
    /// a [seed](trommel_filter::HashSeed) of the table: it is not [`trommel_filter::hash`].
    fn add(&mut self, key: &[u8], hash: u64);

    /// Returns the finished filter. The bytes are stored with a checksum: they are read back
    /// unchanged, or not at all.
    fn finish(self: Box<Self>) -> Vec<u8>;

    /// Most bytes of memory from now until it is finished, including the finished filter. Called
    /// every few keys.
    fn memory_bytes(&self) -> usize;
}

/// An open user-defined filter.
///
/// The store may hold locks when it drops the filter: `Drop` must not call into the store.
pub trait UserFilter: Send + Sync + fmt::Debug {
    /// Whether `key`, whose hash is `hash`, may be one of the keys added, with the same hash.
    ///
    /// # Contract
    /// True for every key added: after a "no" the table is not searched, and its entries for the
    /// key are not found.
    fn may_contain(&self, key: &[u8], hash: u64) -> bool;

    /// The theoretical false-positive rate, 0 to 1. Reports compare it with the measured rate.
    fn expected_fpr(&self) -> f64;

    /// Memory in bytes.
    fn memory_bytes(&self) -> usize;
}

/// Opens the filters of one policy.
pub trait UserFilterReader: Send + Sync + fmt::Debug {
    /// The policy's name, stored with each table.
    fn name(&self) -> &str;

    /// Opens the bytes that a builder of this policy returned. They have the right checksum, but
    /// may be from another version of the policy.
    ///
    /// # Errors
    /// Why the bytes cannot be used.
    fn open(&self, bytes: &[u8]) -> Result<Box<dyn UserFilter>, String>;

    /// Called when the policy's own code has failed.
    fn failed(&self, what: &str);
}

/// Runs user code and catches its panic.
///
/// # Errors
/// The message of the panic.
pub fn contained<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| {
        let why = format!("a panic: {}", message(&*payload));
        // The payload is a value of the user's, too. A further panic while dropping it is not
        // contained.
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

/// An upper bound for the memory that user code may report. There is none on 32-bit systems, where
/// the sum of a few values does not overflow 64 bits.
pub(crate) const MOST_MEMORY_BYTES: usize = match 1_usize.checked_shl(40) {
    Some(bytes) => bytes,
    None => usize::MAX,
};

/// A value of a user's type, called and dropped with panics contained.
#[derive(Debug)]
pub(crate) struct Contained<T: ?Sized> {
    /// The value, until it is finished or dropped.
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

/// An open user-defined filter.
#[derive(Debug)]
pub(crate) struct OpenUserFilter {
    filter: Contained<dyn UserFilter>,
    /// The rate that the filter reports, or 1 if that is not a valid rate.
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

    /// The verdict on `key`; "maybe" after a panic.
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

    /// Whether it may contain `key`.
    ///
    /// # Errors
    /// The message of its panic.
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
