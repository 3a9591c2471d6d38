//! The stores: how each is filled and read. Default options, except for syncs.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::Deref;
use std::path::Path;

use fjall::{Database as Fjall, Guard, KeyspaceCreateOptions, PersistMode};
use heed::types::Bytes;
use heed::{CommitOrAbort, EnvOpenOptions};
use redb::{Database as Redb, ReadableDatabase, ReadableTable, TableDefinition};
use rocksdb::{DB, DBRecoveryMode, IteratorMode};
use rusqlite::{Connection, OptionalExtension};

use crate::Error;

/// The written pairs, in key order.
pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Opens a store, or creates it first.
type Open = fn(&Path, bool) -> Result<Box<dyn Store>, Error>;

/// A store with its options.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The package whose version is shown.
    pub(crate) package: &'static str,
    open: Open,
}

/// The operations of a store that are needed here.
trait Store {
    /// Writes and syncs.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error>;
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;
    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error>;
    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

pub(crate) const ALL: &[Contender] = &[
    Contender {
        name: "trommel",
        about: "Trommel by default",
        package: "trommel",
        open: |dir, _| Ok(Box::new(trommel::Db::open(dir, trommel::Options::default())?)),
    },
    Contender {
        name: "rocksdb",
        about: "RocksDB by default",
        package: "librocksdb-sys",
        open: |dir, _| open_rocks(dir, false),
    },
    Contender {
        name: "rocksdb+",
        about: "RocksDB with `paranoid_checks`, `kAbsoluteConsistency`, \
                `track_and_verify_wals_in_manifest`",
        package: "librocksdb-sys",
        open: |dir, _| open_rocks(dir, true),
    },
    Contender { name: "fjall", about: "fjall by default", package: "fjall", open: open_fjall },
    Contender {
        name: "redb",
        about: "redb by default",
        package: "redb",
        open: |dir, new| open_redb(dir, new, false),
    },
    Contender {
        name: "redb+",
        about: "redb, `check_integrity` called first; what it does not find whole is an error",
        package: "redb",
        open: |dir, new| open_redb(dir, new, true),
    },
    Contender { name: "sled", about: "sled by default", package: "sled", open: open_sled },
    Contender {
        name: "sqlite",
        about: "SQLite by default (rollback journal)",
        package: "libsqlite3-sys",
        open: |dir, new| open_sqlite(dir, new, "delete", false),
    },
    Contender {
        name: "sqlite+",
        about: "the same, `PRAGMA integrity_check` first; what it finds is an error",
        package: "libsqlite3-sys",
        open: |dir, new| open_sqlite(dir, new, "delete", true),
    },
    Contender {
        name: "sqlite-wal",
        about: "SQLite with a write-ahead log, `synchronous=FULL`",
        package: "libsqlite3-sys",
        open: |dir, new| open_sqlite(dir, new, "wal", false),
    },
    Contender {
        name: "sqlite-wal+",
        about: "the same, `PRAGMA integrity_check` first; what it finds is an error",
        package: "libsqlite3-sys",
        open: |dir, new| open_sqlite(dir, new, "wal", true),
    },
    Contender { name: "lmdb", about: "LMDB by default", package: "heed", open: open_lmdb },
];

/// The version of a package in this program's lock file.
pub(crate) fn locked(package: &str) -> String {
    let name = format!("name = \"{package}\"\nversion = \"");
    let behind = include_str!("../../Cargo.lock").split_once(&name);
    let version = behind.and_then(|(_, rest)| rest.split('"').next()).unwrap_or("?");
    match package {
        "libsqlite3-sys" => format!("SQLite {} (libsqlite3-sys {version})", rusqlite::version()),
        _ => format!("{package} {version}"),
    }
}

fn named(word: Option<&OsString>) -> Result<&'static Contender, Error> {
    let found = ALL.iter().find(|contender| word.is_some_and(|word| word == contender.name));
    found.ok_or_else(|| "no such store".into())
}

fn count(word: Option<&OsString>) -> Result<u32, Error> {
    Ok(word.and_then(|word| word.to_str()).ok_or("how many pairs?")?.parse()?)
}

/// `fill STORE SCENE PAIRS DIR`: in a process of its own, which may kill itself.
pub(crate) fn fill(words: &[OsString]) -> Result<(), Error> {
    let contender = named(words.first())?;
    let scene = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let store = (contender.open)(Path::new(words.get(3).ok_or("where?")?), true)?;
    for (key, value) in crate::pairs(count(words.get(2))?) {
        store.put(&key, &value)?;
    }
    match scene {
        "killed" => std::process::abort(),
        "flushed" => store.flush()?,
        _ => {}
    }
    store.close()
}

/// `ask STORE PAIRS DIR`: prints one word.
pub(crate) fn ask(words: &[OsString]) -> Result<(), Error> {
    let (contender, pairs) = (named(words.first())?, crate::pairs(count(words.get(1))?));
    let verdict = match (contender.open)(Path::new(words.get(2).ok_or("where?")?), false) {
        Ok(store) => judge(&*store, &pairs),
        Err(_) => "ERR",
    };
    writeln!(io::stdout(), "{verdict}")?;
    Ok(())
}

