//! Settings with a few named values, and the options of one write.

use std::fmt;
use std::str::FromStr;

/// How durable a write is when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// To the operating system: it survives the death of the process, but may be lost, with
    /// everything written after it, if the machine loses power.
    #[default]
    Os,
    /// To the device: it survives power loss, and so does every write before it.
    Sync,
}

/// Where a filter is held in memory. It is read at its first query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FilterResidency {
    /// With its open table, up to
    /// [`pinned_filter_bytes`](crate::settings::FilterSettings::pinned_filter_bytes), where it is
    /// found by one load, without a lock. Filters beyond that limit are held as with `Cached`. The
    /// default.
    #[default]
    Pinned,
    /// In the block cache, and evicted like a block. A filter, or a partition of one (see
    /// [`filter_shape`](crate::settings::FilterSettings::filter_shape)), larger than half a shard
    /// of the cache is not used, and
    /// [`FilterStats::not_held`](crate::FilterStats::not_held) counts it. A shard is a 64th of a
    /// cache of 64 MiB or more, and about 1 MiB of a smaller one.
    Cached,
    /// As `Pinned` for tables written for level 0, whose filters each lookup queries first; as
    /// `Cached` for the others.
    PinnedLevel0,
}

/// What reads of a degraded store return if writes of unknown keys are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Degraded {
    /// Nothing: every read fails with [`Error::InDoubt`](crate::Error::InDoubt).
    Certain,
    /// The state before the first lost write, which the store once had.
    LastIntact,
}

/// The words of a choice. A word after `|` is the former name of a renamed choice, which is still
/// accepted.
macro_rules! words {
    ($($type:ident, $what:literal: $($variant:ident = $word:literal $(| $former:literal)?),*;)*) => {
        $(
            impl fmt::Display for $type {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.pad(match self { $(Self::$variant => $word,)* })
                }
            }

            impl FromStr for $type {
                type Err = String;

                fn from_str(text: &str) -> Result<Self, String> {
                    match text {
                        $($word $(| $former)? => Ok(Self::$variant),)*
                        _ => Err(format!(
                            "\"{text}\" is no {}: give {}",
                            $what,
                            [$($word),*].join(" or "),
                        )),
                    }
                }
            }
        )*
    };
}

words! {
    Durability, "durability": Os = "os", Sync = "sync";
    FilterResidency, "place for filters":
        Pinned = "pinned", Cached = "cached", PinnedLevel0 = "pinned-level-0" | "cached-below-level-0";
    Degraded, "way to read a damaged store": Certain = "certain", LastIntact = "last-intact";
}

/// Options of one write.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    pub(crate) durability: Option<Durability>,
}

impl WriteOptions {
    /// The store's [`Options::durability`](crate::Options::durability).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::WriteOptions;
    /// db.put_with("key", "value", WriteOptions::new())?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// On the device when the write returns.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::WriteOptions;
    /// db.put_with("key", "value", WriteOptions::sync())?; // survives a power failure
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn sync() -> Self {
        Self { durability: Some(Durability::Sync) }
    }

    /// With the operating system when the write returns.
    ///
    /// ```
    /// use trommel::{Db, Durability, Options, WriteOptions};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path(), Options::default().durability(Durability::Sync))?;
    /// db.put_with("key", "value", WriteOptions::os())?; // this one need not be synced
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn os() -> Self {
        Self { durability: Some(Durability::Os) }
    }
}
