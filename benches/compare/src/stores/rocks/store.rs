//! The store.

use std::path::Path;
use std::sync::Arc;

use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, ColumnFamily, ColumnFamilyDescriptor,
    CompactOptions, DB, DBCompressionType, DataBlockIndexType, ErrorKind,
    IngestExternalFileOptions, IteratorMode, OptimisticTransactionDB, OptimisticTransactionOptions,
    Options, ReadOptions, SstFileWriter, WaitForCompactOptions, WriteBatch, WriteOptions,
    statistics::Ticker,
};
use trommel_harness::record::{Io, LookupIo, State};
use trommel_harness::{Direction, Level, Operation, Store, StoreError, Visit};

use super::{MARKED, SetUp, Variant};
use crate::settings::Settings;
use crate::stores::accounts::{balance_of, moved};
use crate::stores::{self, Accounts, Loads, SortedEntries};

/// Entries per hash bucket in a data block, as `OptimizeForPointLookup` sets it.
const HASH_RATIO: f64 = 0.75;

pub(crate) struct RocksStore {
    db: DB,
    write: WriteOptions,
    synced: WriteOptions,
    read: ReadOptions,
    set_up: SetUp,
    /// The options whose statistics are read, if they are enabled.
    counts: Option<Options>,
}

impl RocksStore {
    pub(crate) fn open(
        dir: &Path,
        settings: &Settings,
        variant: Variant,
    ) -> Result<Self, StoreError> {
        let options = options(settings, variant);
        // Only a column family that is named here has a handle, which a batched multi-get needs.
        let family = ColumnFamilyDescriptor::new("default", options.clone());
        let db = DB::open_cf_descriptors(&options, dir, [family])?;
        let mut write = WriteOptions::default();
        write.disable_wal(!variant.log);
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        let (set_up, read) = (variant.set_up, read_options(variant.set_up));
        let counts = settings.counted.then_some(options);
        Ok(Self { db, write, synced, read, set_up, counts })
    }

    fn family(&self) -> Result<&ColumnFamily, StoreError> {
        self.db.cf_handle("default").ok_or_else(|| "RocksDB lost its default column family".into())
    }
}

/// The options of lookups and scans.
fn read_options(set_up: SetUp) -> ReadOptions {
    let mut read = ReadOptions::default();
    // A mapped block is used in place, and would be verified again at each read.
    read.set_verify_checksums(set_up != SetUp::Mapped);
    read
}

fn options(settings: &Settings, variant: Variant) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_bottommost_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(settings.write_buffer_bytes as usize);
    options.set_max_write_buffer_number(settings.frozen_memtables as i32 + 1);
    options.set_level_zero_file_num_compaction_trigger(settings.l0_trigger as i32);
    options.set_max_bytes_for_level_base(settings.base_level_bytes);
    options.set_max_bytes_for_level_multiplier(f64::from(settings.level_ratio));
    options.set_target_file_size_base(settings.table_bytes);
    options.set_max_background_jobs(settings.background_threads as i32);
    options.set_max_open_files(-1);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_block_based_table_factory(&table_options(settings, variant));
    options.set_allow_mmap_reads(variant.set_up == SetUp::Mapped);
    options.set_use_direct_reads(variant.set_up == SetUp::Direct);
    if settings.counted {
        options.enable_statistics();
    }
    if settings.deletes {
        let (entries, tombstones, part) = MARKED;
        options.add_compact_on_deletion_collector_factory(entries, tombstones, part);
    }
    if variant.set_up == SetUp::Equal {
        options.set_level_zero_slowdown_writes_trigger(settings.l0_slowdown as i32);
        options.set_level_zero_stop_writes_trigger(settings.l0_stop as i32);
    } else {
        options.set_enable_pipelined_write(true);
        options.set_bytes_per_sync(1 << 20);
    }
    options
}

fn table_options(settings: &Settings, variant: Variant) -> BlockBasedOptions {
    let cache_bytes = settings.cache_bytes as usize;
    let mut table = BlockBasedOptions::default();
    table.set_block_size(settings.block_bytes as usize);
    table.set_bloom_filter(settings.filter_bits, false);
    if variant.set_up != SetUp::Equal {
        table.set_block_cache(&Cache::new_hyper_clock_cache(cache_bytes, 0));
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(HASH_RATIO);
        table.set_optimize_filters_for_memory(true);
        table.set_format_version(6);
    } else {
        table.set_block_cache(&Cache::new_lru_cache(cache_bytes));
    }
    table
}

fn batch_of(operations: &[Operation<'_>]) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for operation in operations {
        match *operation {
            Operation::Put { key, value } => batch.put(key, value),
            Operation::Delete { key } => batch.delete(key),
        }
    }
    batch
}

