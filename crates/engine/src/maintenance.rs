//! What an operator asks of a store: is it whole, a copy of it, how large is a part of it, and to
//! close it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use trommel_base::Corruption;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::table_path;
use crate::install::create_manifest;
use crate::iter::range::Bounds;
use crate::log::reader::{LogImage, Verdict};
use crate::log::{FileKind, read_whole};
use crate::manifest::names;
use crate::manifest::state::ManifestState;
use crate::options::Options;
use crate::sync::lock;
use crate::version::TableFile;

/// What [`Db::verify`](crate::Db::verify) read and found in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables read.
    pub tables: u64,
    /// Logs and manifests read.
    pub logs: u64,
    /// Bytes read of all of them.
    pub bytes: u64,
    /// Entries of the tables.
    pub entries: u64,
    /// Distinct keys of the tables, each of which its table's filter let pass.
    pub keys: u64,
}

impl Engine {
    /// Reads every byte of every file, checks every checksum, every order, and every key against
    /// its table's filter.
    pub(crate) fn verify(&self) -> Result<VerifyReport> {
        self.check_open()?;
        let version = self.version();
        let mut report = VerifyReport::default();
        for (_, file) in version.tables() {
            self.verify_table(file, &mut report)?;
        }
        if self.options.load().read_only {
            self.verify_logs(&mut report)?;
        } else {
            // Nothing is appended meanwhile.
            self.exclusively(|_| {
                let _manifest = lock(&self.manifest);
                self.verify_logs(&mut report)
            })?;
        }
        Ok(report)
    }

    fn verify_table(&self, file: &Arc<TableFile>, report: &mut VerifyReport) -> Result<()> {
        let path = table_path(&self.dir, file.number);
        let table = Arc::clone(&*self.tables.reader(file)?);
        let verified = table.verify()?;
        let said = table.properties();
        let agrees = said.entries == file.entries
            && said.keys == file.keys
            && *said.smallest == *file.smallest
            && *said.largest == *file.largest
            && said.max_seqno == file.max_seqno;
        if !agrees {
            let what = "its properties are not those that the manifest states";
            return Err(Corruption::new(&path, 0, what).into());
        }
        if let Some((_, why)) =
            self.tables.unusable_filters().into_iter().find(|(number, _)| *number == file.number)
        {
            return Err(Corruption::new(&path, 0, format!("its filter is unusable: {why}")).into());
        }
        report.tables += 1;
        report.bytes += verified.bytes;
        report.entries += verified.entries;
        report.keys += verified.keys;
        Ok(())
    }

    fn verify_logs(&self, report: &mut VerifyReport) -> Result<()> {
        let listing =
            self.vfs.list(&self.dir).map_err(|source| Error::io(&self.dir, "listing", source))?;
        let oldest = self.view.load().memtables().map(|m| m.log_number).min().unwrap_or(0);
        for entry in listing {
            let (kind, number) = match names::Numbered::parse(&entry.name) {
                Some(names::Numbered::Log(number)) if number >= oldest => (FileKind::Log, number),
                Some(names::Numbered::Manifest(number)) if self.is_current(number) => {
                    (FileKind::Manifest, number)
                }
                _ => continue,
            };
            let path = self.dir.join(&entry.name);
            let bytes = read_whole(&*self.vfs, &path)?;
            report.bytes += bytes.len() as u64;
            report.logs += 1;
            let image = LogImage::decode(bytes, &path, kind, number)?;
            if let Verdict::Damaged(damage) = &image.summary().verdict {
                return Err(damage.clone().into());
            }
        }
        Ok(())
    }

    /// Whether this is the manifest in force. Called with the manifest locked, or read-only.
    fn is_current(&self, number: u64) -> bool {
        let path = self.dir.join(names::CURRENT);
        self.vfs
            .read(&path, 1024)
            .is_ok_and(|bytes| crate::manifest::current::parse(&bytes) == Some(number))
    }

