//! A repository in an object store.
//!
//! 1. Every request runs on a private runtime, on the calling thread; the calls block. Within
//!    another runtime they run on a separate thread, and block nevertheless.
//! 2. A content is sent in one request or, above [`PART_BYTES`], in parts, a few at a time. It
//!    appears under its name as a whole. An interrupted upload leaves parts that the service
//!    removes if the bucket has a rule for that ("abort incomplete multipart uploads").
//! 3. A small object is sent on the condition that there is none (`PutMode::Create`), so one of two
//!    concurrent writers learns that the name is taken.
//! 4. A writer first puts an object into the folder `leases` and then lists the others there. Both
//!    writers see each other, or the later one sees the earlier one; writers whose purposes
//!    conflict remove theirs. A lease is renewed during long work. A lease that was not renewed for
//!    [`LEASE`] belongs to a dead writer, and any writer that it blocks removes it. Ages are
//!    computed from the service's clock alone.
//!
//! A writer that sleeps for longer than [`LEASE`] and then wakes up finds its lease gone and stops.
//! It checks before and after each important step, but not during a single request.

use std::io::{self, Cursor, ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutResult, UpdateVersion,
    WriteMultipart,
};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, Result};
use crate::format::LEASES;
use crate::target::{Hold, Purpose, Target};

/// Bytes of a part of a large content, and of a chunk that is read back at a time. S3 allows 5 MiB
/// to 5 GiB.
const PART_BYTES: u64 = 8 << 20;
/// The maximum number of parts of one content on S3.
const MOST_PARTS: u64 = 10_000;
/// Parts in flight at a time.
const PARTS_IN_FLIGHT: usize = 4;
/// How long a lease is valid without renewal.
const LEASE: Duration = Duration::from_secs(60 * 60);
/// The interval at which a lease is renewed.
const RENEWAL: Duration = Duration::from_secs(5 * 60);

/// An object store that holds, or will hold, a repository.
#[derive(Debug)]
pub struct Objects {
    connection: Arc<Connection>,
}

#[derive(Debug)]
struct Connection {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    place: String,
    /// A writer is considered dead after this long without renewal.
    lease: Duration,
    /// `None` only during drop.
    runtime: Option<Runtime>,
}

impl Objects {
    /// The objects of `store` whose names begin with `prefix`; `place` is its name in messages.
    ///
    /// # Errors
    /// [`Error::Location`] if `prefix` is not a valid path.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, place: &str) -> Result<Self> {
        let connection = Connection::new(store, prefix, place, LEASE)?;
        Ok(Self { connection: Arc::new(connection) })
    }

    /// `s3://bucket/prefix`, with credentials, region and endpoint from the environment.
    ///
    /// # Errors
    /// [`Error::Location`] if the URL or the environment cannot be used.
    pub fn s3(url: &str) -> Result<Self> {
        let wrong = |what: String| Error::Location { what: format!("{url}: {what}") };
        let (_, rest) = url.split_once("://").unwrap_or_default();
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(wrong("write the bucket's name after the slashes: s3://bucket/x".into()));
        }
        // An endpoint that is explicitly unencrypted is intended.
        let is_plain = |name| std::env::var(name).is_ok_and(|url| url.starts_with("http://"));
        // A provider that the process has already installed will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        if ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"].into_iter().any(is_plain) {
            builder = builder.with_allow_http(true);
        }
        let store = builder.build().map_err(|error| wrong(error.to_string()))?;
        Self::new(Arc::new(store), prefix, url)
    }
}

