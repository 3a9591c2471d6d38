//! The tables of each keyspace, and the quality of their filters.
//!
//! 1. The keyspaces of a table are those with ids between the ids of its first and its last key. A
//!    table of one keyspace counts for that one; a table of several is divided among them by the
//!    bytes of each according to its index.
//! 2. The expected rate of a keyspace is the average of its tables, weighted by keys.
//! 3. On request the filters are queried for random keys, which are in no table, more of them for a
//!    table with more keys. So the measured rate needs no lookups, and does not slow them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::db::Db;
use crate::env;
use crate::error::Result;
use crate::space::{DEFAULT_ID, Space, id_of};
use crate::version::TableFile;

/// Bytes of a random key: two of them are practically never the same.
const RANDOM_BYTES: usize = 24;

/// The tables of a keyspace, and their filters. Counts of tables with several keyspaces are
/// estimated, from bytes.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name; `None` for the default keyspace.
    pub name: Option<String>,
    /// Tables with some of its keys.
    pub tables: u64,
    /// Its bytes in them.
    pub bytes: u64,
    /// Its distinct keys, counted separately for each table.
    pub keys: u64,
    /// Bytes of its filters.
    pub filter_bytes: u64,
    /// The share of keys that are not in a table for which the table's filter is expected to answer
    /// "maybe", averaged over keys: 1 without filters. `None` without tables.
    pub expected_rate: Option<f64>,
    /// Random keys for which a filter was queried.
    pub probes: u64,
    /// Probes that the filter answered with "maybe".
    pub false_positives: u64,
}

impl KeyspaceStats {
    /// Bits of filters per key; 0 without keys.
    ///
    /// ```
    /// assert_eq!(trommel::KeyspaceStats::default().bits_per_key(), 0.0);
    /// ```
    pub fn bits_per_key(&self) -> f64 {
        self.filter_bytes as f64 * 8.0 / self.keys.max(1) as f64
    }

    /// The measured share of false positives; `None` if nothing was measured.
    ///
    /// ```
    /// assert_eq!(trommel::KeyspaceStats::default().measured_rate(), None);
    /// ```
    pub fn measured_rate(&self) -> Option<f64> {
        (self.probes > 0).then(|| self.false_positives as f64 / self.probes as f64)
    }
}

/// A keyspace, and sums over its tables.
struct KeyspaceRow {
    space: Space,
    stats: KeyspaceStats,
    /// The sum of the tables' rates, each times the keys.
    weighted_rate: f64,
    /// Its tables, with its keys in each.
    parts: Vec<(Arc<TableFile>, u64)>,
}

impl KeyspaceRow {
    fn new(name: Option<String>, space: Space) -> Self {
        let stats = KeyspaceStats { name, ..KeyspaceStats::default() };
        Self { space, stats, weighted_rate: 0.0, parts: Vec::new() }
    }

    /// Adds the part of a table that has this many of its bytes.
    fn add(&mut self, db: &Db, table: &Arc<TableFile>, bytes: u64) -> Result<()> {
        let share = bytes as f64 / table.file_bytes.max(1) as f64;
        let of = |all: u64| (all as f64 * share).round() as u64;
        let keys = of(table.keys);
        let facts = db.engine().files.tables.reader(table)?.filters().facts();
        let rate = if facts.is_held { facts.expected } else { 1.0 };
        self.stats.tables += 1;
        self.stats.bytes += bytes;
        self.stats.keys += keys;
        self.stats.filter_bytes += of(table.built_bytes());
        self.weighted_rate += rate * keys as f64;
        self.parts.push((Arc::clone(table), keys));
        Ok(())
    }

    /// Queries the filters for about this many random keys.
    fn probe(&mut self, db: &Db, probes: u64) -> Result<()> {
        let all = self.stats.keys.max(1);
        for (table, keys) in &self.parts {
            let reader = db.engine().files.tables.reader(table)?;
            let filters = reader.filters();
            for _ in 0..(probes as f64 * *keys as f64 / all as f64).round() as u64 {
                let random: Vec<u8> =
                    (0..RANDOM_BYTES / 8).flat_map(|_| env::random_u64().to_le_bytes()).collect();
                let key = self.space.key(&random);
                let verdict = filters.query(&key, filters.hash_seed().hash(&key));
                self.stats.probes += 1;
                self.stats.false_positives += u64::from(verdict.maybe);
            }
        }
        Ok(())
    }

    fn finish(self) -> KeyspaceStats {
        let rate = self.weighted_rate / self.stats.keys.max(1) as f64;
        KeyspaceStats { expected_rate: (self.stats.keys > 0).then_some(rate), ..self.stats }
    }
}

impl Db {
    /// The statistics of each keyspace's tables, the default one first, then by name. The filters
    /// of each are queried for about `probes` random keys, which are in no table; 0 queries none.
    /// Reads no data, but opens all tables, and loads their filters if there are probes.
    ///
    /// # Errors
    /// As [`Db::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let users = db.keyspace("users", Default::default())?;
    /// for number in 0..1000_u32 {
    ///     users.put(number.to_be_bytes(), "Ada")?;
    /// }
    /// db.flush()?;
    /// let stats = db.keyspace_stats(10_000)?;
    /// assert_eq!(stats[1].name.as_deref(), Some("users"));
    /// assert_eq!(stats[1].tables, 1);
    /// assert!(stats[1].measured_rate().unwrap() < 0.01);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn keyspace_stats(&self, probes: u64) -> Result<Vec<KeyspaceStats>> {
        let engine = self.engine();
        let mut rows = BTreeMap::new();
        let mut ids = vec![DEFAULT_ID];
        // Listed before the version is loaded: tables of a keyspace that is created meanwhile count
        // for none.
        for name in self.list_keyspaces()? {
            let Some(id) = self.open_keyspace(&name)?.map(|keyspace| keyspace.id()) else {
                continue;
            };
            rows.insert(id, KeyspaceRow::new(Some(name), Space::Named(id)));
            ids.push(id);
        }
        let default = engine.options.keyspaces.default_now();
        rows.insert(DEFAULT_ID, KeyspaceRow::new(None, default));
        let is_plain = default == Space::Plain;
        let id_of =
            |key: &[u8]| if is_plain { DEFAULT_ID } else { id_of(key).unwrap_or(DEFAULT_ID) };
        for (_, table) in engine.version().tables() {
            // Keys written before the first keyspace may begin with the marker, followed by any
            // bytes.
            let first = id_of(&table.smallest);
            let last = id_of(&table.largest).max(first);
            for (_, row) in rows.range_mut(first..=last) {
                let bytes = engine.bytes_within(table, &row.space.all())?;
                if bytes > 0 {
                    row.add(self, table, bytes)?;
                }
            }
        }
        for row in rows.values_mut() {
            row.probe(self, probes)?;
        }
        Ok(ids.iter().filter_map(|id| rows.remove(id)).map(KeyspaceRow::finish).collect())
    }
}
