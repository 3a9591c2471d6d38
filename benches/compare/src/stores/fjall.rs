//! fjall.

use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    HashRatioPolicy, PartitioningPolicy, PinningPolicy,
};
use fjall::{
    AbstractTree, CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions,
    OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable,
};
use trommel_harness::{Direction, Level, Operation, Store, StoreError, Visit};

use crate::settings::Settings;
use crate::stores::accounts::{balance_of, moved};
use crate::stores::{self, Accounts, Facts};

/// The options of fjall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Its own filters, and the block options that its documentation advises for data in memory.
    pub(crate) best: bool,
}

/// Time without background activity after which the store counts as idle. It has no call that
/// waits; between a flush and the compaction that follows its counters are zero for a moment.
const QUIET: Duration = Duration::from_millis(50);
/// Time between two reads of its counters.
const POLL: Duration = Duration::from_millis(2);
/// Hash buckets per entry of a data block, in the best set-up.
const HASH_RATIO: f32 = 0.75;
/// Keys in a batch when those of a range are deleted.
const DELETED_TOGETHER: usize = 1000;
/// Its number of levels.
const LEVELS: usize = 7;

pub(crate) struct FjallStore {
    db: Database,
    keys: Keyspace,
}

impl FjallStore {
    pub(crate) fn open(
        dir: &Path,
        settings: &Settings,
        variant: Variant,
    ) -> Result<Self, StoreError> {
        let db = Database::builder(dir)
            .cache_size(settings.cache_bytes)
            .journal_compression(CompressionType::None)
            .worker_threads(settings.background_threads)
            .open()?;
        let keys = db.keyspace("default", || options(settings, variant))?;
        Ok(Self { db, keys })
    }

    fn commit(
        &self,
        operations: &[Operation<'_>],
        durability: Option<PersistMode>,
    ) -> Result<(), StoreError> {
        let mut batch = self.db.batch().durability(durability);
        for operation in operations {
            match *operation {
                Operation::Put { key, value } => batch.insert(&self.keys, key, value),
                Operation::Delete { key } => batch.remove(&self.keys, key),
            }
        }
        Ok(batch.commit()?)
    }

    fn is_busy(&self) -> bool {
        self.db.outstanding_flushes() > 0
            || self.db.active_compactions() > 0
            || self.keys.sealed_memtable_count() > 0
    }
}

fn options(settings: &Settings, variant: Variant) -> KeyspaceCreateOptions {
    let shape = Leveled::default()
        .with_l0_threshold(settings.l0_trigger as u8)
        .with_table_target_size(settings.table_bytes)
        .with_level_ratio_policy(vec![settings.level_ratio as f32]);
    let options = KeyspaceCreateOptions::default()
        .with_kv_separation(None)
        .max_memtable_size(settings.write_buffer_bytes)
        .data_block_size_policy(BlockSizePolicy::all(settings.block_bytes as u32))
        .data_block_compression_policy(CompressionPolicy::disabled())
        .index_block_compression_policy(CompressionPolicy::disabled())
        .compaction_strategy(Arc::new(shape));
    if variant.best {
        return options
            .data_block_hash_ratio_policy(HashRatioPolicy::all(HASH_RATIO))
            .filter_block_pinning_policy(PinningPolicy::all(true))
            .index_block_pinning_policy(PinningPolicy::all(true))
            .filter_block_partitioning_policy(PartitioningPolicy::all(false))
            .index_block_partitioning_policy(PartitioningPolicy::all(false));
    }
    let filter = BloomConstructionPolicy::BitsPerKey(settings.filter_bits as f32);
    options.filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(filter)))
}

/// The fairness block of this set-up.
pub(crate) fn facts(settings: &Settings, variant: Variant) -> Facts {
    let mut facts = stores::tree_facts(settings);
    // It has no option for the base level: that is the table size times the trigger.
    let base = settings.table_bytes * settings.l0_trigger as u64;
    let (filter, tuned) = if variant.best {
        (
            "its default: level 0 one false positive in 10,000, below 10 bits a key".into(),
            "hash index in data blocks (0.75), filters and indexes whole and pinned",
        )
    } else {
        (format!("standard Bloom, {} bits a key", settings.filter_bits), "nothing")
    };
    facts.extend([
        ("version", format!("fjall {}", stores::locked("fjall"))),
        ("writes", stores::SINGLE.into()),
        ("log", stores::log(settings, true).into()),
        ("filter", filter),
        ("cache", stores::size(settings.cache_bytes)),
        ("tables are read by", "pread".into()),
        ("checksum of a block", stores::VERIFIED_ONCE.into()),
        ("full memtables that may wait", "unlimited".into()),
        ("level-0 runs that slow, stop writers", "its own (20, 30)".into()),
        ("base level", stores::size(base)),
        ("tuned besides", tuned.into()),
    ]);
    facts
}

