//! The stores to compare, each in one or more set-ups.
//!
//! 1. A [`Contender`] is a store in one set-up. It has a name for the command line, a description
//!    for the fairness block, and a function to open the store.
//! 2. One file per store implements the harness's [`Store`] for it.
//!
//! Invariants: an adapter copies nothing that the store's own interface does not copy, and every
//! adapter passes the harness's conformance suite. Called by the trial, the report, and the tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::trommel::{MemtableKind, ReadMode, Verify};
use trommel_harness::{Direction, Error, Store, StoreError, units};

use crate::process;
use crate::settings::Settings;

mod accounts;
mod fjall;
mod lmdb;
mod loads;
mod redb;
mod rocks;
mod trommel;

pub(crate) use accounts::{Accounts, account};
pub(crate) use loads::{Loads, SortedEntries};

/// The fairness block of a store, by the name of the setting.
pub(crate) type Facts = BTreeMap<&'static str, String>;

/// The settings in display order.
pub(crate) const FACTS: [&str; 21] = [
    "version",
    "writes",
    "log",
    "filter",
    "cache",
    "tables are read by",
    "checksum of a block",
    "read transaction",
    "compression",
    "block or page",
    "write buffer",
    "full memtables that may wait",
    "level-0 trigger",
    "level-0 runs that slow, stop writers",
    "base level",
    "level ratio",
    "table size",
    "background threads",
    "tuned besides",
    COMPILED,
    DIRTY_PAGES,
];

/// The instructions that the compilers could use.
const COMPILED: &str = "compiled for";

/// How much written data may wait in the page cache: a setting of the system.
const DIRTY_PAGES: &str = "dirty pages";

/// The log of a store whose writes survive the process.
const LOG_OS: &str = "on, with the system at each write, not synced";
/// The same if every commit is synced.
const LOG_SYNCED: &str = "on, synced at each write";
/// When a store with a cache verifies the checksum of a block.
const VERIFIED_ONCE: &str = "verified when it is not in the cache";
/// How tables are read without the page cache.
const DIRECT: &str = "pread, O_DIRECT";
/// How a store designed for single writes is written.
const SINGLE: &str = "one at a time";

/// What is reported of RocksDB in a program without it.
const ABSENT: &str = "this program was built without RocksDB: build it with the default features";

/// A store in one set-up.
#[derive(Debug)]
pub(crate) struct Contender {
    /// The name on the command line and in results.
    pub(crate) name: &'static str,
    /// A short description.
    pub(crate) about: &'static str,
    build: Build,
    /// Whether writes come in batches, each a transaction.
    pub(crate) batches: bool,
    /// Whether it looks up many keys in one call.
    pub(crate) multi_get: bool,
    /// Whether only its writes are measured.
    pub(crate) writes_only: bool,
    /// The contender whose files it reads, if the two write alike.
    pub(crate) reads_files_of: Option<&'static str>,
    /// Whether it takes part by default.
    usual: bool,
}

#[derive(Debug, Clone, Copy)]
enum Build {
    Trommel(trommel::Variant),
    Rocks(rocks::Variant),
    Fjall(fjall::Variant),
    Lmdb(lmdb::Variant),
    Redb(redb::Variant),
}

const TROMMEL: trommel::Variant = trommel::Variant {
    reads: ReadMode::Cached,
    log: true,
    in_batches: false,
    memtable: MemtableKind::Hash,
};
const TROMMEL_DIRECT: trommel::Variant = trommel::Variant { reads: ReadMode::Direct, ..TROMMEL };

/// A contender of the main measurement, whose reads are measured too.
const fn contender(name: &'static str, about: &'static str, build: Build) -> Contender {
    let batches = matches!(build, Build::Lmdb(_) | Build::Redb(_));
    let multi_get = matches!(build, Build::Trommel(_) | Build::Rocks(_));
    let (writes_only, reads_files_of, usual) = (false, None, true);
    Contender { name, about, build, batches, multi_get, writes_only, reads_files_of, usual }
}

const fn trommel(name: &'static str, about: &'static str, build: trommel::Variant) -> Contender {
    contender(name, about, Build::Trommel(build))
}

const fn rocks(name: &'static str, about: &'static str, set_up: rocks::SetUp) -> Contender {
    contender(name, about, Build::Rocks(rocks::Variant { set_up, log: true }))
}

const fn lmdb(name: &'static str, about: &'static str, reuse: bool, write_map: bool) -> Contender {
    contender(name, about, Build::Lmdb(lmdb::Variant { reuse, write_map }))
}

const MAPPED: ReadMode = ReadMode::Mapped(Verify::EachUse);

