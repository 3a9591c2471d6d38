//! How table blocks reach memory.

use std::fmt;
use std::str::FromStr;

use trommel_vfs::Access;

/// How table blocks reach memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReadMode {
    /// `pread` and the block cache; values share the verified block. The default.
    #[default]
    Cached,
    /// Read-only maps of the table files; values are copied out. Faster when the data fits in
    /// memory, with a weaker promise: an I/O error, or an outsider who truncates a file, ends the
    /// process with a signal instead of an error. A block is verified at each use.
    Mapped,
    /// As `Mapped`, but a lookup verifies a block when it is the first to use it since the table
    /// was opened, and not again: faster still. The weaker promise: damage that the file system
    /// lets in behind the map after that, as when a page is dropped and read again from a failing
    /// disk, is returned as it is. Iterators and compactions verify every time.
    MappedOnce,
    /// As `MappedOnce`, and iterators too take what a lookup or an iterator verified for intact:
    /// the fastest there is for data that fits in memory and is not compressed. The weaker promise:
    /// neither lookups nor iterators see what changes in a block after its first use, and a value
    /// that a cursor lends can change while it stands. Compactions and
    /// [`verify`](crate::Db::verify) verify every time.
    MappedTrusted,
    /// `O_DIRECT` and the block cache: the page cache holds nothing twice.
    Direct,
}

impl fmt::Display for ReadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cached => "cached",
            Self::Mapped => "mapped",
            Self::MappedOnce => "mapped-once",
            Self::MappedTrusted => "mapped-trusted",
            Self::Direct => "direct",
        })
    }
}

impl FromStr for ReadMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|mode| mode.to_string() == text);
        named.ok_or_else(|| {
            let all = Self::ALL.map(|mode| mode.to_string()).join(", ");
            format!("\"{text}\" is no read mode: give one of {all}")
        })
    }
}

impl ReadMode {
    /// Every mode.
    pub const ALL: [Self; 5] =
        [Self::Cached, Self::Mapped, Self::MappedOnce, Self::MappedTrusted, Self::Direct];

    /// Whether a walk copies each block that it enters, all of it.
    pub(crate) fn copies_for_walks(self) -> bool {
        matches!(self, Self::Mapped | Self::MappedOnce)
    }

    /// Whether iterators take a block of a map that was verified before for intact.
    pub(crate) fn trusts_verified(self) -> bool {
        self == Self::MappedTrusted
    }

    /// Whether lookups verify a block of a map once.
    pub(crate) fn verifies_once(self) -> bool {
        matches!(self, Self::MappedOnce | Self::MappedTrusted)
    }

    pub(crate) fn access(self) -> Access {
        match self {
            Self::Cached => Access::Buffered,
            Self::Mapped | Self::MappedOnce | Self::MappedTrusted => Access::Mapped,
            Self::Direct => Access::Direct,
        }
    }
}
