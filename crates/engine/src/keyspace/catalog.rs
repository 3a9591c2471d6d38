//! Creating, listing and dropping keyspaces: the reads and writes of the catalog.
//!
//! 1. The first keyspace of a store begins the catalog. The manifest gets its salt, durably. Then
//!    one batch writes the catalog's first entry, and moves the keys of the default keyspace that
//!    begin with the marker to their new physical keys. After a crash between the two there is no
//!    catalog with that salt, and the store is as before.
//! 2. A new keyspace is one batch: the catalog's first entry, with the next id, and its own.
//! 3. A drop is one batch: the deletion of its entry, and of the range of its keys. So it takes the
//!    same time whatever the keyspace holds. Its id is never reused.
//!
//! The lock of the catalog is held throughout. It is taken before a gate or the lock of the
//! mapping, and never by a thread that holds one of these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use trommel_base::SeqNo;

use crate::batch::{OpKind, WriteBatch};
use crate::bounds::Bounds;
use crate::engine::Engine;
use crate::env;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::keyspaces::{
    Catalog, CatalogHeader, KeyspaceOptions, KeyspaceRecord, KeyspaceState, Part,
};
use crate::manifest::edit::VersionEdit;
use crate::options::WriteOptions;
use crate::space::{CATALOG_ID, HEADER_BYTES, LAST_ID, MARKER, Space};
use crate::sync::{MutexGuard, write_lock};
use crate::view::ReadAt;

/// How the catalog is stored.
const CATALOG: Space = Space::Named(CATALOG_ID);

/// Longest name of a keyspace, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Most bytes of keys and values that move when a store gets its first keyspace.
const MOVED_BYTES: usize = 64 << 20;

impl Engine {
    /// The first entry of the catalog with this salt, as of `at` or now. If there is none, the
    /// owner was killed before it wrote the catalog: keys are stored plain, and expire as such.
    pub(crate) fn catalog_header(
        &self,
        salt: u64,
        at: Option<ReadAt<'_>>,
    ) -> Result<Option<CatalogHeader>> {
        let first = self.get(&CATALOG.key(b""), at)?;
        let header = first.and_then(|value| CatalogHeader::decode(&value));
        Ok(header.filter(|header| header.salt == salt))
    }
}

impl Handle {
    /// Reads the catalog of a store that was just opened. If that fails, the next use of the
    /// catalog tries again; reads and writes of the default keyspace must not wait for that.
    pub(crate) fn open_catalog(self: &Arc<Self>) {
        let keyspaces = &self.engine.options.keyspaces;
        if self.load(&mut keyspaces.catalog()).is_err() {
            // A catalog that cannot be read most likely exists.
            keyspaces.set_mapped();
        }
    }

    /// The catalog may have been changed by another process: the next use of it reads it again.
    /// Handles to keyspaces stay valid; one that was dropped is empty.
    pub(crate) fn follow_catalog(self: &Arc<Self>) -> Result<()> {
        let version = self.engine.version();
        if version.catalog_salt.is_none() {
            return Ok(());
        }
        let keyspaces = &self.engine.options.keyspaces;
        let mut catalog = keyspaces.catalog();
        catalog.is_loaded = false;
        if version.has_keyspace_operators || version.time_marks.keyspaces().is_some() {
            // Keys are about to be read whose keyspaces have operators, or expire.
            return self.load(&mut catalog);
        }
        Ok(())
    }

    fn load(self: &Arc<Self>, catalog: &mut Catalog) -> Result<()> {
        let (mut live, mut ttls) = <(BTreeMap<_, _>, BTreeMap<_, _>)>::default();
        if let Some(salt) = self.engine.version().catalog_salt {
            let engine = &self.engine;
            catalog.header = engine.catalog_header(salt, None)?;
            // A follower knows that before it reads.
            if catalog.header.is_none() && !engine.options.load().opening.follows {
                engine.options.keyspaces.set_plain();
                engine.snapshots.expiry.unite();
            }
        }
        if catalog.header.is_some() {
            let keyspaces = &self.engine.options.keyspaces;
            keyspaces.set_mapped();
            for entry in self.range(Part::Whole, CATALOG.all(), None) {
                let (key, value) = entry?;
                let Some((name, record)) = named(CATALOG.strip(&key), &value) else {
                    return Err(self.unknown_entry(CATALOG.strip(&key)));
                };
                if let Some(KeyspaceRecord { id, options }) = record {
                    let state = keyspaces.state(name, id);
                    ttls.extend(options.lasting().map(|ttl| (id, ttl)));
                    keyspaces.note(&state, options);
                    live.insert(name.to_owned(), state);
                }
            }
        }
        self.engine.options.keyspaces.noted_all();
        self.set_ttls(ttls, &live)?;
        catalog.live = live;
        catalog.is_loaded = true;
        Ok(())
    }

