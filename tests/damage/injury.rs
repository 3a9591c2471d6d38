//! What is done to one file of a store.

use std::fmt;

use crate::stores::Image;

/// The unit in which a disk loses data, in bytes.
pub(crate) const SECTOR: usize = 512;
/// The unit in which a file system caches files, in bytes.
pub(crate) const PAGE: usize = 4096;

/// An injury.
#[derive(Clone)]
pub(crate) enum Injury {
    /// One bit is another.
    Flip { at: usize, bit: u8 },
    /// A byte is this one.
    Set { at: usize, to: u8 },
    /// The file ends here.
    Cut { bytes: usize },
    /// The file is gone.
    Delete,
    /// The file goes on with this.
    Extend(Vec<u8>),
    /// The file is this instead.
    Replace(Vec<u8>),
    /// The file has changed places with another.
    Swap { with: String },
    /// So many bytes from here on, a sector or a page, are zeros.
    Zero { from: usize, bytes: usize },
}

impl Injury {
    /// What such injuries are counted as.
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

    /// Does it to `file` of `image`.
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

/// What a file of a store is, by its name.
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