impl Connection {
    fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        place: &str,
        lease: Duration,
    ) -> Result<Self> {
        let wrong = |what: String| Error::Location { what: format!("{place}: {what}") };
        let prefix = Path::parse(prefix).map_err(|error| wrong(error.to_string()))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| Error::target(place, "connecting to", source))?;
        let place = place.trim_end_matches('/').to_owned();
        Ok(Self { store, prefix, place, lease, runtime: Some(runtime) })
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), Path::join)
    }

    /// Runs a request to completion.
    fn run<T: Send>(&self, request: impl Future<Output = T> + Send) -> io::Result<T> {
        let gone = || io::Error::other("the connection is closed");
        let runtime = self.runtime.as_ref().ok_or_else(gone)?;
        if Handle::try_current().is_err() {
            return Ok(runtime.block_on(request));
        }
        std::thread::scope(|scope| scope.spawn(|| runtime.block_on(request)).join())
            .map_err(|_| io::Error::other("a request panicked"))
    }

    fn put_small(&self, name: &str, content: &[u8], mode: PutMode) -> io::Result<PutResult> {
        self.try_put(name, content, mode)?.map_err(as_io)
    }

    /// As [`Self::put_small`], with the service's own error.
    fn try_put(
        &self,
        name: &str,
        content: &[u8],
        mode: PutMode,
    ) -> io::Result<object_store::Result<PutResult>> {
        let (path, content) = (self.path(name), content.to_vec());
        self.run(self.store.put_opts(&path, content.into(), PutOptions::from(mode)))
    }

    fn put_in_parts(&self, name: &str, bytes: u64, content: &mut dyn Read) -> io::Result<()> {
        let path = self.path(name);
        let upload = self.run(self.store.put_multipart(&path))?.map_err(as_io)?;
        let part = PART_BYTES.max(bytes.div_ceil(MOST_PARTS)) as usize;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, part);
        let mut buffer = vec![0; part];
        let mut send = || -> io::Result<()> {
            loop {
                let filled = fill(content, &mut buffer)?;
                if filled == 0 {
                    return Ok(());
                }
                let sent = self.run(async {
                    upload.wait_for_capacity(PARTS_IN_FLIGHT).await?;
                    upload.write(&buffer[..filled]);
                    Ok(())
                })?;
                sent.map_err(as_io)?;
            }
        };
        match send() {
            Ok(()) => self.run(upload.finish())?.map(drop).map_err(as_io),
            Err(error) => {
                // If the abort fails, the service removes the parts.
                let _ = self.run(upload.abort());
                Err(error)
            }
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<ObjectMeta>> {
        let path = self.path(folder);
        let listed = self.run(self.store.list_with_delimiter(Some(&path)))?;
        Ok(listed.map_err(as_io)?.objects)
    }

    fn delete(&self, path: &Path) -> io::Result<()> {
        match self.run(self.store.delete(path))? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(as_io(error)),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Waiting for it would panic within another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Reads until `buffer` is full or `content` ends.
fn fill(content: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match content.read(&mut buffer[filled..])? {
            0 => break,
            bytes => filled += bytes,
        }
    }
    Ok(filled)
}

/// Converts an error to the kinds that all targets use.
fn as_io(error: object_store::Error) -> io::Error {
    use object_store::Error as Refused;
    let kind = match &error {
        Refused::NotFound { .. } => ErrorKind::NotFound,
        Refused::AlreadyExists { .. } => ErrorKind::AlreadyExists,
        Refused::PermissionDenied { .. } | Refused::Unauthenticated { .. } => {
            ErrorKind::PermissionDenied
        }
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl Target for Objects {
    fn place(&self) -> String {
        self.connection.place.clone()
    }

    fn found(&self) -> io::Result<bool> {
        let Connection { store, prefix, .. } = &*self.connection;
        let found = self.connection.run(store.list_with_delimiter(Some(prefix)))?;
        let found = found.map_err(as_io)?;
        // A concurrent creator of the same repository has its lease there.
        let is_lease = |folder: &Path| folder.filename() == Some(LEASES);
        Ok(found.objects.is_empty() && found.common_prefixes.iter().all(is_lease))
    }

    fn lock(&self, purpose: Purpose) -> io::Result<Box<dyn Hold>> {
        Ok(Box::new(Lease::take(&self.connection, purpose)?))
    }

    fn put(&self, name: &str, bytes: u64, content: &mut dyn Read) -> io::Result<()> {
        if bytes > PART_BYTES {
            return self.connection.put_in_parts(name, bytes, content);
        }
        let mut whole = Vec::with_capacity(bytes as usize);
        content.read_to_end(&mut whole)?;
        self.connection.put_small(name, &whole, PutMode::Overwrite).map(drop)
    }

    fn put_new(&self, name: &str, content: &[u8]) -> io::Result<bool> {
        match self.connection.put_small(name, content, PutMode::Create) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }

    fn settle(&self) -> io::Result<()> {
        // Objects are durable when the service acknowledges them.
        Ok(())
    }

    fn get(&self, name: &str) -> io::Result<(Box<dyn Read + '_>, u64)> {
        let path = self.connection.path(name);
        let found = self.connection.run(self.connection.store.head(&path))?.map_err(as_io)?;
        let connection = &self.connection;
        let object =
            Object { connection, path, bytes: found.size, offset: 0, piece: Cursor::default() };
        Ok((Box::new(object), found.size))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let found = self.connection.list(folder)?.into_iter();
        Ok(found.filter_map(|o| Some((o.location.filename()?.to_owned(), o.size))).collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.connection.delete(&self.connection.path(name))
    }
}

/// An object that is fetched in chunks.
struct Object<'a> {
    connection: &'a Connection,
    path: Path,
    bytes: u64,
    /// The offset of the first byte after the chunk.
    offset: u64,
    piece: Cursor<Vec<u8>>,
}

impl Read for Object<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let is_used_up = self.piece.position() == self.piece.get_ref().len() as u64;
        if is_used_up && self.offset < self.bytes {
            let end = self.bytes.min(self.offset + PART_BYTES);
            let request = self.connection.store.get_range(&self.path, self.offset..end);
            let fetched = self.connection.run(request)?.map_err(as_io)?;
            if fetched.len() as u64 != end - self.offset {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.offset = end;
            self.piece = Cursor::new(fetched.to_vec());
        }
        self.piece.read(buffer)
    }
}

/// The right to write, valid while its object exists.
#[derive(Debug)]
struct Lease {
    connection: Arc<Connection>,
    name: String,
    renewed: Mutex<Renewed>,
    /// Whether it was found to be lost; there is nothing to release then.
    is_lost: AtomicBool,
}

/// The last time that a lease was written.
#[derive(Debug)]
struct Renewed {
    at: Instant,
    /// The version on which the next update is conditional, so that a removed lease is not
    /// recreated. `None` if the service does not support that.
    version: Option<UpdateVersion>,
    /// Whether it was ever updated without that condition, so that a removal in between would be
    /// unnoticed.
    is_doubtful: bool,
}

/// The name of a lease for `purpose`.
fn word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Add => "add",
        Purpose::Collect => "collect",
    }
}

