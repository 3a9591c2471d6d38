//! The kinds of memtable, and their names.

use std::fmt;
use std::str::FromStr;

/// How a memtable finds its entries and keeps them in order. It affects no result, only the costs
/// of inserts, lookups and scans.
///
/// ```
/// use trommel_memtable::MemtableKind;
/// assert_eq!("skiplist".parse(), Ok(MemtableKind::SkipList));
/// assert_eq!(MemtableKind::default().to_string(), "hash");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MemtableKind {
    /// A hash table finds a key; entries are sorted when the first scan starts, and inserted in
    /// order from then on. The default: fastest for inserts and lookups.
    #[default]
    Hash,
    /// A skip list, from the crate crossbeam-skiplist, in which each insert takes its place in the
    /// order. No scan sorts, not even the first. Inserts and lookups take several times as long,
    /// and slow down as entries are added.
    SkipList,
}

impl MemtableKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Hash, Self::SkipList];
}

impl fmt::Display for MemtableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hash => "hash",
            Self::SkipList => "skiplist",
        })
    }
}

impl FromStr for MemtableKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|kind| kind.to_string() == text);
        named.ok_or_else(|| {
            let all = Self::ALL.map(|kind| kind.to_string()).join(" or ");
            format!("\"{text}\" is no kind of memtable: give {all}")
        })
    }
}
