//! Changes to one file of a store.

use std::fmt;

use crate::stores::Image;

/// The unit in which a disk loses data, in bytes.
pub(crate) const SECTOR: usize = 512;
/// The unit in which a file system caches files, in bytes.
pub(crate) const PAGE: usize = 4096;

/// A change.
#[derive(Clone)]
pub(crate) enum Injury {
    /// One bit flipped.
    Flip { at: usize, bit: u8 },
    /// A byte overwritten.
    Set { at: usize, to: u8 },
    /// The file truncated.
    Cut { bytes: usize },
    /// The file deleted.
    Delete,
    /// Bytes appended to the file.
    Extend(Vec<u8>),
    /// The whole file replaced.
    Replace(Vec<u8>),
    /// The file swapped with another.
    Swap { with: String },
    /// This many bytes zeroed, a sector or a page.
    Zero { from: usize, bytes: usize },
}

impl Injury {
    /// The name of the counter of such changes.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Self::Flip { .. } => "flips",
            Self::Set { .. } => "bytes_set",
            Self::Cut { .. } => "cuts",
            Self::Delete => "deletions",
            Self::Extend(more) if more.is_empty() => "unharmed",
            Self::Extend(_) => "extensions",
            Self::Replace(_) => "replacements",
            Self::Swap { .. } => "swaps",
            Self::Zero { .. } => "zeroings",
        }
    }

    /// Applies the change to `file` of `image`.
    pub(crate) fn inflict(&self, image: &mut Image, file: &str) {
        if let Self::Delete = self {
            image.remove(file);
            return;
        }
        let mut bytes = image[file].clone();
        match self {
            Self::Flip { at, bit } => bytes[*at] ^= 1 << bit,
            Self::Set { at, to } => bytes[*at] = *to,
            Self::Cut { bytes: left } => bytes.truncate(*left),
            Self::Extend(more) => bytes.extend_from_slice(more),
            Self::Replace(other) => bytes.clone_from(other),
            Self::Swap { with } => {
                let other = image.insert(with.clone(), bytes).expect("it is there");
                bytes = other;
            }
            Self::Zero { from, bytes: count } => {
                let end = (from + count).min(bytes.len());
                bytes[*from..end].fill(0);
            }
            Self::Delete => {}
        }
        image.insert(file.to_owned(), bytes);
    }
}

impl fmt::Display for Injury {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flip { at, bit } => write!(f, "bit {bit} of byte {at} flipped"),
            Self::Set { at, to } => write!(f, "byte {at} set to {to}"),
            Self::Cut { bytes } => write!(f, "cut to {bytes} bytes"),
            Self::Delete => write!(f, "deleted"),
            Self::Extend(more) => write!(f, "{} bytes added", more.len()),
            Self::Replace(other) => write!(f, "replaced by {} other bytes", other.len()),
            Self::Swap { with } => write!(f, "swapped with {with}"),
            Self::Zero { from, bytes } => write!(f, "{bytes} bytes from byte {from} on zeroed"),
        }
    }
}

/// The kind of a file of a store, by its name.
pub(crate) fn kind_of(file: &str) -> &'static str {
    match file {
        "LOCK" => "LOCK",
        "CURRENT" => "CURRENT",
        "OPTIONS" => "options",
        file if file.ends_with(".log") => "log",
        file if file.ends_with(".sst") => "table",
        file if file.ends_with(".flt") => "sidecar",
        file if file.starts_with("MANIFEST-") => "manifest",
        _ => "other",
    }
}
