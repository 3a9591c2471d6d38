//! How a power cut chooses among the legal results.
//!
//! The kinds of power cut by their numbers in the literature on crash consistency of stores, and
//! their equivalents here:
//!
//! | | what survives | here |
//! |---|---|---|
//! | P1 | only what was synced | [`Policy::SYNCED`] |
//! | P2 | everything | [`Policy::EVERYTHING`] |
//! | P3 | a prefix of all operations | [`Policy::EVERYTHING`] at each position of a [`Replay`] |
//! | P4 | a prefix, its last append torn at any byte | [`Data::Torn`], with [`Entries::All`] |
//! | P5 | any pages of 4 KiB | [`Data::Pages`] |
//! | P6 | any sectors of 512 bytes | [`Data::Random`] |
//! | P7 | lengths, but zeros for bytes | [`Data::Zeroed`] |
//! | P8 | lengths, but stale bytes of other files | [`Data::Stale`], [`Policy::STALE`] |
//! | P9 | bytes without entries; entries without bytes | [`Policy::BYTES_ONLY`], [`Policy::NAMES_ONLY`] |
//! | P10 | not even what a sync that lied called durable | [`Fault::lying_sync`] |
//! | all | each way to decide, where few decisions are open | [`Replay::images_exhaustive`] |
//!
//! A store cannot keep its promise on a disk that lies (P10), nor always distinguish stale bytes of
//! its own (P8) from corruption: it must report an error and never answer wrongly. So these two are
//! in no list of policies under which nothing may be lost.
//!
//! [`Replay`]: super::Replay
//! [`Replay::images_exhaustive`]: super::Replay::images_exhaustive
//! [`Fault::lying_sync`]: super::Fault::lying_sync

use std::fmt;

use super::SECTOR_BYTES;
use super::file::{FileState, Sector};
use crate::tree::Inode;

/// The fate of directory entries that are not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Entries {
    /// All changes are lost.
    Synced,
    /// All changes are kept.
    All,
    /// Each change is kept or lost, depending on the seed.
    Random,
}

/// The fate of bytes that are not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Data {
    /// They are lost, and the file's length with them.
    Synced,
    /// They read as zeros; the file keeps its length.
    Zeroed,
    /// They are kept.
    All,
    /// They are kept, except the end of the last append of all: it reads as zeros from a sector
    /// boundary (or its start) on, or the file ends there, or at any byte, depending on the seed.
    Torn,
    /// Each sector holds its old version, the newest, or one in between, and each file keeps its
    /// length, or loses some, depending on the seed.
    Random,
    /// Like [`Random`](Data::Random), but the eight sectors of a page share one fate.
    Pages,
    /// Files keep their length. Each sector that is new to its file holds the newest version, or
    /// zeros, or earlier content of the disk: a sector of another file of this disk, most often the
    /// one at the same offset, so that content that was valid there looks valid here. Depends on
    /// the seed.
    Stale,
}

/// A kind of power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The fate of directory entries.
    pub entries: Entries,
    /// The fate of files' bytes.
    pub data: Data,
}

impl Policy {
    /// Only synced data survives.
    pub const SYNCED: Self = Self::new(Entries::Synced, Data::Synced);
    /// Everything survives, as when a process is killed and the system runs on.
    pub const EVERYTHING: Self = Self::new(Entries::All, Data::All);
    /// Bytes survive, but not the names of new files.
    pub const BYTES_ONLY: Self = Self::new(Entries::Synced, Data::All);
    /// Names survive, but not the bytes written under them.
    pub const NAMES_ONLY: Self = Self::new(Entries::All, Data::Synced);
    /// Anything legal may happen.
    pub const RANDOM: Self = Self::new(Entries::Random, Data::Random);

    /// Every policy under which a sector never holds bytes that were not written there. Those
    /// without randomness come first, and need only one seed.
    pub const ALL: [Self; 18] = [
        Self::SYNCED,
        Self::EVERYTHING,
        Self::NAMES_ONLY,
        Self::new(Entries::All, Data::Zeroed),
        Self::BYTES_ONLY,
        Self::new(Entries::Synced, Data::Zeroed),
        Self::new(Entries::All, Data::Torn),
        Self::new(Entries::All, Data::Random),
        Self::new(Entries::Synced, Data::Torn),
        Self::new(Entries::Synced, Data::Random),
        Self::new(Entries::Random, Data::Synced),
        Self::new(Entries::Random, Data::Zeroed),
        Self::new(Entries::Random, Data::All),
        Self::new(Entries::Random, Data::Torn),
        Self::RANDOM,
        Self::new(Entries::All, Data::Pages),
        Self::new(Entries::Synced, Data::Pages),
        Self::new(Entries::Random, Data::Pages),
    ];

    /// The policies of file systems that expose stale bytes after a file's durable end.
    pub const STALE: [Self; 3] = [
        Self::new(Entries::All, Data::Stale),
        Self::new(Entries::Synced, Data::Stale),
        Self::new(Entries::Random, Data::Stale),
    ];

    /// A policy for these entries and these bytes.
    pub const fn new(entries: Entries, data: Data) -> Self {
        Self { entries, data }
    }