    /// Sets the `ttl`s of named keyspaces, as recorded in the catalog.
    fn set_ttls(
        &self,
        ttls: BTreeMap<u32, Duration>,
        live: &BTreeMap<String, Arc<KeyspaceState>>,
    ) -> Result<()> {
        let (engine, live) = (&self.engine, live.values().map(|state| state.id));
        let live: BTreeSet<u32> = live.collect();
        let expiry = &engine.snapshots.expiry;
        if engine.version().catalog_salt.is_none() || !expiry.differs(&ttls, &live) {
            return Ok(());
        }
        let (snapshots, visible) = (engine.snapshots.live(), engine.snapshots.visible());
        let follows = engine.options.load().opening.follows;
        // Reads that have loaded the previous view, but not the horizons yet, count as snapshots.
        let before = follows.then(|| visible.saturating_sub(1));
        let seen = (visible, snapshots.into_iter().chain(before).min());
        let expires = engine.version().time_marks.is_on();
        if expires || ttls.is_empty() {
            expiry.set_keyspace_ttls(ttls, &live, seen);
            return Ok(());
        }
        // Readers do not check the clock yet, because the crash came before times were recorded.
        engine.change_times(|expiry| expiry.set_keyspace_ttls(ttls, &live, seen))
    }

    fn unknown_entry(&self, name: &[u8]) -> Error {
        let what = format!("the catalog's entry of keyspace \"{}\"", name.escape_ascii());
        Error::Unsupported { file: self.engine.files.dir.clone(), what }
    }