/// All contenders, in the order in which they run: the most important first, and one that reads
/// another's files directly after it.
pub(crate) static ALL: [Contender; 20] = [
    trommel("trommel", "Trommel, cached reads, equal filter bits", TROMMEL),
    rocks("rocksdb-best", "RocksDB as its documentation advises", rocks::SetUp::Cached),
    rocks("rocksdb-mmap", "the same, mapped reads without checksums", rocks::SetUp::Mapped)
        .reading("rocksdb-best"),
    trommel(
        "trommel-mapped",
        "Trommel, mapped reads, equal filter bits",
        trommel::Variant { reads: MAPPED, ..TROMMEL },
    ),
    trommel(
        "trommel-mapped-once",
        "the same, each block verified when it is first used",
        trommel::Variant { reads: ReadMode::Mapped(Verify::Once), ..TROMMEL },
    )
    .reading("trommel-mapped"),
    trommel(
        "trommel-mapped-trusted",
        "the same, and not verified again by scans either",
        trommel::Variant { reads: ReadMode::Mapped(Verify::Trusted), ..TROMMEL },
    )
    .reading("trommel-mapped"),
    rocks("rocksdb", "RocksDB, equal limits", rocks::SetUp::Equal),
    contender("fjall", "fjall, equal limits", Build::Fjall(fjall::Variant { best: false })),
    lmdb("lmdb", "LMDB, a read transaction for each read", false, false),
    lmdb("lmdb-best", "LMDB, a read transaction kept by each thread", true, false).reading("lmdb"),
    lmdb("lmdb-writemap", "LMDB, written through its map", false, true).writing(),
    contender(
        "rocksdb-nolog",
        "RocksDB without its log",
        Build::Rocks(rocks::Variant { set_up: rocks::SetUp::Equal, log: false }),
    )
    .writing(),
    trommel("trommel-nolog", "Trommel without its log", trommel::Variant { log: false, ..TROMMEL })
        .writing(),
    Contender { batches: true, ..BATCHES }.writing(),
    contender(
        "redb",
        "redb, a read transaction for each read",
        Build::Redb(redb::Variant { reuse: false }),
    ),
    contender(
        "redb-best",
        "redb, a read transaction kept by each thread",
        Build::Redb(redb::Variant { reuse: true }),
    )
    .reading("redb"),
    contender(
        "fjall-best",
        "fjall, its own filters, hash index, pinned blocks",
        Build::Fjall(fjall::Variant { best: true }),
    ),
    trommel("trommel-direct", "Trommel, direct reads", TROMMEL_DIRECT).on_request(),
    trommel(
        "trommel-skiplist",
        "Trommel, memtables that are skip lists",
        trommel::Variant { memtable: MemtableKind::SkipList, ..TROMMEL },
    )
    .on_request(),
    rocks(
        "rocksdb-direct",
        "RocksDB as its documentation advises, direct reads",
        rocks::SetUp::Direct,
    )
    .on_request(),
];

const BATCHES: Contender = trommel(
    "trommel-batches",
    "Trommel, as many entries in a batch as LMDB has in a transaction",
    trommel::Variant { in_batches: true, ..TROMMEL },
);

impl Contender {
    /// The same, reading the files of another.
    const fn reading(self, of: &'static str) -> Self {
        Self { reads_files_of: Some(of), ..self }
    }

    /// The same, with only writes measured.
    const fn writing(self) -> Self {
        Self { writes_only: true, ..self }
    }

    /// The same, which takes part only if it is named.
    const fn on_request(self) -> Self {
        Self { usual: false, ..self }
    }

