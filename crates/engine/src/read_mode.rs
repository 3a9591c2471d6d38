//! How blocks are read from tables.

use std::fmt;
use std::str::FromStr;

use trommel_vfs::Access;

/// How blocks are read from tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReadMode {
    /// `pread` and the block cache; values share the verified block. The default.
    #[default]
    Cached,
    /// Read-only maps of the table files; values are copied out. Faster if the data fits in
    /// memory, with a weaker guarantee: an I/O error, or another program that truncates a file,
    /// ends the process with a signal instead of an error.
    Mapped(Verify),
    /// `O_DIRECT` and the block cache: the page cache holds nothing twice.
    Direct,
}

/// How often a block in a map is verified. Compactions and [`Db::verify`](crate::Db::verify) verify
/// it each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verify {
    /// At each use.
    EachUse,
    /// By lookups at their first use of the block since its table was opened; by iterators at each
    /// use. Faster, with a weaker guarantee: lookups do not detect later corruption, as when the
    /// system drops a page and reads it again from a failing disk.
    Once,
    /// At the first use by either a lookup or an iterator: the fastest mode for uncompressed data
    /// that fits in memory. The guarantee is weaker still: neither lookups nor iterators detect
    /// changes to a block after its first use, and a value lent by a cursor can change while the
    /// cursor stays on it.
    Trusted,
}

impl fmt::Display for ReadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cached => "cached",
            Self::Mapped(Verify::EachUse) => "mapped",
            Self::Mapped(Verify::Once) => "mapped-once",
            Self::Mapped(Verify::Trusted) => "mapped-trusted",
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
    pub const ALL: [Self; 5] = [
        Self::Cached,
        Self::Mapped(Verify::EachUse),
        Self::Mapped(Verify::Once),
        Self::Mapped(Verify::Trusted),
        Self::Direct,
    ];

    /// Whether a scan copies each block that it enters, all of it.
    pub(crate) fn copies_for_scans(self) -> bool {
        matches!(self, Self::Mapped(Verify::EachUse | Verify::Once))
    }

    /// Whether iterators trust a block of a map that was verified before.
    pub(crate) fn trusts_verified(self) -> bool {
        self == Self::Mapped(Verify::Trusted)
    }

    /// Whether lookups verify a block of a map once.
    pub(crate) fn verifies_once(self) -> bool {
        matches!(self, Self::Mapped(Verify::Once | Verify::Trusted))
    }

    pub(crate) fn access(self) -> Access {
        match self {
            Self::Cached => Access::Buffered,
            Self::Mapped(_) => Access::Mapped,
            Self::Direct => Access::Direct,
        }
    }
}
