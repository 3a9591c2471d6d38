//! Watching a store at work: the times of its operations, its background work as a trace, and its
//! metrics in a file or through the crate `metrics`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::background_trace::BackgroundTrace;
use crate::db::Db;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::lies_in;
use crate::fork::Opener;
use crate::latencies::LatencyStats;
use crate::sync::{Mutex, lock};
use crate::timer::Timer;

impl Db {
    /// Turns the measuring of latencies on or off, for [`Db::latencies`] and [`Db::openmetrics`].
    /// It is off when a store is opened. While it is on, each thread times one of
    /// [`LATENCY_SAMPLE`](crate::LATENCY_SAMPLE) of its reads and writes, drawn at random; syncs,
    /// stalls and background work are all timed. Takes some 50 KiB from the first time on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.measure_latencies(true);
    /// for key in 0..10_000_u32 {
    ///     db.put(key.to_be_bytes(), "value")?;
    /// }
    /// db.flush()?;
    /// let latencies = db.latencies();
    /// let flushes = latencies.iter().find(|one| one.operation == trommel::TimedOperation::Flush);
    /// assert_eq!(flushes.unwrap().count, 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn measure_latencies(&self, is_on: bool) {
        self.engine().statistics.latencies.switch(is_on);
    }

    /// The times of operations, as measured while [`Db::measure_latencies`] was on, since the
    /// counters were reset: one entry for each [`TimedOperation`](crate::TimedOperation), or none
    /// if they were never measured.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// assert!(db.latencies().is_empty());
    /// db.measure_latencies(true);
    /// for one in db.latencies() {
    ///     println!("{}: {} timed, {:?}", one.operation.name(), one.count, one.percentile(99.0));
    /// }
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn latencies(&self) -> Vec<LatencyStats> {
        self.engine().statistics.latencies.stats()
    }

    /// Records flushes, compactions, rebuilds of filters, syncs of the log and stalls of writers to
    /// `trace`, from now on and until the trace is finished. Several stores may record to one
    /// trace; a store records to the last one given. Work that fails is not recorded.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let trace = trommel::BackgroundTrace::new(std::io::sink());
    /// db.trace_background(&trace);
    /// db.put_with("key", "value", trommel::WriteOptions::sync())?;
    /// db.flush()?;
    /// assert_eq!(trace.finish().unwrap(), 2); // a sync and a flush
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn trace_background(&self, trace: &BackgroundTrace) {
        self.engine().statistics.background_trace.begin(trace);
    }

    /// Writes [`Db::openmetrics`], with the name `store`, to the file at `path` now and then every
    /// `period`, in a thread of its own, until the returned value is dropped or the store is
    /// closed. For other processes: `trommel top`, and collectors that read files. The text
    /// includes the period, so that a reader can tell when the writer has failed to publish. The
    /// last text, written when the returned value is dropped, has none.
    ///
    /// Each time the file is replaced as a whole, by way of `path` with `.tmp` appended, so a
    /// reader never sees a part. If the process is killed meanwhile, that file may stay until the
    /// next process replaces it.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if `path` is in the store's directory; [`Error::Closed`];
    /// [`Error::Io`] if the file cannot be written or the thread cannot be started.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path().join("store"), Default::default())?;
    /// use std::time::Duration;
    /// let file = dir.path().join("metrics");
    /// let published = db.write_metrics(&file, "users", Duration::from_secs(1))?;
    /// assert!(std::fs::read_to_string(&file).unwrap().ends_with("# EOF\n"));
    /// assert!(published.last_error().is_none());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn write_metrics(
        &self,
        path: impl AsRef<Path>,
        store: &str,
        period: Duration,
    ) -> Result<MetricsFile> {
        let engine = self.engine();
        engine.access.check_open()?;
        let (path, files) = (path.as_ref().to_path_buf(), &engine.files);
        let real = files.vfs.real_path(&files.dir);
        let real = real.map_err(|source| Error::io(&files.dir, "looking for", source))?;
        if lies_in(&*files.vfs, &real, &path)? {
            let (path, dir) = (path.display(), files.dir.display());
            let what = format!("{path} lies in the store's directory {dir}: name another place");
            return Err(Error::option(what));
        }
        let (name, error) = (store.to_owned(), Mutex::new(None));
        let state = Arc::new(FileState { path, name, store: engine.own.clone(), error });
        state.write_now(engine, Some(period))?;
        let written = Arc::clone(&state);
        let mut is_first = true;
        let each = move || {
            // It is there already.
            if !std::mem::take(&mut is_first) {
                written.write(Some(period));
            }
        };
        let timer = Timer::start("trommel-metrics", period, each);
        let timer =
            timer.map_err(|error| Error::io(&state.path, "starting a thread for", error))?;
        Ok(MetricsFile { state, timer: Some(timer), opener: engine.access.opener() })
    }

    /// Publishes what [`Db::openmetrics`] returns through the crate `metrics`, to its current
    /// recorder, with the same labels. Call it every few seconds, once the recorder is installed,
    /// with the same name each time. In a closed store it does nothing.
    ///
    /// Counters grow by what was counted since the last call, so they continue when the store is
    /// opened again, and after [`Db::reset_stats`]; what was counted between the last call and the
    /// reset is lost. As counters of that crate are integers, times are counted in microseconds:
    /// `trommel_flush_seconds_total` is `trommel_flush_microseconds_total` here, and the sum of a
    /// histogram is `trommel_operation_microseconds_sum`. All other names are the same. The buckets
    /// and the count of a histogram are counters, too. A gauge of a level or filter that is gone is
    /// set to 0, as are all gauges when the store is closed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.publish_metrics("users");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[cfg(feature = "metrics")]
    pub fn publish_metrics(&self, store: &str) {
        let engine = self.engine();
        if engine.access.opener().is_forked() {
            return;
        }
        engine.statistics.publisher.publish(store, || match engine.access.is_closed() {
            true => Vec::new(),
            false => engine.metric_families(None),
        });
    }
}