impl Store for FjallStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        Ok(self.keys.insert(key, value)?)
    }

    fn write(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        self.commit(operations, None)
    }

    fn write_durably(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        self.commit(operations, Some(PersistMode::SyncData))
    }

    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        Ok(self.keys.remove(key)?)
    }

    /// It has no such call: scans the keys and removes them, many in a batch.
    fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        let mut keys = self.keys.range(from..to).map(Guard::key);
        loop {
            let some = keys.by_ref().take(DELETED_TOGETHER).collect::<Result<Vec<_>, _>>()?;
            if some.is_empty() {
                return Ok(());
            }
            let operations: Vec<_> = some.iter().map(|key| Operation::Delete { key }).collect();
            self.commit(&operations, None)?;
        }
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, StoreError> {
        Ok(self.keys.get(key)?.map(|value| found(&value)).is_some())
    }

    fn scan(
        &self,
        start: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut entries = match (start, direction) {
            (None, _) => self.keys.iter(),
            (Some(start), Direction::Forward) => self.keys.range(start..),
            (Some(start), Direction::Backward) => self.keys.range(..=start),
        };
        let mut next = || match direction {
            Direction::Forward => entries.next(),
            Direction::Backward => entries.next_back(),
        };
        while let Some(entry) = next().map(Guard::into_inner) {
            let (key, value) = entry?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(self.keys.rotate_memtable_and_wait()?)
    }

    fn settle(&self) -> Result<(), StoreError> {
        let mut quiet_since = Instant::now();
        while quiet_since.elapsed() < QUIET {
            if self.is_busy() {
                quiet_since = Instant::now();
            }
            sleep(POLL);
        }
        Ok(())
    }

    fn compact(&self) -> Result<(), StoreError> {
        Ok(self.keys.major_compact()?)
    }

    fn verify(&self) -> Result<String, StoreError> {
        stores::count_entries(self)
    }

    fn close(self: Arc<Self>) -> Result<(), StoreError> {
        Ok(self.db.persist(PersistMode::Buffer)?)
    }

    /// It reports the number of tables per level, but only the total of their bytes.
    fn levels(&self) -> Vec<Level> {
        let tables = |level| self.keys.tree.level_table_count(level).unwrap_or(0) as u64;
        let levels = (0..LEVELS).map(|level| Level { level, files: tables(level), bytes: 0 });
        levels.filter(|level| level.files > 0).collect()
    }
}

/// fjall with optimistic transactions.
pub(crate) struct FjallAccounts {
    db: OptimisticTxDatabase,
    keys: OptimisticTxKeyspace,
}

impl FjallAccounts {
    pub(crate) fn open(
        dir: &Path,
        settings: &Settings,
        variant: Variant,
    ) -> Result<Self, StoreError> {
        let db = OptimisticTxDatabase::builder(dir)
            .cache_size(settings.cache_bytes)
            .journal_compression(CompressionType::None)
            .worker_threads(settings.background_threads)
            .open()?;
        let keys = db.keyspace("default", || options(settings, variant))?;
        Ok(Self { db, keys })
    }
}

impl Accounts for FjallAccounts {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        Ok(self.keys.insert(key, value)?)
    }

    fn transfer(&self, from: &[u8], to: &[u8]) -> Result<u64, StoreError> {
        let mut conflicts = 0;
        loop {
            let mut transaction = self.db.write_tx()?;
            let source = transaction.get(&self.keys, from)?;
            let [lower, higher] = moved(source, transaction.get(&self.keys, to)?)?;
            transaction.insert(&self.keys, from, lower);
            transaction.insert(&self.keys, to, higher);
            match transaction.commit()? {
                Ok(()) => return Ok(conflicts),
                Err(_) => conflicts += 1,
            }
        }
    }

    fn balance(&self, key: &[u8]) -> Result<u64, StoreError> {
        balance_of(self.keys.get(key)?)
    }
}