    /// The catalog, which is read first if necessary.
    fn catalog(self: &Arc<Self>) -> Result<MutexGuard<'_, Catalog>> {
        self.engine.access.check_open()?;
        let mut catalog = self.engine.options.keyspaces.catalog();
        if !catalog.is_loaded {
            self.load(&mut catalog)?;
        }
        Ok(catalog)
    }

    /// The newest sequence number at which the default keyspace is stored as it is; `None` if it
    /// still is. The caller is about to read the writes up to `visible`.
    pub(crate) fn plain_to(self: &Arc<Self>, visible: SeqNo) -> Result<Option<SeqNo>> {
        if self.engine.version().catalog_salt.is_none() {
            return Ok(None);
        }
        if self.engine.options.load().opening.follows {
            // The owner may have changed it since it was read: a catch-up shows its writes first.
            let mut catalog = self.engine.options.keyspaces.catalog();
            if catalog.known_to < visible {
                catalog.is_loaded = false;
                catalog.known_to = visible;
            }
        }
        Ok(self.catalog()?.header.map(|header| header.plain_to))
    }

    /// The keyspace of this name, if there is one.
    pub(super) fn find_keyspace(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Option<Arc<KeyspaceState>>> {
        Ok(self.catalog()?.live.get(name).cloned())
    }

    /// The names of all keyspaces, in order.
    pub(super) fn keyspace_names(self: &Arc<Self>) -> Result<Vec<String>> {
        Ok(self.catalog()?.live.keys().cloned().collect())
    }

    /// The keyspace of this name with these options, created if there is none.
    pub(super) fn make_keyspace(
        self: &Arc<Self>,
        name: &str,
        options: KeyspaceOptions,
    ) -> Result<Arc<KeyspaceState>> {
        check_name(name)?;
        options.check()?;
        let mut catalog = self.catalog()?;
        let engine = &self.engine;
        let keyspaces = &engine.options.keyspaces;
        if let Some(state) = catalog.live.get(name) {
            self.change_options(state, options)?;
            return Ok(Arc::clone(state));
        }
        engine.access.check_writable()?;
        let header = match catalog.header {
            Some(header) => header,
            None => *catalog.header.insert(self.begin_catalog()?),
        };
        if header.last_id >= LAST_ID {
            return Err(Error::option(
                "the store has given out all numbers for keyspaces: copy what it holds to a new one",
            ));
        }
        let header = CatalogHeader { last_id: header.last_id + 1, ..header };
        let mut batch = WriteBatch::new();
        batch.push_physical(OpKind::Put, &CATALOG.key(b""), header.encode().as_bytes());
        let state = keyspaces.state(name, header.last_id);
        self.write_record(&mut batch, &state, options)?;
        catalog.header = Some(header);
        catalog.live.insert(name.to_owned(), Arc::clone(&state));
        Ok(state)
    }

    /// Sets the options of an existing keyspace.
    fn change_options(&self, state: &Arc<KeyspaceState>, options: KeyspaceOptions) -> Result<()> {
        let engine = &self.engine;
        let keyspaces = &engine.options.keyspaces;
        let before = keyspaces.own_options(state.id);
        let gains_operator = before.operator().is_none() && options.operator().is_some();
        // No operand of the store's operator is written meanwhile.
        let _alone = gains_operator.then(|| write_lock(&state.gate));
        let of_store = engine.version().merge_operator.clone();
        let place = (&*engine.files.dir, &*state.name);
        let options = options.after(&before, of_store.as_ref(), place)?;
        if engine.options.load().opening.read_only {
            keyspaces.note(state, before.with_operator_of(options));
        } else if before.is(&options) {
            keyspaces.note(state, options);
        } else {
            return self.write_record(&mut WriteBatch::new(), state, options);
        }
        Ok(())
    }

    /// Writes `batch` with the entry of a keyspace, whose options are then in effect.
    fn write_record(
        &self,
        batch: &mut WriteBatch,
        state: &Arc<KeyspaceState>,
        options: KeyspaceOptions,
    ) -> Result<()> {
        if options.operator().is_some() {
            self.engine.record_keyspace_operators()?;
        }
        let record = KeyspaceRecord { id: state.id, options };
        let key = CATALOG.key(state.name.as_bytes());
        batch.push_physical(OpKind::Put, &key, record.encode().as_bytes());
        self.engine.write_physical(batch, WriteOptions::default())?;
        let ttl = record.options.lasting();
        self.engine.options.keyspaces.note(state, record.options);
        if self.engine.snapshots.expiry.has_other_ttl(state.id, ttl) {
            return self.engine.change_times(|expiry| expiry.set_keyspace_ttl(state.id, ttl));
        }
        Ok(())
    }

    /// Begins the catalog: step 1 of the module's head.
    fn begin_catalog(self: &Arc<Self>) -> Result<CatalogHeader> {
        // Refused before anything changes.
        self.move_marked(&mut WriteBatch::new())?;
        let mut header = CatalogHeader::new(env::random_u64());
        let edit = VersionEdit { catalog_salt: Some(header.salt), ..VersionEdit::default() };
        self.engine.install(edit, None, None)?;
        self.engine.options.keyspaces.map_default(|| {
            // No write of a key with the marker is in flight.
            header.plain_to = self.engine.snapshots.visible();
            let mut batch = WriteBatch::new();
            self.move_marked(&mut batch)?;
            batch.push_physical(OpKind::Put, &CATALOG.key(b""), header.encode().as_bytes());
            // The default keyspace's horizon must not apply to the catalog. Not separated earlier:
            // until they are moved, keys of the default keyspace could look like those of a
            // keyspace, and would not expire.
            let expiry = &self.engine.snapshots.expiry;
            expiry.separate();
            let written = self.engine.write_physical(&batch, WriteOptions::default());
            written.inspect_err(|_| expiry.unite())
        })?;
        Ok(header)
    }

    /// Adds to `batch` the writes that give the keys of the default keyspace that begin with the
    /// marker a header.
    fn move_marked(self: &Arc<Self>, batch: &mut WriteBatch) -> Result<()> {
        let marked = Bounds { from: MARKER.to_vec(), to: None };
        for entry in self.range(Part::Whole, marked.clone(), None) {
            let (key, value) = entry?;
            if batch.is_empty() {
                batch.push_physical_range(&marked);
            }
            batch.push_physical(OpKind::Put, &Space::Default.key(&key), &value);
            if batch.check().is_err() || batch.encoded_bytes() > MOVED_BYTES {
                return Err(Error::option(format!(
                    "keys that begin with FF FF FF FF get {HEADER_BYTES} more bytes with the first \
                     named keyspace: delete those above 65527 bytes, and all but {} MiB of the \
                     entries with such keys, and write them again afterwards",
                    MOVED_BYTES >> 20
                )));
            }
        }
        Ok(())
    }

    /// Drops the keyspace of this name; returns whether there was one.
    pub(super) fn drop_keyspace(self: &Arc<Self>, name: &str) -> Result<bool> {
        let mut catalog = self.catalog()?;
        let engine = &self.engine;
        engine.access.check_writable()?;
        let Some(state) = catalog.live.get(name).cloned() else { return Ok(false) };
        let alone = write_lock(&state.gate);
        state.set_gone_after(Some(engine.snapshots.visible()));
        let mut batch = WriteBatch::new();
        batch.push_physical(OpKind::Delete, &CATALOG.key(name.as_bytes()), &[]);
        batch.push_physical_range(&state.space().all());
        // The next version edit, which is durable, lacks the keyspace's horizon. If the drop were
        // then lost in a power failure, expired entries would come back.
        let options = match engine.snapshots.expiry.has_horizon(state.id) {
            true => WriteOptions::sync(),
            false => WriteOptions::default(),
        };
        if let Err(error) = engine.write_physical(&batch, options) {
            state.set_gone_after(None);
            return Err(error);
        }
        drop(alone);
        let (at, oldest) = (engine.snapshots.visible(), engine.snapshots.live().into_iter().min());
        engine.snapshots.expiry.drop_keyspace(state.id, at, oldest);
        catalog.live.remove(name);
        engine.options.keyspaces.forget(state.id);
        Ok(true)
    }
}

/// An entry of the catalog: the name, and the record unless it is the first entry. `None` if this
/// version writes no such entry.
fn named<'a>(key: &'a [u8], value: &[u8]) -> Option<(&'a str, Option<KeyspaceRecord>)> {
    let name = std::str::from_utf8(key).ok()?;
    match name {
        "" => Some((name, None)),
        _ => Some((name, Some(KeyspaceRecord::decode(value)?))),
    }
}

fn check_name(name: &str) -> Result<()> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    let bytes = name.len();
    Err(Error::option(format!(
        "the name of a keyspace has {bytes} bytes, it must have 1 to {MAX_NAME_BYTES}"
    )))
}
