//! What a power cut took, one thing at a time: for whoever wants to know which of it matters.
//!
//! [`Replay::losses`](super::Replay::losses) says what an image lacks of what readers saw;
//! [`Replay::image_losing`](super::Replay::image_losing) makes the image that lacks some of that.
//! A failure is thus cut down to the few losses that it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::file::{FileState, Sector};
use super::policy::Choices;
use crate::tree::Inode;

/// One thing that a power cut took. Means something at one position of one operation log only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loss(pub(super) Lost);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Lost {
    /// The change of an entry, by its number among those that are not durable.
    Entry(usize),
    /// All of a file but so many bytes.
    Length(Inode, u64),
    /// A sector of a file, which is back at this version.
    Sector(Inode, u64, usize),
    /// The zeros ahead of a file as they were now.
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

/// Keeps all but what is to be lost.
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