impl Lease {
    fn take(connection: &Arc<Connection>, purpose: Purpose) -> io::Result<Self> {
        let name = format!("{LEASES}/{}-{:016x}", word(purpose), crate::scratch::number());
        let put = connection.put_small(&name, b"", PutMode::Create)?;
        let version = Some(UpdateVersion::from(put));
        let lease = Self {
            connection: Arc::clone(connection),
            name,
            renewed: Mutex::new(Renewed { at: Instant::now(), version, is_doubtful: false }),
            is_lost: AtomicBool::new(false),
        };
        lease.check_conflicts(purpose)?;
        Ok(lease)
    }

    /// Removes expired leases; an error if a valid one conflicts.
    fn check_conflicts(&self, purpose: Purpose) -> io::Result<()> {
        let path = self.connection.path(&self.name);
        let all = self.connection.list(LEASES)?;
        let own = all.iter().find(|lease| lease.location == path);
        let now = own.ok_or_else(lost)?.last_modified;
        for other in all.iter().filter(|lease| lease.location != path) {
            let is_adding = other.location.filename().is_some_and(|name| name.starts_with("add-"));
            if purpose == Purpose::Add && is_adding {
                continue;
            }
            let age = (now - other.last_modified).to_std().unwrap_or_default();
            if age >= self.connection.lease {
                self.connection.delete(&other.location)?;
                continue;
            }
            let doing = if is_adding { "made" } else { "deleted" };
            let minutes = age.as_secs() / 60;
            let what = format!(
                "another backup is being {doing} there (its lease {} is {minutes} minutes old; if \
                 its writer has died, it expires after {} minutes)",
                other.location,
                self.connection.lease.as_secs() / 60
            );
            return Err(io::Error::new(ErrorKind::WouldBlock, what));
        }
        Ok(())
    }
}

impl Lease {
    /// Writes it again, if it is unchanged. The process may have slept since the last check.
    fn renew(&self, renewed: &mut Renewed) -> io::Result<()> {
        use object_store::Error as Refused;
        if let Some(version) = renewed.version.clone() {
            match self.connection.try_put(&self.name, b"", PutMode::Update(version))? {
                Ok(put) => {
                    renewed.version = Some(UpdateVersion::from(put));
                    renewed.at = Instant::now();
                    return Ok(());
                }
                Err(Refused::Precondition { .. } | Refused::NotFound { .. }) => {
                    self.is_lost.store(true, Ordering::Relaxed);
                    return Err(lost());
                }
                Err(Refused::NotImplemented { .. } | Refused::NotSupported { .. }) => {
                    renewed.version = None;
                }
                Err(error) => return Err(as_io(error)),
            }
        }
        renewed.is_doubtful = true;
        self.connection.put_small(&self.name, b"", PutMode::Overwrite)?;
        renewed.at = Instant::now();
        Ok(())
    }
}

fn lost() -> io::Error {
    io::Error::other(format!(
        "its lease was removed, because this process did not renew it for {} minutes; try again",
        LEASE.as_secs() / 60
    ))
}

impl Hold for Lease {
    fn confirm(&self) -> io::Result<()> {
        let path = self.connection.path(&self.name);
        let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        match self.connection.run(self.connection.store.head(&path))? {
            Ok(_) => {}
            Err(object_store::Error::NotFound { .. }) => {
                self.is_lost.store(true, Ordering::Relaxed);
                return Err(lost());
            }
            Err(error) => return Err(as_io(error)),
        }
        if renewed.at.elapsed() > RENEWAL {
            self.renew(&mut renewed)?;
        }
        Ok(())
    }