/// A file with the metrics of a store, which is kept up to date: see
/// [`Db::write_metrics`](crate::Db::write_metrics). When this is dropped while the store is open,
/// it is written a last time, and stays.
#[derive(Debug)]
#[must_use = "dropped, it writes nothing more"]
pub struct MetricsFile {
    state: Arc<FileState>,
    timer: Option<Timer>,
    opener: Opener,
}

/// What the thread of a metrics file shares with its owner.
#[derive(Debug)]
struct FileState {
    path: PathBuf,
    /// The name of the store in the text.
    name: String,
    store: Weak<Engine>,
    /// The error of the last attempt, if it failed.
    error: Mutex<Option<Error>>,
}

impl FileState {
    fn write(&self, period: Option<Duration>) {
        let Some(engine) = self.store.upgrade().filter(|engine| !engine.access.is_closed()) else {
            return;
        };
        *lock(&self.error) = self.write_now(&engine, period).err();
    }

    /// Replaces the file by one with the current metrics, which are due again after `period`.
    fn write_now(&self, engine: &Engine, period: Option<Duration>) -> Result<()> {
        let (vfs, path) = (&engine.files.vfs, &self.path);
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        // One that a killed process has left.
        let _ = vfs.remove(&temporary);
        let mut file = vfs.create(&temporary).map_err(|e| Error::io(&temporary, "creating", e))?;
        let families = engine.metric_families(period);
        let written = file.append(crate::openmetrics::text(&families, &self.name).as_bytes());
        drop(file);
        let written = written.map_err(|error| Error::io(&temporary, "writing", error));
        let replaced = written.and_then(|()| {
            vfs.rename(&temporary, path).map_err(|error| Error::io(path, "replacing", error))
        });
        if replaced.is_err() {
            let _ = vfs.remove(&temporary);
        }
        replaced
    }
}

impl MetricsFile {
    /// Why the file could not be written the last time, if it could not. It is tried again at the
    /// next interval.
    pub fn last_error(&self) -> Option<Error> {
        self.opener.check().err().or_else(|| lock(&self.state.error).clone())
    }
}