    /// The contender of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|contender| contender.name == name)
    }

    /// Opens the store in `dir`; with `fresh`, a new one, in a directory that does not exist.
    pub(crate) fn open(
        &self,
        dir: &Path,
        settings: &Settings,
        fresh: bool,
    ) -> Result<Arc<dyn Store>, Error> {
        if let Build::Trommel(variant) = self.build {
            return trommel::open(dir, settings, variant, fresh);
        }
        if fresh {
            fs::create_dir(dir).map_err(|source| Error::Io {
                file: dir.into(),
                doing: "creating directory",
                source,
            })?;
        }
        self.open_rival(dir, settings).map_err(Error::Store)
    }

    fn open_rival(&self, dir: &Path, settings: &Settings) -> Result<Arc<dyn Store>, StoreError> {
        Ok(match self.build {
            Build::Trommel(variant) => trommel::open(dir, settings, variant, false)?,
            #[cfg(feature = "rocksdb")]
            Build::Rocks(variant) => Arc::new(rocks::RocksStore::open(dir, settings, variant)?),
            #[cfg(not(feature = "rocksdb"))]
            Build::Rocks(_) => return Err(ABSENT.into()),
            Build::Fjall(variant) => Arc::new(fjall::FjallStore::open(dir, settings, variant)?),
            Build::Lmdb(variant) => Arc::new(lmdb::LmdbStore::open(dir, settings, variant)?),
            Build::Redb(variant) => Arc::new(redb::RedbStore::open(dir, settings, variant)?),
        })
    }

    /// Opens a new store in `dir` for transactions, if it has serializable ones that several
    /// threads make at once.
    pub(crate) fn open_accounts(
        &self,
        dir: &Path,
        settings: &Settings,
    ) -> Result<Box<dyn Accounts>, StoreError> {
        Ok(match self.build {
            Build::Trommel(variant) => Box::new(trommel::open_accounts(dir, settings, variant)?),
            #[cfg(feature = "rocksdb")]
            Build::Rocks(variant) => Box::new(rocks::RocksAccounts::open(dir, settings, variant)?),
            #[cfg(not(feature = "rocksdb"))]
            Build::Rocks(_) => return Err(ABSENT.into()),
            Build::Fjall(variant) => Box::new(fjall::FjallAccounts::open(dir, settings, variant)?),
            Build::Lmdb(_) | Build::Redb(_) => return Err("it has one writer at a time".into()),
        })
    }

    /// Opens a new store in `dir` for loads, if it has any.
    pub(crate) fn open_for_loads(
        &self,
        dir: &Path,
        settings: &Settings,
    ) -> Result<Box<dyn Loads>, StoreError> {
        Ok(match self.build {
            Build::Trommel(variant) => {
                Box::new(trommel::TrommelLoads::open(dir, settings, variant)?)
            }
            #[cfg(feature = "rocksdb")]
            Build::Rocks(variant) => Box::new(rocks::RocksLoads::open(dir, settings, variant)?),
            #[cfg(not(feature = "rocksdb"))]
            Build::Rocks(_) => return Err(ABSENT.into()),
            _ => return Err("it takes in no files".into()),
        })
    }

    /// Whether it takes part unless others are named.
    pub(crate) fn is_usual(&self) -> bool {
        self.usual && self.absent().is_none()
    }

    /// Why it cannot be opened by this program, if it cannot.
    pub(crate) fn absent(&self) -> Option<&'static str> {
        let is_built = cfg!(feature = "rocksdb") || !matches!(self.build, Build::Rocks(_));
        (!is_built).then_some(ABSENT)
    }

    /// Why it is slower in this build than necessary, if it is.
    pub(crate) fn crippled(&self) -> Option<&'static str> {
        // RocksDB selects its checksum and filter code at compile time.
        let is_portable = cfg!(all(target_arch = "x86_64", not(target_feature = "sse4.2")));
        (matches!(self.build, Build::Rocks(_)) && is_portable).then_some(
            "built for any x86-64 processor: RocksDB lacks the instructions that its checksums and filters want; \
             set RUSTFLAGS=\"-C target-cpu=native\" and build again for figures that mean something",
        )
    }

    /// The fairness block of the contender.
    pub(crate) fn facts(&self, settings: &Settings) -> Facts {
        let mut facts = match self.build {
            Build::Trommel(variant) => trommel::facts(settings, variant),
            Build::Rocks(variant) => rocks::facts(settings, variant),
            Build::Fjall(variant) => fjall::facts(settings, variant),
            Build::Lmdb(variant) => lmdb::facts(settings, variant),
            Build::Redb(variant) => redb::facts(settings, variant),
        };
        facts.insert(COMPILED, compiled_for());
        facts.extend(process::dirty_pages().map(|limits| (DIRTY_PAGES, limits)));
        facts
    }
}

/// The processor that all stores were compiled for, by its known features; the C and C++ ones get
/// the same as the Rust ones.
fn compiled_for() -> String {
    let known = [
        ("sse4.2", cfg!(target_feature = "sse4.2")),
        ("pclmulqdq", cfg!(target_feature = "pclmulqdq")),
        ("bmi2", cfg!(target_feature = "bmi2")),
        ("avx2", cfg!(target_feature = "avx2")),
        ("avx512f", cfg!(target_feature = "avx512f")),
        ("crc", cfg!(target_feature = "crc")),
    ];
    let has: Vec<_> = known.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    match has.is_empty() {
        true => format!("any processor of {}", std::env::consts::ARCH),
        false => format!("this processor: {}", has.join(", ")),
    }
}