    fn is_sure(&self) -> bool {
        !self.renewed.lock().unwrap_or_else(PoisonError::into_inner).is_doubtful
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_lost.load(Ordering::Relaxed) {
            // If this fails, the lease blocks others until it expires.
            let _ = self.connection.delete(&self.connection.path(&self.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    fn connection(store: &Arc<InMemory>, lease: Duration) -> Arc<Connection> {
        let store: Arc<dyn ObjectStore> = store.clone();
        Arc::new(Connection::new(store, "a/b", "memory", lease).unwrap())
    }

    /// Leases that expire at once represent writers that died long ago.
    #[test]
    fn expired_leases_are_removed_and_their_owners_notice() {
        let store = Arc::new(InMemory::new());
        let (living, dead) = (connection(&store, LEASE), connection(&store, Duration::ZERO));
        for (first, second) in [
            (Purpose::Add, Purpose::Collect),
            (Purpose::Collect, Purpose::Add),
            (Purpose::Collect, Purpose::Collect),
        ] {
            let old = Lease::take(&living, first).unwrap();
            let refused = Lease::take(&living, second).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::WouldBlock);
            assert!(refused.to_string().contains("0 minutes old"), "{refused}");
            old.confirm().unwrap();

            let new = Lease::take(&dead, second).unwrap();
            let lost = old.confirm().unwrap_err();
            assert!(lost.to_string().contains("was removed"), "{lost}");
            new.confirm().unwrap();
            drop(old);
            new.confirm().unwrap();
            drop(new);
            assert!(living.list(LEASES).unwrap().is_empty());
        }
    }

    #[test]
    fn several_writers_may_add() {
        let store = Arc::new(InMemory::new());
        let connection = connection(&store, LEASE);
        let first = Lease::take(&connection, Purpose::Add).unwrap();
        let second = Lease::take(&connection, Purpose::Add).unwrap();
        Lease::take(&connection, Purpose::Collect).unwrap_err();
        drop(first);
        Lease::take(&connection, Purpose::Collect).unwrap_err();
        drop(second);
        Lease::take(&connection, Purpose::Collect).unwrap();
    }

    #[test]
    fn a_lease_is_renewed() {
        let store = Arc::new(InMemory::new());
        let lease = Lease::take(&connection(&store, LEASE), Purpose::Add).unwrap();
        let written = || lease.connection.list(LEASES).unwrap()[0].last_modified;
        let before = written();
        lease.confirm().unwrap();
        assert_eq!(written(), before);
        let long_ago = Instant::now().checked_sub(2 * RENEWAL).unwrap();
        lease.renewed.lock().unwrap().at = long_ago;
        lease.confirm().unwrap();
        assert!(written() > before);
        assert!(lease.renewed.lock().unwrap().at > long_ago);
        assert!(lease.is_sure());
    }

    /// The process sleeps between checking its lease and writing it.
    #[test]
    fn a_removed_lease_is_not_recreated() {
        let store = Arc::new(InMemory::new());
        let lease = Lease::take(&connection(&store, LEASE), Purpose::Add).unwrap();
        lease.connection.delete(&lease.connection.path(&lease.name)).unwrap();
        let error = lease.renew(&mut lease.renewed.lock().unwrap()).unwrap_err();
        assert!(error.to_string().contains("was removed"), "{error}");
        assert!(lease.connection.list(LEASES).unwrap().is_empty());
    }

    #[test]
    fn the_page_says_how_long_a_lease_lasts() {
        let page = include_str!("../../../docs/format/backup.md");
        for what in [
            format!("renewed every {} minutes", RENEWAL.as_secs() / 60),
            format!("One that is {} minutes old", LEASE.as_secs() / 60),
            format!("named `{}-` or `{}-`", word(Purpose::Add), word(Purpose::Collect)),
        ] {
            assert!(page.contains(&what), "docs/format/backup.md does not say \"{what}\"");
        }
    }

    /// Independent of the environment's other settings: they are read, but nothing is connected to.
    #[test]
    fn a_connection_finds_what_encrypts_it() {
        Objects::s3("s3://bucket/stores").unwrap();
    }

    #[test]
    fn nothing_panics_within_another_runtime() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let objects = Objects::new(Arc::new(InMemory::new()), "", "memory").unwrap();
            assert!(objects.put_new("backups/one", b"1").unwrap());
            assert_eq!(objects.list("backups").unwrap(), [("one".to_owned(), 1)]);
            drop(objects);
        });
    }
}