impl Drop for MetricsFile {
    fn drop(&mut self) {
        if self.opener.is_forked() {
            // The thread does not exist here.
            std::mem::forget(self.timer.take());
            return;
        }
        drop(self.timer.take());
        self.state.write(None);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use trommel_sim::MemoryVfs;

    use super::*;
    use crate::{Options, TimedOperation, WriteBatch, WriteOptions};

    fn store(vfs: &MemoryVfs) -> Db {
        Db::open("db", Options::default().vfs(Arc::new(vfs.clone()))).unwrap()
    }

    fn text(vfs: &MemoryVfs, path: &str) -> String {
        use trommel_vfs::Vfs as _;
        String::from_utf8(vfs.read(Path::new(path), 1 << 20).unwrap()).unwrap()
    }

    fn gets(text: &str) -> &str {
        let start = "trommel_gets_total{store=\"it\"} ";
        text.lines().find_map(|line| line.strip_prefix(start)).unwrap()
    }

    /// A reader finds a complete text at any time, and the numbers at the end.
    #[test]
    fn the_metrics_file_is_always_whole_and_follows_the_store() {
        const PERIOD: &str = "trommel_metrics_period_seconds{";
        let vfs = MemoryVfs::new();
        let db = store(&vfs);
        let file = db.write_metrics("metrics", "it", Duration::ZERO).unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        let mut seen = 0;
        while seen < 3000 {
            db.get("key").unwrap();
            let text = text(&vfs, "metrics");
            assert!(text.ends_with("# EOF\n") && text.contains(PERIOD), "{text}");
            seen = gets(&text).parse().unwrap();
            assert!(Instant::now() < end, "it is not written any more: {:?}", file.last_error());
        }
        drop(file);
        let last = db.stats().lookups.gets.to_string();
        assert_eq!(gets(&text(&vfs, "metrics")), last);
        db.get("key").unwrap();
        assert_eq!(gets(&text(&vfs, "metrics")), last);
        // Regression: the last text announced another one.
        assert!(!text(&vfs, "metrics").contains(PERIOD));
    }

    /// A store with a metrics file closes with its last handle.
    #[test]
    fn a_metrics_file_keeps_no_store_open() {
        let vfs = MemoryVfs::new();
        let db = store(&vfs);
        let inside = db.write_metrics("db/metrics", "it", Duration::from_secs(1));
        assert!(matches!(inside, Err(Error::InvalidOption { .. })), "{inside:?}");
        let file = db.write_metrics("metrics", "it", Duration::from_millis(1)).unwrap();
        drop(db);
        store(&vfs).close().unwrap();
        assert!(file.last_error().is_none());
    }

    /// Every way to read and write is in the sample, and none when it is off.
    #[test]
    fn each_operation_is_timed_under_its_name() {
        let db = store(&MemoryVfs::new());
        let operations: [(TimedOperation, &dyn Fn()); 12] = [
            (TimedOperation::Get, &|| _ = db.get("a").unwrap()),
            (TimedOperation::Get, &|| _ = db.contains_key("a").unwrap()),
            (TimedOperation::Get, &|| _ = db.snapshot().get("a").unwrap()),
            (TimedOperation::MultiGet, &|| _ = db.multi_get(&["a", "b"]).unwrap()),
            (TimedOperation::Write, &|| _ = db.put("a", "1").unwrap()),
            (TimedOperation::Write, &|| _ = db.delete("a").unwrap()),
            (TimedOperation::Write, &|| _ = db.write(WriteBatch::new().put("a", "1")).unwrap()),
            (TimedOperation::Write, &|| _ = db.insert_if_absent("b", "1").unwrap()),
            (TimedOperation::Seek, &|| _ = db.iter().next()),
            (TimedOperation::Seek, &|| _ = db.iter().next_back()),
            (TimedOperation::Seek, &|| db.cursor().unwrap().seek("a").unwrap()),
            (TimedOperation::Seek, &|| db.cursor().unwrap().seek_for_prev("a").unwrap()),
        ];
        for (operation, act) in operations {
            let counts = || -> Vec<(TimedOperation, u64)> {
                let timed = db.latencies().into_iter().filter(|one| one.count > 0);
                timed.map(|one| (one.operation, one.count)).collect()
            };
            db.measure_latencies(false);
            (0..200).for_each(|_| act());
            assert_eq!(counts(), []);
            db.measure_latencies(true);
            (0..4000).for_each(|_| act());
            // A conditional write reads, too.
            let counted = counts();
            let count = counted.iter().find(|(timed, _)| *timed == operation).unwrap().1;
            assert!((30..=110).contains(&count), "{operation:?}: {counted:?}");
            assert!(counted.len() == 1 || operation == TimedOperation::Write, "{counted:?}");
            db.reset_stats();
        }
        db.put_with("a", "2", WriteOptions::sync()).unwrap();
        let syncs = db.latencies().into_iter().find(|one| one.operation == TimedOperation::Sync);
        assert_eq!(syncs.unwrap().count, 1);
    }
}