    /// Whether the result depends on the seed.
    pub fn is_random(self) -> bool {
        let random = [Data::Torn, Data::Random, Data::Pages, Data::Stale];
        matches!(self.entries, Entries::Random) || random.contains(&self.data)
    }
}

impl fmt::Display for Policy {
    /// For example `entries=All data=Torn`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entries={:?} data={:?}", self.entries, self.data)
    }
}

/// The decisions of a power cut.
pub(super) trait Choices {
    /// Whether the pending change of an entry with this number is kept.
    fn keep_entry(&mut self, number: usize) -> bool;

    /// The length of the file. Called once, before `version` for its sectors.
    fn length(&mut self, inode: Inode, file: &FileState) -> u64;

    /// The version of the sector. Called in ascending order.
    fn version(&mut self, inode: Inode, sector: &Sector<'_>) -> usize;

    /// Whether preallocated zeros end where they do now, not where a sync last made them durable.
    /// Called once, after the sectors, if there is a difference.
    fn keep_zeros(&mut self, _: Inode) -> bool {
        self.pick(2) == 0
    }

    /// A number below `options`, which is at least one.
    fn pick(&mut self, options: u64) -> u64;
}

/// Decides by a seed. The seed also determines how much is kept overall, so that few losses and few
/// survivors are as common as halves.
#[derive(Debug)]
pub(super) struct Seeded {
    state: u64,
    /// How many things of 16 are kept.
    keep: u64,
    /// Whether sectors share the fate of their page.
    pages: bool,
    /// The last page visited, and whether it was kept.
    page: Option<(u64, bool)>,
}

const SECTORS_PER_PAGE: u64 = 4096 / SECTOR_BYTES;

impl Seeded {
    pub(super) fn new(policy: Policy, seed: u64) -> Self {
        let pages = policy.data == Data::Pages;
        let mut choices = Self { state: seed, keep: 0, pages, page: None };
        let densities = [1, 4, 8, 12, 15];
        let density = choices.pick(densities.len() as u64) as usize;
        choices.keep = densities.get(density).copied().unwrap_or(8);
        choices
    }

    /// `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn keep(&mut self) -> bool {
        self.pick(16) < self.keep
    }
}

impl Choices for Seeded {
    fn keep_entry(&mut self, _: usize) -> bool {
        self.keep()
    }

    fn length(&mut self, _: Inode, file: &FileState) -> u64 {
        self.page = None;
        let (durable, live) = (file.durable_bytes(), file.content().bytes());
        let lengths = file.volatile_lengths();
        if lengths.is_empty() || self.pick(2) == 0 {
            return live;
        }
        if self.pick(2) == 0 {
            let at = self.pick(lengths.len() as u64 + 1) as usize;
            return lengths.get(at).copied().unwrap_or(durable);
        }
        let boundary = (durable / SECTOR_BYTES + 1) * SECTOR_BYTES;
        let boundaries = (live.div_ceil(SECTOR_BYTES) * SECTOR_BYTES - boundary) / SECTOR_BYTES;
        (boundary + self.pick(boundaries + 1) * SECTOR_BYTES).min(live)
    }

    fn version(&mut self, _: Inode, sector: &Sector<'_>) -> usize {
        let newest = sector.versions() - 1;
        if self.pages {
            let page = sector.number / SECTORS_PER_PAGE;
            let kept = match self.page {
                Some((last, kept)) if last == page => kept,
                _ => self.keep(),
            };
            self.page = Some((page, kept));
            return if kept { newest } else { 0 };
        }
        if self.keep() { newest } else { self.pick(newest as u64) as usize }
    }

    fn pick(&mut self, options: u64) -> u64 {
        self.next() % options
    }
}

/// Makes all decisions, one set after the other: a depth-first search of the tree of choices.
#[derive(Debug, Default)]
pub(super) struct Exhaustive {
    /// The choices of this pass so far, with the number of options of each.
    taken: Vec<(u64, u64)>,
    position: usize,
}

impl Exhaustive {
    /// Advances to the next set of decisions; false if all have been tried.
    pub(super) fn advance(&mut self) -> bool {
        self.position = 0;
        while let Some((choice, options)) = self.taken.pop() {
            if choice + 1 < options {
                self.taken.push((choice + 1, options));
                return true;
            }
        }
        false
    }
}

impl Choices for Exhaustive {
    fn keep_entry(&mut self, _: usize) -> bool {
        self.pick(2) == 1
    }

    fn length(&mut self, _: Inode, file: &FileState) -> u64 {
        let lengths = file.volatile_lengths();
        let at = self.pick(lengths.len() as u64 + 1) as usize;
        lengths.get(at).copied().unwrap_or(file.durable_bytes())
    }

    fn version(&mut self, _: Inode, sector: &Sector<'_>) -> usize {
        self.pick(sector.versions() as u64) as usize
    }

    fn pick(&mut self, options: u64) -> u64 {
        let choice = match self.taken.get(self.position) {
            Some(&(choice, _)) => choice,
            None => {
                self.taken.push((0, options));
                0
            }
        };
        self.position += 1;
        choice
    }
}
