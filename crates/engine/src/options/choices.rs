//! Settings that are one of a few words, and the options of one write.

use std::fmt;
use std::str::FromStr;

/// How far a write has got when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// It is with the operating system: it survives the death of the process, but may be lost,
    /// with everything written after it, when the machine loses power.
    #[default]
    Os,
    /// It is on the device: it survives power loss, and so does every write before it.
    Sync,
}

/// Where filters are in memory once they have been read, which is when they are first probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FilterResidency {
    /// With their open table, up to
    /// [`pinned_filter_bytes`](crate::settings::FilterSettings::pinned_filter_bytes); what does not
    /// fit goes to the block cache, as with `Cached`, and is not used if it does not fit there
    /// either. Found by one load, without a lock. The default.
    #[default]
    Pinned,
    /// In the block cache, beside the blocks and evicted like them. A filter (or a partition of
    /// one, see [`filter_shape`](crate::settings::FilterSettings::filter_shape)) of more than half
    /// a shard of the cache is not used, and counted
    /// ([`FilterStats::not_held`](crate::FilterStats::not_held)): a shard is a 64th of a cache
    /// of 64 MiB and more, about 1 MiB of a smaller one.
    Cached,
    /// As `Cached`, but those of tables that were written for level 0 as `Pinned`: lookups query
    /// them first, and most often.
    PinnedLevel0,
}

/// What a degraded open returns where the keys of lost writes are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Degraded {
    /// Nothing: every read is [`Error::InDoubt`](crate::Error::InDoubt).
    Certain,
    /// What was true once: the state before the first write that is lost.
    LastIntact,
}

/// The words of a choice. After `|` is the former word of a renamed one, which is still read.
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
    /// As the store's [`Options::durability`](crate::Options::durability) says.
    pub fn new() -> Self {
        Self::default()
    }

    /// On the device when the write returns.
    pub fn sync() -> Self {
        Self { durability: Some(Durability::Sync) }
    }

    /// With the operating system when the write returns.
    pub fn os() -> Self {
        Self { durability: Some(Durability::Os) }
    }
}
