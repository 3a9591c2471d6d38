//! Reads the blocks of one table's filters, with the host that grants them memory, and records what
//! is unusable.
//!
//! 1. A built-in filter is read chunk by chunk into its aligned memory: it is never in memory
//!    twice.
//! 2. A block is read by one thread at a time: other threads wait for the [`ReadGuard`] and find
//!    the block in memory. No thread waits for a user-defined filter, since opening it runs user
//!    code.

use std::sync::{Arc, OnceLock};

use trommel_base::sync::{Condvar, Mutex, lock, wait};
use trommel_filter::{DecodeError, Filter, RangeFilter};
use trommel_vfs::advise_huge_pages;

use crate::Error;
use crate::filter_block::{FilterBlock, PartitionIndex};
use crate::filter_host::{FilterHost, FilterState, PinCharge};
use crate::format::{BlockKind, Handle};
use crate::index::Index;
use crate::source::Source;
use crate::user_filter::{OpenUserFilter, UserFilterReader};

const NO_READER: &str = "its policy is not here";

/// Reads filter blocks, and records which are unusable.
#[derive(Debug)]
pub(super) struct BlockLoader {
    /// The file with the blocks.
    pub(super) source: Arc<Source>,
    pub(super) host: Option<Arc<dyn FilterHost>>,
    pub(super) reader: Option<Arc<dyn UserFilterReader>>,
    /// The first corruption found.
    fault: OnceLock<FilterState>,
    /// The first intact filter found that is not used.
    unused: OnceLock<FilterState>,
    read_locks: ReadLocks,
}

impl BlockLoader {
    /// Without a host everything is pinned.
    pub(super) fn new(
        source: Arc<Source>,
        host: Option<Arc<dyn FilterHost>>,
        reader: Option<Arc<dyn UserFilterReader>>,
    ) -> Self {
        Self {
            source,
            host,
            reader,
            fault: OnceLock::new(),
            unused: OnceLock::new(),
            read_locks: ReadLocks::default(),
        }
    }

    /// The first corruption; if there is none, the first unused filter.
    pub(super) fn fault(&self) -> Option<&FilterState> {
        self.fault.get().or(self.unused.get())
    }

    #[cold]
    pub(super) fn note(&self, state: FilterState) {
        let place = match state {
            FilterState::Foreign(_) | FilterState::Unknown(_) | FilterState::Spared => &self.unused,
            _ => &self.fault,
        };
        if place.set(state).is_ok()
            && let (Some(host), Some(state)) = (&self.host, place.get())
        {
            host.unusable(state);
        }
    }

    /// Notifies the host that a block can be held nowhere.
    #[cold]
    pub(super) fn report_not_held(&self) {
        if let Some(host) = &self.host {
            host.not_held();
        }
    }

    /// Charges `bytes` as pinned, if the host grants them.
    pub(super) fn charge(&self, bytes: u64) -> Option<PinCharge> {
        PinCharge::new(self.host.as_ref(), bytes)
    }

    /// Waits until no other thread reads the block at `offset`, and excludes others until dropped.
    pub(super) fn lock_block(&self, offset: u64) -> ReadGuard<'_> {
        self.read_locks.take(offset)
    }

    /// Reads the block at `handle` from the file.
    pub(super) fn read(&self, handle: Handle, form: BlockForm) -> Result<FilterBlock, Unread> {
        let payload = || self.source.read_plain(handle, BlockKind::Filter);
        let block = match form {
            BlockForm::Filter => {
                let kind = BlockKind::Filter;
                let filter = self.source.stream_plain(handle, kind, |from, bytes| {
                    Filter::read(from, bytes, advise_huge_pages)
                })?;
                filter.map(FilterBlock::Filter).map_err(|error| refused(&error))
            }
            BlockForm::Ranges => RangeFilter::decode(&payload()?)
                .map(|filter| FilterBlock::Ranges(Box::new(filter)))
                .map_err(|error| refused(&error)),
            BlockForm::User => self.open_user_filter(&payload()?).map(FilterBlock::User),
            BlockForm::Foreign => {
                payload()?;
                Err(FilterState::Foreign(NO_READER.into()))
            }
            BlockForm::Partitions { first } => {
                let payload = self.source.read_plain(handle, BlockKind::FilterTop)?;
                let index = Index::decode(&payload, handle.offset)
                    .map_err(|fault| fault.at(&self.source.path, handle.offset))?;
                match index.len() > 0 && index.range() == (first, handle.offset) {
                    true => Ok(FilterBlock::Partitions(PartitionIndex::new(index))),
                    false => {
                        Err(FilterState::Damaged("its top does not cover its partitions".into()))
                    }
                }
            }
        };
        Ok(block?)
    }

    fn open_user_filter(&self, bytes: &[u8]) -> Result<OpenUserFilter, FilterState> {
        let reader = self.reader.as_ref().ok_or_else(|| FilterState::Foreign(NO_READER.into()))?;
        OpenUserFilter::open(Arc::clone(reader), bytes).map_err(|why| {
            let name = reader.name();
            FilterState::Foreign(format!("the policy \"{name}\" does not take it: {why}"))
        })
    }
}