/// The settings that all trees share.
fn tree_facts(settings: &Settings) -> Facts {
    let (slow, stop) = (settings.l0_slowdown, settings.l0_stop);
    Facts::from([
        ("block or page", size(settings.block_bytes)),
        ("compression", "none".into()),
        ("write buffer", size(settings.write_buffer_bytes)),
        ("full memtables that may wait", settings.frozen_memtables.to_string()),
        ("level-0 trigger", settings.l0_trigger.to_string()),
        ("level-0 runs that slow, stop writers", format!("{slow}, {stop}")),
        ("base level", size(settings.base_level_bytes)),
        ("level ratio", settings.level_ratio.to_string()),
        ("table size", size(settings.table_bytes)),
        ("background threads", settings.background_threads.to_string()),
    ])
}

/// The log of a tree.
fn log(settings: &Settings, is_on: bool) -> &'static str {
    match (is_on, settings.durable) {
        (false, _) => "off",
        (true, false) => LOG_OS,
        (true, true) => LOG_SYNCED,
    }
}

fn size(bytes: u64) -> String {
    units::bytes(bytes)
}

fn batches(settings: &Settings) -> String {
    if settings.durable {
        return "one in a transaction".into();
    }
    format!("{} in a transaction", settings.batch)
}

fn read_transaction(reused: bool) -> &'static str {
    if reused { "kept by each thread while nothing is written" } else { "one for each read" }
}

/// The version of a package in this program's lock file.
fn locked(package: &str) -> &'static str {
    let name = format!("name = \"{package}\"\nversion = \"");
    let behind = include_str!("../../Cargo.lock").split_once(&name);
    behind.and_then(|(_, rest)| rest.split('"').next()).unwrap_or("of no known version")
}

/// A number unique within this process.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Reads everything, for a store that has no check of its own.
fn count_entries(store: &dyn Store) -> Result<String, StoreError> {
    let mut entries = 0_u64;
    store.scan(None, Direction::Forward, &mut |_, _| {
        entries += 1;
        true
    })?;
    Ok(format!("{entries} entries read"))
}

#[cfg(test)]
mod tests {
    use trommel_harness::{Operation, ScratchDir, conformance};

    use super::*;

    fn settings() -> Settings {
        let mut settings = Settings::new(1000, 1000).with_small_tree();
        settings.cache_bytes = 8 << 20;
        settings
    }

    fn built() -> impl Iterator<Item = &'static Contender> {
        ALL.iter().filter(|contender| contender.absent().is_none())
    }

    #[test]
    fn every_contender_is_a_store() {
        for contender in built() {
            let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
            let store = contender.open(&scratch.path().join("db"), &settings(), true).unwrap();
            println!("{}", contender.name);
            conformance::check(store);
        }
    }

    #[test]
    fn written_entries_survive_a_flush_and_a_reopen() {
        for contender in built() {
            let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
            let dir = scratch.path().join("db");
            let store = contender.open(&dir, &settings(), true).unwrap();
            store.write(&[Operation::Put { key: b"k", value: b"v" }]).unwrap();
            assert!(store.get(b"k", &mut |_| {}).unwrap(), "{}", contender.name);
            store.flush().unwrap();
            store.settle().unwrap();
            store.close().unwrap();
            let store = contender.open(&dir, &settings(), false).unwrap();
            let mut value = Vec::new();
            store.get(b"k", &mut |found| value = found.to_vec()).unwrap();
            assert_eq!(value, b"v", "{}", contender.name);
            store.close().unwrap();
        }
    }

    #[test]
    fn kept_read_transactions_see_later_writes_of_any_thread() {
        for contender in built().filter(|contender| contender.reads_files_of.is_some()) {
            let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
            let store = contender.open(&scratch.path().join("db"), &settings(), true).unwrap();
            let finds = |key: &[u8]| store.get(key, &mut |_| {}).unwrap();
            assert!(!finds(b"k"));
            std::thread::scope(|scope| {
                scope.spawn(|| store.put(b"k", b"v").unwrap());
            });
            assert!(finds(b"k"), "{}", contender.name);
        }
    }

    #[test]
    fn every_fact_has_its_place_and_every_version_is_known() {
        for contender in &ALL {
            let facts = contender.facts(&settings());
            for name in facts.keys() {
                assert!(FACTS.contains(name), "{name}");
            }
            let version = &facts["version"];
            assert!(version.contains(char::is_numeric) && !version.contains("known"), "{version}");
        }
    }

    #[test]
    fn whose_files_are_read_was_the_last_to_write() {
        let mut filled = "";
        for contender in &ALL {
            match contender.reads_files_of {
                Some(base) => assert_eq!(filled, base),
                None => filled = contender.name,
            }
        }
    }
}
