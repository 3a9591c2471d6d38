//! The index that finds a key by its hash (module `chains`) and sorts when the first scan starts
//! (module `order`).
//!  An insert links its record in a hash table and appends to a list, under one lock. So an insert
//! or a lookup waits for two or three cache misses, however many entries there are. After a scan an
//! insert also searches a tree.

use std::sync::atomic::Ordering::Relaxed;

use trommel_base::SeqNo;
use trommel_base::sync::linked::AtomicUsize;
use trommel_base::sync::{Mutex, MutexGuard, lock};

use crate::arena::Arena;
use crate::chains::{Chains, Found, Newest, hash_of};
use crate::index::{Index, IndexScan};
use crate::order::{Order, Scan};
use crate::record::Stored;
use crate::slot::{Probe, Slot};

/// A hash table of records, and their order on demand.
#[derive(Default)]
pub(crate) struct HashIndex {
    pub(crate) chains: Newest,
    written: Mutex<Written>,
    /// Bytes of `chains`, and of the memory that `written` points to.
    bytes: AtomicUsize,
    /// The expected number of entries.
    expected: usize,
    /// The secret with which keys are hashed.
    seed: u64,
}

/// The state that is written under a lock.
#[derive(Default)]
pub(crate) struct Written {
    /// Records linked in the newest table.
    linked: usize,
    /// The largest sequence number of all linked records.
    newest: Option<SeqNo>,
    pub(crate) order: Order,
}

impl HashIndex {
    /// An empty index that hashes keys with a secret `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Sizes an empty index for `entries` entries.
    pub(crate) fn expect(&mut self, entries: usize) {
        self.written().order.expect(entries);
        self.expected = entries;
    }

    /// Expects scans during inserts if `before` had any.
    pub(crate) fn follow(&self, before: &Self) {
        if before.written().order.was_scanned {
            self.written().order.expect_scans();
        }
    }

    pub(crate) fn written(&self) -> MutexGuard<'_, Written> {
        // No code under the lock panics between two changes that belong together.
        lock(&self.written)
    }

    /// The table to link the next record in.
    #[inline]
    fn room_for_one<'a>(&'a self, written: &mut Written) -> &'a Chains {
        loop {
            match self.chains.get() {
                Some(chains) if written.linked < chains.capacity() => return chains,
                _ => self.chains.grow(self.expected),
            }
            written.linked = 0;
            self.account(written);
        }
    }

    fn account(&self, written: &Written) {
        let chains = self.chains.get().map_or(0, Chains::bytes);
        self.bytes.store(chains + written.order.bytes(), Relaxed);
    }

    /// As `find`, for a bucket with very many records. Takes the lock, and sorts the unsorted
    /// entries.
    #[cold]
    fn find_by_order<'a>(
        &self,
        arena: &'a Arena,
        common_prefix: &[u8],
        key: &[u8],
        seqno: SeqNo,
    ) -> Option<Stored<'a>> {
        let mut scan = self.scan(None);
        scan.seek(&Probe::new(common_prefix, key, seqno));
        scan.record(arena).filter(|record| record.key() == key)
    }
}

impl Index for HashIndex {
    type Scan = Scan;

    #[inline]
    fn insert(&self, record: Stored<'_>, slot: Slot, len: &AtomicUsize) -> bool {
        let hash = hash_of(record.key(), self.seed);
        let mut written = self.written();
        let chains = self.room_for_one(&mut written);
        len.store(len.load(Relaxed) + 1, Relaxed);
        let seqno = record.seqno();
        if written.newest < Some(seqno) {
            // The usual case: no linked record has to be read.
            chains.link_newest(hash, record);
            written.newest = Some(seqno);
        } else if !chains.link(hash, record) {
            len.store(len.load(Relaxed) - 1, Relaxed);
            return false;
        }
        written.linked += 1;
        let held = written.order.bytes();
        written.order.push(slot);
        if written.order.bytes() != held {
            self.account(&written);
        }
        true
    }

    #[inline]
    fn prefetch(&self, key: &[u8]) {
        if let Some(chains) = self.chains.get() {
            chains.prefetch(hash_of(key, self.seed));
        }
    }

    #[inline]
    fn find<'a>(
        &'a self,
        arena: &'a Arena,
        common_prefix: &[u8],
        key: &[u8],
        seqno: SeqNo,
    ) -> Option<Stored<'a>> {
        // Empty in a store that is only read.
        match self.chains.get()?.find(hash_of(key, self.seed), key, seqno) {
            Found::Version(record) => Some(record),
            Found::Nothing => None,
            Found::GaveUp => self.find_by_order(arena, common_prefix, key, seqno),
        }
    }

    fn ends(&self) -> Option<[Slot; 2]> {
        self.written().order.ends()
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// The first scan sorts all entries into a run.
    fn scan(&self, moment: Option<SeqNo>) -> Scan {
        let mut written = self.written();
        let scan = written.order.scan(moment);
        self.account(&written);
        scan
    }
}
