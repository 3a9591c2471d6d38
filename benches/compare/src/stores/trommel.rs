//! Trommel, through the harness's own driver.

use std::path::Path;
use std::sync::Arc;

use trommel::{Compression, Db, MemtableKind, Options, ReadMode, TableWriter, Verify};
use trommel_harness::{EngineOpener, Error, Opener, Store, StoreError};

use crate::settings::Settings;
use crate::stores::accounts::{balance_of, moved};
use crate::stores::{self, Accounts, Facts, Loads, SortedEntries};

/// The options of Trommel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) reads: ReadMode,
    /// Whether it writes its log.
    pub(crate) log: bool,
    /// Whether writes come in batches.
    pub(crate) in_batches: bool,
    pub(crate) memtable: MemtableKind,
}

/// Opens the store in `dir`.
pub(crate) fn open(
    dir: &Path,
    settings: &Settings,
    variant: Variant,
    fresh: bool,
) -> Result<Arc<dyn Store>, Error> {
    let options = options(settings, variant).map_err(Error::Store)?;
    EngineOpener::new(dir, options, Vec::new()).open(fresh)
}

/// The same bits per key in every level as the others.
fn filters(settings: &Settings) -> String {
    format!("paired:{}", settings.filter_bits)
}

fn options(settings: &Settings, variant: Variant) -> Result<Options, StoreError> {
    Ok(Options::default()
        .writes(|w| {
            w.log(variant.log)
                .memtable(variant.memtable)
                .write_buffer_bytes(settings.write_buffer_bytes as usize)
                .max_frozen_memtables(settings.frozen_memtables)
        })
        .filters(filters(settings).parse()?)
        .reads(|r| {
            r.read_mode(variant.reads)
                .cache_bytes(settings.cache_bytes)
                .block_bytes(settings.block_bytes as usize)
        })
        .compression(Compression::None)
        .compaction(|c| {
            c.l0_trigger(settings.l0_trigger)
                .l0_slowdown(settings.l0_slowdown)
                .l0_stop(settings.l0_stop)
                .base_level_bytes(settings.base_level_bytes)
                .level_ratio(settings.level_ratio)
                .table_bytes(settings.table_bytes)
        })
        .background_threads(settings.background_threads))
}

/// The fairness block of this set-up.
pub(crate) fn facts(settings: &Settings, variant: Variant) -> Facts {
    let mut facts = stores::tree_facts(settings);
    let cache = stores::size(settings.cache_bytes);
    let (cache, reads, checksum) = match variant.reads {
        ReadMode::Mapped(Verify::EachUse) => {
            ("none for data blocks".into(), "mmap", "verified each time it is used")
        }
        ReadMode::Mapped(Verify::Once) => {
            let checksum = "verified when it is first used, by scans each time";
            ("none for data blocks".into(), "mmap", checksum)
        }
        ReadMode::Mapped(Verify::Trusted) => {
            ("none for data blocks".into(), "mmap", "verified when it is first used")
        }
        ReadMode::Direct => (cache, stores::DIRECT, stores::VERIFIED_ONCE),
        _ => (cache, "pread", stores::VERIFIED_ONCE),
    };
    facts.extend([
        ("version", format!("trommel {}", stores::locked("trommel"))),
        (
            "writes",
            if variant.in_batches { stores::batches(settings) } else { stores::SINGLE.into() },
        ),
        ("log", stores::log(settings, variant.log).into()),
        ("filter", filters(settings)),
        ("cache", cache),
        ("tables are read by", reads.into()),
        ("checksum of a block", checksum.into()),
        (
            "tuned besides",
            match variant.memtable {
                MemtableKind::SkipList => "memtables are skip lists".into(),
                _ => "nothing".into(),
            },
        ),
    ]);
    facts
}

/// Opens a new store in `dir` for transactions.
pub(crate) fn open_accounts(
    dir: &Path,
    settings: &Settings,
    variant: Variant,
) -> Result<Db, StoreError> {
    Ok(Db::open(dir, options(settings, variant)?)?)
}

impl Accounts for Db {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        Self::put(self, key, value)?;
        Ok(())
    }

    fn transfer(&self, from: &[u8], to: &[u8]) -> Result<u64, StoreError> {
        let mut conflicts = 0;
        loop {
            let transaction = self.begin();
            let [lower, higher] = moved(transaction.get(from)?, transaction.get(to)?)?;
            transaction.put(from, lower)?;
            transaction.put(to, higher)?;
            match transaction.commit() {
                Ok(_) => return Ok(conflicts),
                Err(trommel::Error::Conflict(_)) => conflicts += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn balance(&self, key: &[u8]) -> Result<u64, StoreError> {
        balance_of(self.get(key)?)
    }
}

/// A store for loads.
pub(crate) struct TrommelLoads {
    db: Db,
    options: Options,
}

impl TrommelLoads {
    pub(crate) fn open(
        dir: &Path,
        settings: &Settings,
        variant: Variant,
    ) -> Result<Self, StoreError> {
        let options = options(settings, variant)?;
        Ok(Self { db: Db::open(dir, options.clone())?, options })
    }
}

impl Loads for TrommelLoads {
    fn load(&self, entries: SortedEntries<'_>) -> Result<bool, StoreError> {
        let SortedEntries { keys, values } = entries;
        let (mut maker, mut position) = (keys.maker(), 0);
        self.db.load_sorted(
            (0..keys.len()).map(|n| Ok((maker.key(n).to_vec(), values.next(&mut position)))),
        )?;
        Ok(true)
    }

    fn write_file(&self, file: &Path, entries: SortedEntries<'_>) -> Result<(), StoreError> {
        let mut writer = TableWriter::create(file, &self.options)?;
        entries.each(|key, value| writer.put(key, value))?;
        writer.finish()?;
        Ok(())
    }

    fn ingest(&self, file: &Path) -> Result<(), StoreError> {
        self.db.ingest([file])?;
        Ok(())
    }

    fn count(&self) -> Result<u64, StoreError> {
        Ok(self.db.iter().try_fold(0, |count, entry| entry.map(|_| count + 1))?)
    }
}