impl Store for RocksStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn write(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        Ok(self.db.write_opt(batch_of(operations), &self.write)?)
    }

    fn write_durably(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        Ok(self.db.write_opt(batch_of(operations), &self.synced)?)
    }

    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        Ok(self.db.delete_opt(key, &self.write)?)
    }

    fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        Ok(self.db.delete_range_cf_opt(self.family()?, from, to, &self.write)?)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, StoreError> {
        let value = self.db.get_pinned_opt(key, &self.read)?;
        Ok(value.map(|value| found(&value)).is_some())
    }

    fn multi_get(
        &self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), StoreError> {
        let keys = keys.iter().copied();
        let values = self.db.batched_multi_get_cf_opt(self.family()?, keys, false, &self.read);
        for (at, value) in values.into_iter().enumerate() {
            if let Some(value) = value? {
                found(at, &value);
            }
        }
        Ok(())
    }

    fn scan(
        &self,
        start: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut entries = self.db.raw_iterator_opt(read_options(self.set_up));
        match (start, direction) {
            (None, Direction::Forward) => entries.seek_to_first(),
            (None, Direction::Backward) => entries.seek_to_last(),
            (Some(start), Direction::Forward) => entries.seek(start),
            (Some(start), Direction::Backward) => entries.seek_for_prev(start),
        }
        while let Some((key, value)) = entries.item() {
            if !visit(key, value) {
                return Ok(());
            }
            match direction {
                Direction::Forward => entries.next(),
                Direction::Backward => entries.prev(),
            }
        }
        Ok(entries.status()?)
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(self.db.flush()?)
    }

    fn settle(&self) -> Result<(), StoreError> {
        Ok(self.db.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn compact(&self) -> Result<(), StoreError> {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn verify(&self) -> Result<String, StoreError> {
        stores::count_entries(self)
    }

    fn close(self: Arc<Self>) -> Result<(), StoreError> {
        drop(self);
        Ok(())
    }

    fn state(&self) -> State {
        let count = |ticker| self.counts.as_ref().map(|counts| counts.get_ticker_count(ticker));
        let io = Io {
            lookups: LookupIo {
                block_reads: count(Ticker::BlockCacheDataMiss),
                cache_hits: count(Ticker::BlockCacheDataHit),
                ..LookupIo::default()
            },
            log_syncs: count(Ticker::WalFileSynced),
            ..Io::default()
        };
        State { io: Some(io), ..State::default() }
    }

    fn levels(&self) -> Vec<Level> {
        let mut levels = Vec::new();
        for file in self.db.live_files().unwrap_or_default() {
            add_table(&mut levels, file.level as usize, file.size as u64);
        }
        levels
    }
}

/// Counts a table of a level.
fn add_table(levels: &mut Vec<Level>, number: usize, bytes: u64) {
    let at = levels.partition_point(|level| level.level < number);
    if levels.get(at).is_none_or(|level| level.level != number) {
        levels.insert(at, Level { level: number, files: 0, bytes: 0 });
    }
    levels[at].files += 1;
    levels[at].bytes += bytes;
}

/// RocksDB with optimistic transactions.
pub(crate) struct RocksAccounts {
    db: OptimisticTransactionDB,
    write: WriteOptions,
    transaction: OptimisticTransactionOptions,
}

impl RocksAccounts {
    pub(crate) fn open(
        dir: &Path,
        settings: &Settings,
        variant: Variant,
    ) -> Result<Self, StoreError> {
        let mut options = options(settings, variant);
        // Not to be combined with transactions.
        options.set_enable_pipelined_write(false);
        let db = OptimisticTransactionDB::open(&options, dir)?;
        let mut transaction = OptimisticTransactionOptions::default();
        transaction.set_snapshot(true);
        Ok(Self { db, write: WriteOptions::default(), transaction })
    }
}

impl Accounts for RocksAccounts {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        Ok(self.db.put(key, value)?)
    }

    /// With `GetForUpdate`, a key that was read and not written conflicts as well.
    fn transfer(&self, from: &[u8], to: &[u8]) -> Result<u64, StoreError> {
        let mut conflicts = 0;
        loop {
            let transaction = self.db.transaction_opt(&self.write, &self.transaction);
            let source = transaction.get_for_update(from, true)?;
            let [lower, higher] = moved(source, transaction.get_for_update(to, true)?)?;
            transaction.put(from, lower)?;
            transaction.put(to, higher)?;
            match transaction.commit() {
                Ok(()) => return Ok(conflicts),
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => {
                    conflicts += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn balance(&self, key: &[u8]) -> Result<u64, StoreError> {
        balance_of(self.db.get(key)?)
    }
}

/// RocksDB for loads.
pub(crate) struct RocksLoads {
    db: DB,
    options: Options,
}

impl RocksLoads {
    pub(crate) fn open(
        dir: &Path,
        settings: &Settings,
        variant: Variant,
    ) -> Result<Self, StoreError> {
        let options = options(settings, variant);
        Ok(Self { db: DB::open(&options, dir)?, options })
    }
}

impl Loads for RocksLoads {
    fn load(&self, _: SortedEntries<'_>) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn write_file(&self, file: &Path, entries: SortedEntries<'_>) -> Result<(), StoreError> {
        let mut writer = SstFileWriter::create(&self.options);
        writer.open(file)?;
        entries.each(|key, value| writer.put(key, value))?;
        Ok(writer.finish()?)
    }

    fn ingest(&self, file: &Path) -> Result<(), StoreError> {
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        Ok(self.db.ingest_external_file_opts(&options, vec![file])?)
    }

    fn count(&self) -> Result<u64, StoreError> {
        let mut entries = self.db.iterator(IteratorMode::Start);
        Ok(entries.try_fold(0, |count, entry| entry.map(|_| count + 1))?)
    }
}
