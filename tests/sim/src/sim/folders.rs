//! The durability of directory entries.
//!
//! 1. Creating, linking, renaming and removing change the live directory at once. The changes stay
//!    in `pending`, in order, until a directory that they touch is synced.
//! 2. A power cut keeps or drops each of them, under two laws: changes of one name happen in order
//!    (keeping one keeps all earlier ones of that name), and a rename is one change of two names:
//!    both or neither.
//! 3. Syncing a directory makes its pending changes durable, with the earlier ones that the first
//!    law ties to them.
//! 4. After a failed sync of a directory its pending changes stay pending through later syncs,
//!    unless a later change of the same name is synced. (If there was no handle to open the
//!    directory, nothing was tried, and a later sync covers them.)
//! 5. An entry and the bytes of its file are independent. A directory whose own entry is lost is
//!    lost with all its content.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::tree::{Dir, Entry, Inode, Place};

/// The entries of all directories.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    durable: BTreeMap<Inode, Arc<Dir>>,
    pending: Vec<Pending>,
}

#[derive(Debug, Clone)]
struct Pending {
    change: EntryChange,
    /// A sync that should have made it durable failed.
    failed: bool,
}

/// A change of one entry, or of two at once.
#[derive(Debug, Clone)]
pub(super) enum EntryChange {
    Add { place: Place, entry: Entry },
    Remove { place: Place },
    Rename { from: Place, to: Place, inode: Inode },
}

impl EntryChange {
    fn places(&self) -> impl Iterator<Item = &Place> {
        let (first, second) = match self {
            Self::Add { place, .. } | Self::Remove { place } => (place, None),
            Self::Rename { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    fn is_in(&self, dir: Inode) -> bool {
        self.places().any(|place| place.0 == dir)
    }

    fn apply(&self, dirs: &mut BTreeMap<Inode, Arc<Dir>>) {
        let mut set = |place: &Place, entry: Option<Entry>| {
            if let Some(dir) = dirs.get_mut(&place.0).map(Arc::make_mut) {
                match entry {
                    Some(entry) => dir.insert(place.1.clone(), entry),
                    None => dir.remove(&place.1),
                };
            }
        };
        match self {
            Self::Add { place, entry } => set(place, Some(*entry)),
            Self::Remove { place } => set(place, None),
            Self::Rename { from, to, inode } => {
                set(from, None);
                set(to, Some(Entry::File(*inode)));
            }
        }
    }
}

impl Folders {
    /// Directories whose entries are all durable.
    pub(super) fn durable(durable: BTreeMap<Inode, Arc<Dir>>) -> Self {
        Self { durable, pending: Vec::new() }
    }

    /// Adds an empty directory. Its own entry is a separate change.
    pub(super) fn add_dir(&mut self, inode: Inode) {
        self.durable.insert(inode, Arc::default());
    }

    pub(super) fn change(&mut self, change: EntryChange) {
        self.pending.push(Pending { change, failed: false });
    }

    pub(super) fn sync(&mut self, dir: Inode) {
        // From the newest back: a change is durable if it is in the directory, or if a later one of
        // the same name is durable.
        let mut names = BTreeSet::new();
        let mut durable = vec![false; self.pending.len()];
        for (pending, durable) in self.pending.iter().zip(&mut durable).rev() {
            let change = &pending.change;
            *durable = change.is_in(dir) && !pending.failed
                || change.places().any(|place| names.contains(place));
            if *durable {
                names.extend(change.places().cloned());
            }
        }
        let mut durable = durable.into_iter();
        self.pending.retain(|pending| {
            let durable = durable.next().unwrap_or(false);
            if durable {
                pending.change.apply(&mut self.durable);
            }
            !durable
        });
    }

    pub(super) fn fail_sync(&mut self, dir: Inode) {
        for pending in self.pending.iter_mut().filter(|pending| pending.change.is_in(dir)) {
            pending.failed = true;
        }
    }

    /// The number of changes that are not durable.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The directories as a power cut leaves them. `keep` decides by number which of the pending
    /// changes are kept; it is not called for changes that the first law drops.
    pub(super) fn image(&self, mut keep: impl FnMut(usize) -> bool) -> BTreeMap<Inode, Arc<Dir>> {
        let mut dirs = self.durable.clone();
        let mut dropped = BTreeSet::new();
        for (number, Pending { change, .. }) in self.pending.iter().enumerate() {
            if change.places().all(|place| !dropped.contains(place)) && keep(number) {
                change.apply(&mut dirs);
            } else {
                dropped.extend(change.places());
            }
        }
        dirs
    }
}
