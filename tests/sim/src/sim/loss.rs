//! The single losses of a power cut, to find out which of them matter.
//!
//! [`Replay::losses`](super::Replay::losses) lists what an image lacks relative to what readers
//! saw; [`Replay::image_losing`](super::Replay::image_losing) makes the image with some of these
//! losses. So a failure can be reduced to the few losses that cause it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::file::{FileState, Sector};
use super::policy::Choices;
use crate::tree::Inode;

/// One loss of a power cut. Only meaningful at one position of one operation log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loss(pub(super) Lost);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Lost {
    /// The change of an entry, by its number among those that are not durable.
    Entry(usize),
    /// All of a file after this many bytes.
    Length(Inode, u64),
    /// A sector of a file, which reverts to this version.
    Sector(Inode, u64, usize),
    /// The current end of a file's preallocated zeros.
    Zeros(Inode),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Lost::Entry(number) => write!(f, "change {number} of an entry"),
            Lost::Length(inode, bytes) => write!(f, "file {inode} behind byte {bytes}"),
            Lost::Sector(inode, number, version) => {
                write!(f, "sector {number} of file {inode}, which has its version {version}")
            }
            Lost::Zeros(inode) => write!(f, "how far zeros reached in file {inode}"),
        }
    }
}

/// Keeps everything except the given losses.
#[derive(Debug, Default)]
pub(super) struct Losing {
    entries: BTreeSet<usize>,
    lengths: BTreeMap<Inode, u64>,
    sectors: BTreeMap<(Inode, u64), usize>,
    zeros: BTreeSet<Inode>,
}

impl Losing {
    pub(super) fn new(losses: &[Loss]) -> Self {
        let mut losing = Self::default();
        for loss in losses {
            match loss.0 {
                Lost::Entry(number) => {
                    losing.entries.insert(number);
                }
                Lost::Length(inode, bytes) => {
                    losing.lengths.insert(inode, bytes);
                }
                Lost::Sector(inode, number, version) => {
                    losing.sectors.insert((inode, number), version);
                }
                Lost::Zeros(inode) => {
                    losing.zeros.insert(inode);
                }
            }
        }
        losing
    }
}

impl Choices for Losing {
    fn keep_entry(&mut self, number: usize) -> bool {
        !self.entries.contains(&number)
    }

    fn length(&mut self, inode: Inode, file: &FileState) -> u64 {
        self.lengths.get(&inode).copied().unwrap_or(file.content().bytes())
    }

    fn version(&mut self, inode: Inode, sector: &Sector<'_>) -> usize {
        let newest = sector.versions() - 1;
        self.sectors.get(&(inode, sector.number)).copied().unwrap_or(newest)
    }

    fn keep_zeros(&mut self, inode: Inode) -> bool {
        !self.zeros.contains(&inode)
    }

    fn pick(&mut self, _: u64) -> u64 {
        0
    }
}