    /// Makes `dir`, which must not exist, a store that holds what this one holds now. Tables are
    /// hard links, so it costs next to nothing while both stores are on one file system.
    pub(crate) fn checkpoint(&self, dir: &Path) -> Result<()> {
        self.flush()?;
        let state = {
            let manifest = lock(&self.manifest);
            let manifest = manifest.as_ref().ok_or(Error::ReadOnly)?;
            manifest.state().clone()
        };
        self.vfs.create_dir(dir).map_err(|source| Error::io(dir, "creating", source))?;
        for (_, table) in state.version.tables() {
            let (from, to) = (table_path(&self.dir, table.number), table_path(dir, table.number));
            self.link_or_copy(&from, &to)?;
        }
        self.vfs.sync_dir(dir).map_err(|source| Error::io(dir, "making durable", source))?;
        let number = state.next_file_number;
        let state = ManifestState { next_file_number: number + 1, log_number: 0, ..state };
        create_manifest(self, dir, number, crate::env::random_u64(), &state)?.finish()?;
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        self.vfs.sync_dir(parent).map_err(|source| Error::io(parent, "making durable", source))
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> Result<()> {
        match self.vfs.hard_link(from, to) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => self.copy(from, to),
            outcome => outcome.map_err(|source| Error::io(to, "linking", source)),
        }
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        let source = self.vfs.open(from, trommel_vfs::Access::Buffered);
        let source = source.map_err(|error| Error::io(from, "opening", error))?;
        let mut target = self.vfs.create(to).map_err(|error| Error::io(to, "creating", error))?;
        let mut buffer = vec![0; 1 << 20];
        let mut offset = 0;
        while offset < source.bytes() {
            let bytes = (source.bytes() - offset).min(buffer.len() as u64) as usize;
            source
                .read_at(offset, &mut buffer[..bytes])
                .map_err(|error| Error::io(from, "reading", error))?;
            target.append(&buffer[..bytes]).map_err(|error| Error::io(to, "writing", error))?;
            offset += bytes as u64;
        }
        target.sync().map_err(|error| Error::io(to, "making durable", error))
    }

    /// About how many bytes of table files hold the keys within `bounds`.
    pub(crate) fn approximate_bytes(&self, bounds: &Bounds) -> Result<u64> {
        self.check_open()?;
        let version = self.version();
        let mut bytes = 0;
        for (_, file) in version.tables() {
            bytes += self.bytes_within(file, bounds)?;
        }
        Ok(bytes)
    }

    fn bytes_within(&self, file: &Arc<TableFile>, bounds: &Bounds) -> Result<u64> {
        let starts_inside = *bounds.from <= *file.smallest;
        let ends_inside = bounds.to.as_ref().is_none_or(|to| **to > *file.largest);
        let is_outside = *bounds.from > *file.largest
            || bounds.to.as_ref().is_some_and(|to| **to <= *file.smallest);
        if is_outside {
            return Ok(0);
        }
        if starts_inside && ends_inside {
            return Ok(file.file_bytes);
        }
        let table = self.tables.reader(file)?;
        let from = table.approximate_offset(&bounds.from);
        let to = match &bounds.to {
            Some(to) if !ends_inside => table.approximate_offset(to),
            _ => file.file_bytes,
        };
        Ok(to.saturating_sub(from))
    }

    /// Takes over the options that can change on a live store.
    pub(crate) fn set_options(&self, change: impl FnOnce(Options) -> Options) -> Result<()> {
        let one_at_a_time = lock(&self.view_change);
        let old = self.options.load_full();
        let wanted = change((*old).clone());
        let options = Options {
            vfs: Arc::clone(&old.vfs),
            create_if_missing: old.create_if_missing,
            error_if_exists: old.error_if_exists,
            read_only: old.read_only,
            salvage: old.salvage,
            log: old.log,
            read_mode: old.read_mode,
            max_open_files: old.max_open_files,
            background_threads: old.background_threads,
            ..wanted
        };
        options.check()?;
        self.memory.set_limits(options.memory_limit, options.wanted_cache_bytes());
        self.options.store(Arc::new(options));
        drop(one_at_a_time);
        self.account_memtables();
        self.background.wake();
        Ok(())
    }

    /// Ends the log, durably, and refuses everything from then on. What fails here cost nothing
    /// that was acknowledged as durable.
    pub(crate) fn close(&self) -> Result<()> {
        if self.closed.get().is_some() {
            return Ok(());
        }
        let options = self.options.load_full();
        if options.read_only || self.poisoned().is_some() {
            let _ = self.closed.set(());
            return self.poisoned().map_or(Ok(()), |first| Err(Error::Poisoned { first }));
        }
        self.exclusively(|leader| {
            if !options.log {
                self.rotate(leader)?;
            }
            // Set while nobody else leads: no write finds the store open and its log ended.
            let _ = self.closed.set(());
            self.finish_log(leader)
        })?;
        if options.log { Ok(()) } else { self.wait_until(|view| view.frozen.is_empty()) }
    }

    /// The last step of closing, once no background job runs any more.
    pub(crate) fn finish_manifest(&self) -> Result<()> {
        self.graveyard.sweep();
        let finished = match (lock(&self.manifest).take(), self.poison.get()) {
            (Some(mut manifest), None) => manifest.finish(),
            _ => Ok(()),
        };
        *lock(&self.lock) = None;
        finished
    }
}