/// The blocks being read.
#[derive(Debug, Default)]
struct ReadLocks {
    /// Their offsets.
    being_read: Mutex<Vec<u64>>,
    was_read: Condvar,
}

impl ReadLocks {
    fn take(&self, offset: u64) -> ReadGuard<'_> {
        let mut reading = lock(&self.being_read);
        while reading.contains(&offset) {
            reading = wait(&self.was_read, reading);
        }
        reading.push(offset);
        ReadGuard { read_locks: self, offset }
    }
}

/// The exclusive right to read one block.
pub(super) struct ReadGuard<'a> {
    read_locks: &'a ReadLocks,
    offset: u64,
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        lock(&self.read_locks.being_read).retain(|offset| *offset != self.offset);
        self.read_locks.was_read.notify_all();
    }
}

/// Why a block could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The file system failed to read it; a retry may succeed.
    Failed(Error),
    /// The block is unusable, permanently.
    Useless(FilterState),
}

impl From<FilterState> for Unread {
    fn from(state: FilterState) -> Self {
        Self::Useless(state)
    }
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { .. } => Self::Failed(error),
            Error::Unsupported { .. } => FilterState::Unknown(error.to_string()).into(),
            error => FilterState::Damaged(error.to_string()).into(),
        }
    }
}

fn refused(error: &DecodeError) -> FilterState {
    match error {
        DecodeError::Unknown { .. } => FilterState::Unknown(error.to_string()),
        _ => FilterState::Damaged(error.to_string()),
    }
}

/// How a block of the region is decoded.
#[derive(Debug, Clone, Copy)]
pub(super) enum BlockForm {
    Filter,
    /// A range filter.
    Ranges,
    /// A user-defined filter with a reader.
    User,
    /// A filter that cannot be queried here: only its checksum is verified.
    Foreign,
    /// The index of the partitions from `first` up to the index itself.
    Partitions {
        first: u64,
    },
}

#[cfg(all(test, trommel_loom))]
mod models {
    use std::sync::atomic::Ordering::Relaxed;

    use trommel_base::sync::AtomicUsize;
    use trommel_base::sync::models::{check, thread};

    use super::*;

    /// Three threads want blocks, two of them the same one: each block is read once, by one thread
    /// at a time.
    #[test]
    fn a_filter_block_is_read_by_one_thread_at_a_time() {
        check("a_filter_block_is_read_by_one_thread_at_a_time", || {
            let read_locks = Arc::new(ReadLocks::default());
            let (reading, reads) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let pinned = Arc::new(OnceLock::new());
            let want = {
                let (read_locks, reads) = (Arc::clone(&read_locks), Arc::clone(&reads));
                let (reading, pinned) = (Arc::clone(&reading), Arc::clone(&pinned));
                move |offset: u64| {
                    let _guard = read_locks.take(offset);
                    if offset == 1 && pinned.get().is_none() {
                        assert_eq!(reading.fetch_add(1, Relaxed), 0, "two read one block");
                        reads.fetch_add(1, Relaxed);
                        reading.fetch_sub(1, Relaxed);
                        let _ = pinned.set(());
                    }
                }
            };
            let other = want.clone();
            let third = want.clone();
            let threads = [thread::spawn(move || other(1)), thread::spawn(move || third(2))];
            want(1);
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(reads.load(Relaxed), 1);
            assert!(lock(&read_locks.being_read).is_empty());
        });
    }
}
