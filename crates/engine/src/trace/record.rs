//! Records the lookups of an open store.
//!
//! 1. Each lookup ends with a check of the engine's [`TraceSlot`]; without a trace that is one load
//!    of a flag.
//! 2. A sampled lookup is added to the writer under its lock. The thread that fills a block writes
//!    it while others wait, so there is one block in memory.
//! 3. The first error of the trace's file ends the recording. Lookups continue, and
//!    [`LookupTrace::finish`](crate::LookupTrace::finish) returns the error.
//!
//! The lock is a leaf: nothing else is taken while it is held. The file is written through the
//! store's file system, outside its directory.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use trommel_vfs::{Vfs, WriteFile};

use super::sample::Sampler;
use super::writer::TraceWriter;
use super::{Outcome, Place, TraceInfo, TraceOptions, TraceTotals};
use crate::error::{Error, Result};
use crate::files::lies_in;
use crate::sync::quiet::AtomicBool;
use crate::sync::{Mutex, SwapOption, lock};
use crate::version::Version;
use crate::version::logical_level;

/// The destination of an engine's recorded lookups, if any.
#[derive(Debug)]
pub(crate) struct TraceSlot {
    /// Whether there is a recorder: the only thing a lookup checks.
    is_on: AtomicBool,
    recorder: SwapOption<TraceRecorder>,
    /// Held while a recorder is set or removed.
    change: Mutex<()>,
}

impl TraceSlot {
    pub(crate) fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            recorder: SwapOption::empty(),
            change: Mutex::new(()),
        }
    }

    /// Whether lookups are recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Records a lookup, if it is sampled. Levels are those of `version`, as stored.
    #[cold]
    #[inline(never)]
    pub(crate) fn note(&self, version: &Version, key: &[u8], outcome: Outcome) {
        let recorder = self.recorder.load();
        let Some(recorder) = recorder.as_ref().filter(|recorder| recorder.sampler.draws()) else {
            return;
        };
        let place = match outcome.place {
            Place::Level(level) => Place::Level(logical_level(version, level.into()).0 as u8),
            other => other,
        };
        recorder.add(key, Outcome { place, ..outcome });
    }

    /// An error if a trace is being recorded.
    pub(crate) fn check_off(&self) -> Result<()> {
        if self.recorder.load().is_some() {
            let what = "a trace of lookups is being recorded already: finish that one before";
            return Err(Error::option(what));
        }
        Ok(())
    }

    /// Starts recording to `recorder`.
    pub(crate) fn begin(&self, recorder: &Arc<TraceRecorder>) -> Result<()> {
        let _one_at_a_time = lock(&self.change);
        self.check_off()?;
        self.recorder.store(Some(Arc::clone(recorder)));
        self.is_on.store(true, Relaxed);
        Ok(())
    }

    /// Stops recording to `recorder`.
    pub(crate) fn end(&self, recorder: &Arc<TraceRecorder>) {
        let _one_at_a_time = lock(&self.change);
        if self.recorder.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, recorder)) {
            self.is_on.store(false, Relaxed);
            self.recorder.store(None);
        }
    }
}

/// Writes sampled lookups to a file.
#[derive(Debug)]
pub(crate) struct TraceRecorder {
    pub(crate) path: PathBuf,
    vfs: Arc<dyn Vfs>,
    pub(crate) info: TraceInfo,
    sampler: Sampler,
    state: Mutex<TraceState>,
}

#[derive(Debug)]
enum TraceState {
    Open(TraceWriter<Sink>),
    Failed(Error),
    Ended,
}

/// A VFS file as an output stream.
#[derive(Debug)]
struct Sink(Box<dyn WriteFile>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TraceRecorder {
    /// A recorder of the store `store_id`, which lies in `dir`.
    pub(crate) fn create(
        vfs: &Arc<dyn Vfs>,
        dir: &Path,
        store_id: u64,
        path: &Path,
        options: TraceOptions,
    ) -> Result<Self> {
        let real = vfs.real_path(dir).map_err(|source| Error::io(dir, "looking for", source))?;
        if lies_in(&**vfs, &real, path)? {
            let (path, dir) = (path.display(), dir.display());
            let what = format!("{path} lies in the store's directory {dir}: name another place");
            return Err(Error::option(what));
        }
        let info = TraceInfo { store_id, sample: options.sample };
        info.check()?;
        let failed = |source| Error::creating(&**vfs, path, source);
        let sink = Sink(vfs.create(path).map_err(failed)?);
        let writer = TraceWriter::new(sink, info).map_err(failed)?;
        Ok(Self {
            path: path.to_path_buf(),
            vfs: Arc::clone(vfs),
            info,
            sampler: Sampler::new(options.sample, options.seed),
            state: Mutex::new(TraceState::Open(writer)),
        })
    }

    fn add(&self, key: &[u8], outcome: Outcome) {
        let mut state = lock(&self.state);
        let TraceState::Open(writer) = &mut *state else { return };
        if let Err(source) = writer.add(key, outcome, 1) {
            *state = TraceState::Failed(Error::io(&self.path, "writing", source));
        }
    }

    /// Writes the end of the trace, and syncs it.
    pub(crate) fn end(&self) -> Result<TraceTotals> {
        let state = std::mem::replace(&mut *lock(&self.state), TraceState::Ended);
        let writer = match state {
            TraceState::Open(writer) => writer,
            TraceState::Failed(error) => return Err(error),
            TraceState::Ended => return Err(Error::internal("a trace was ended twice")),
        };
        let failed = |source| Error::io(&self.path, "writing", source);
        let (mut file, totals) = writer.finish().map_err(failed)?;
        file.0.sync().map_err(failed)?;
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        self.vfs.sync_dir(dir.unwrap_or(Path::new("."))).map_err(failed)?;
        Ok(totals)
    }
}

impl TraceInfo {
    fn check(&self) -> Result<()> {
        if (1..=super::format::MAX_SAMPLE).contains(&self.sample) {
            return Ok(());
        }
        let sample = self.sample;
        Err(Error::option(format!("a trace takes one lookup of 1 to 4294967296, not of {sample}")))
    }
}