fn judge(store: &dyn Store, pairs: &Pairs) -> &'static str {
    let (mut failed, mut lost, mut wrong) = (false, false, false);
    for (key, value) in pairs {
        match store.get(key) {
            Ok(Some(found)) => wrong |= found != *value,
            Ok(None) => lost = true,
            Err(_) => failed = true,
        }
    }
    let mut seen = Pairs::new();
    let scanned = store.scan(&mut |key, value| seen.push((key.to_vec(), value.to_vec())));
    failed |= scanned.is_err();
    wrong |= seen.iter().any(|pair| pairs.binary_search(pair).is_err());
    seen.dedup();
    lost |= scanned.is_ok() && seen.len() < pairs.len();
    match (wrong, lost, failed) {
        (true, ..) => "WRONG",
        (_, true, _) => "LOST",
        (_, _, true) => "ERR",
        _ => "OK",
    }
}

impl Store for trommel::Db {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put_with(key, value, trommel::WriteOptions::sync())?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(trommel::Db::get(self, key)?.map(|value| value.to_vec()))
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        for entry in self.iter() {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(trommel::Db::flush(self)?)
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(trommel::Db::close(*self)?)
    }
}

fn open_rocks(dir: &Path, strict: bool) -> Result<Box<dyn Store>, Error> {
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    if strict {
        options.set_paranoid_checks(true);
        options.set_wal_recovery_mode(DBRecoveryMode::AbsoluteConsistency);
        options.set_track_and_verify_wals_in_manifest(true);
    }
    Ok(Box::new(DB::open(&options, dir)?))
}

impl Store for DB {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut write = rocksdb::WriteOptions::default();
        write.set_sync(true);
        Ok(self.put_opt(key, value, &write)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(DB::get(self, key)?)
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        for entry in self.iterator(IteratorMode::Start) {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(DB::flush(self)?)
    }
}

struct FjallStore {
    db: Fjall,
    keys: fjall::Keyspace,
}

fn open_fjall(dir: &Path, _: bool) -> Result<Box<dyn Store>, Error> {
    let db = Fjall::builder(dir).open()?;
    let keys = db.keyspace("default", KeyspaceCreateOptions::default)?;
    Ok(Box::new(FjallStore { db, keys }))
}

impl Store for FjallStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.keys.insert(key, value)?;
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.keys.get(key)?.map(|value| value.to_vec()))
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        for entry in self.keys.iter().map(Guard::into_inner) {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(self.keys.rotate_memtable_and_wait()?)
    }
}

const REDB: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");

fn open_redb(dir: &Path, new: bool, strict: bool) -> Result<Box<dyn Store>, Error> {
    let file = dir.join("redb");
    let mut db = if new { Redb::create(file)? } else { Redb::open(file)? };
    if strict && !new && !db.check_integrity()? {
        return Err("it was not whole".into());
    }
    Ok(Box::new(db))
}

impl Store for Redb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let transaction = self.begin_write()?;
        transaction.open_table(REDB)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let table = self.begin_read()?.open_table(REDB)?;
        Ok(table.get(key)?.map(|value| value.value().to_vec()))
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        for entry in self.begin_read()?.open_table(REDB)?.iter()? {
            let (key, value) = entry?;
            visit(key.value(), value.value());
        }
        Ok(())
    }
}

fn open_sled(dir: &Path, _: bool) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(sled::open(dir)?))
}

impl Store for sled::Db {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.insert(key, value)?;
        sled::Tree::flush(self)?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.deref().get(key)?.map(|value| value.to_vec()))
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        for entry in self.iter() {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }
}

fn open_sqlite(
    dir: &Path,
    new: bool,
    journal: &str,
    strict: bool,
) -> Result<Box<dyn Store>, Error> {
    let db = Connection::open(dir.join("sqlite.db"))?;
    if new {
        db.pragma_update(None, "journal_mode", journal)?;
        db.execute("CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL)", [])?;
    }
    db.pragma_update(None, "synchronous", "full")?;
    if strict && !new {
        let found: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        if found != "ok" {
            return Err(found.into());
        }
    }
    Ok(Box::new(db))
}

impl Store for Connection {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.execute("INSERT OR REPLACE INTO entries VALUES (?1, ?2)", (key, value))?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut query = self.prepare_cached("SELECT value FROM entries WHERE key = ?1")?;
        Ok(query.query_row([key], |row| row.get(0)).optional()?)
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        let mut query = self.prepare("SELECT key, value FROM entries ORDER BY key")?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let (key, value): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
            visit(&key, &value);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Connection::close(*self).map_err(|(_, error)| error.into())
    }
}

struct LmdbStore {
    env: heed::Env,
    entries: heed::Database<'static, Bytes, Bytes>,
}

fn open_lmdb(dir: &Path, _: bool) -> Result<Box<dyn Store>, Error> {
    let mut options = EnvOpenOptions::new();
    options.map_size(64 << 20);
    // SAFETY: the directory is this process's own, and nothing else opens or changes the file. Its
    // contents may be corrupt: then the process may die, which is counted here.
    #[expect(unsafe_code, reason = "LMDB is a map, and a map is only as good as its file")]
    let env = unsafe { options.open(dir)? };
    let transaction = env.write_txn()?;
    let entries = env
        .create_databases_and_commit(transaction, |opener, transaction| {
            let entries = opener.create_database::<Bytes, Bytes>(transaction, None)?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(entries))
        })?
        .commit()
        .ok_or("LMDB did not open its unnamed database")?;
    Ok(Box::new(LmdbStore { env, entries }))
}

impl Store for LmdbStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut transaction = self.env.write_txn()?;
        self.entries.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let transaction = self.env.read_txn()?;
        Ok(self.entries.get(&transaction, key)?.map(<[u8]>::to_vec))
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        let transaction = self.env.read_txn()?;
        for entry in self.entries.iter(&transaction)? {
            let (key, value) = entry?;
            visit(key, value);
        }
        Ok(())
    }
}
