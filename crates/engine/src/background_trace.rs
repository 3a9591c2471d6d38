//! Background work as a trace, which Chrome and Perfetto show as a time line.
//!
//! 1. Work that has ended is one complete event (`"ph":"X"`) of the thread that did it, with begin
//!    and duration in microseconds since the trace began. Work within other work of the thread,
//!    such as a flush during a compaction, lies within its event. The first event of a thread is
//!    preceded by its name.
//! 2. An event is written under a lock, a leaf, to a buffer and then to the output. Work ends some
//!    thousand times a second at most.
//! 3. The first error of the output ends the recording, and [`BackgroundTrace::finish`] returns it.
//!
//! Source: the array form of the Trace Event Format, as Perfetto's
//! [documentation](https://perfetto.dev/docs/getting-started/other-formats) describes it.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::env;
use crate::sync::quiet::{AtomicBool, StaticU64};
use crate::sync::{Mutex, SwapOption, lock, thread};

/// What an event says about its work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Detail<'a> {
    Number(u64),
    Text(&'a str),
}

/// A trace of background work being recorded, in the JSON array form of the Trace Event Format: see
/// [`Db::trace_background`](crate::Db::trace_background). Clones are the same trace. Dropping the
/// last one, and the stores that record to it, ends the trace, and errors are lost.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trommel::Db::open(dir.path().join("store"), Default::default())?;
/// use trommel::BackgroundTrace;
/// let file = std::fs::File::create(dir.path().join("trace.json")).unwrap();
/// let trace = BackgroundTrace::new(file);
/// db.trace_background(&trace);
/// db.put("key", "value")?;
/// db.flush()?;
/// assert_eq!(trace.finish().unwrap(), 1); // open the file at https://ui.perfetto.dev
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BackgroundTrace {
    recording: Arc<Recording>,
}

#[derive(Debug)]
struct Recording {
    began: Instant,
    state: Mutex<RecordingState>,
}

struct RecordingState {
    /// `None` once the trace has ended.
    out: Option<BufWriter<Box<dyn Write + Send>>>,
    /// Threads whose names are written.
    named: Vec<u64>,
    events: u64,
    failed: Option<io::Error>,
}

impl std::fmt::Debug for RecordingState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingState").field("events", &self.events).finish_non_exhaustive()
    }
}

impl BackgroundTrace {
    /// Begins a trace, which is written to `out` through a buffer.
    ///
    /// ```
    /// let trace = trommel::BackgroundTrace::new(std::io::sink());
    /// assert_eq!(trace.finish().unwrap(), 0);
    /// ```
    pub fn new(out: impl Write + Send + 'static) -> Self {
        let out: BufWriter<Box<dyn Write + Send>> = BufWriter::new(Box::new(out));
        let state = RecordingState { out: Some(out), named: Vec::new(), events: 0, failed: None };
        Self { recording: Arc::new(Recording { began: env::now(), state: Mutex::new(state) }) }
    }

    /// Ends the trace, and returns the number of its events. Work that ends later is not recorded.
    ///
    /// # Errors
    /// The first error of its output: events after it are missing.
    pub fn finish(&self) -> io::Result<u64> {
        lock(&self.recording.state).end()
    }
}

impl Recording {
    fn add(&self, name: &str, start: Instant, end: Instant, details: &[(&str, Detail<'_>)]) {
        let thread = thread_number();
        let (from, to) = (self.micros(start), self.micros(end));
        let mut state = lock(&self.state);
        let is_named = state.named.contains(&thread);
        let mut text = String::new();
        if !is_named {
            state.named.push(thread);
            text += &thread_name(thread);
        }
        let took = Micros(to.0 - from.0);
        // Writing to a string never fails.
        let _ = write!(
            text,
            "{{\"name\":{},\"cat\":\"trommel\",\"ph\":\"X\",\"pid\":1,\"tid\":{thread},\
             \"ts\":{from},\"dur\":{took},\"args\":{{",
            Quoted(name),
        );
        for (nth, (name, detail)) in details.iter().enumerate() {
            let before = if nth == 0 { "" } else { "," };
            let _ = match detail {
                Detail::Number(number) => write!(text, "{before}{}:{number}", Quoted(name)),
                Detail::Text(value) => write!(text, "{before}{}:{}", Quoted(name), Quoted(value)),
            };
        }
        text += "}}";
        state.add(&text);
    }

    /// The time since the trace began. What began earlier is shown from then on.
    fn micros(&self, at: Instant) -> Micros {
        Micros(at.saturating_duration_since(self.began).as_nanos() as u64)
    }
}

/// The event that names the calling thread.
fn thread_name(thread: u64) -> String {
    let current = thread::current();
    let name = current.name().map_or_else(|| format!("thread {thread}"), str::to_owned);
    format!(
        "{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{thread},\"args\":{{\"name\":{}}}}},\n",
        Quoted(&name)
    )
}

impl RecordingState {
    fn add(&mut self, event: &str) {
        let Some(out) = &mut self.out else { return };
        let before = if self.events == 0 { "[\n" } else { ",\n" };
        let written =
            out.write_all(before.as_bytes()).and_then(|()| out.write_all(event.as_bytes()));
        match written {
            Ok(()) => self.events += 1,
            Err(error) => {
                self.failed = Some(error);
                self.out = None;
            }
        }
    }

    fn end(&mut self) -> io::Result<u64> {
        if let Some(mut out) = self.out.take() {
            let end: &[u8] = if self.events == 0 { b"[\n]\n" } else { b"\n]\n" };
            self.failed = out.write_all(end).and_then(|()| out.flush()).err();
        }
        self.failed.take().map_or(Ok(self.events), Err)
    }
}

impl Drop for RecordingState {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Nanoseconds, shown as microseconds with three decimals: events then nest exactly.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A text as a JSON string.
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// A number for the calling thread, which no other thread of the process has had.
fn thread_number() -> u64 {
    static NEXT: StaticU64 = StaticU64::new(1);
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    if OWN.get() == 0 {
        OWN.set(NEXT.fetch_add(1, Relaxed));
    }
    OWN.get()
}

/// The destination of a store's background work, if any.
#[derive(Debug)]
pub(crate) struct BackgroundTraceSlot {
    /// Whether there is one.
    is_on: AtomicBool,
    recording: SwapOption<Recording>,
}

impl BackgroundTraceSlot {
    pub(crate) fn new() -> Self {
        Self { is_on: AtomicBool::new(false), recording: SwapOption::empty() }
    }

    /// Records to `trace` from now on.
    pub(crate) fn begin(&self, trace: &BackgroundTrace) {
        self.recording.store(Some(Arc::clone(&trace.recording)));
        self.is_on.store(true, Relaxed);
    }

    /// Whether work is recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Adds work of the calling thread that began at `start` and ends now, if work is recorded.
    pub(crate) fn add(&self, name: &str, start: Instant, details: &[(&str, Detail<'_>)]) {
        if !self.is_on() {
            return;
        }
        if let Some(recording) = &*self.recording.load() {
            recording.add(name, start, env::now(), details);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;
    use trommel_sim::MemoryVfs;

    use super::*;
    use crate::{Db, Options, RebuildOptions, WriteOptions};

    /// An output that is read afterwards.
    #[derive(Debug, Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The events of a trace, without those that name threads.
    fn complete(out: &Shared) -> Vec<Value> {
        let events: Vec<Value> = serde_json::from_slice(&lock(&out.0)).unwrap();
        let (names, events): (Vec<_>, Vec<_>) =
            events.into_iter().partition(|event| event["ph"] == "M");
        let named: Vec<&Value> = names.iter().map(|event| &event["tid"]).collect();
        assert!(events.iter().all(|event| event["ph"] == "X" && named.contains(&&event["tid"])));
        assert!(names.iter().all(|event| event["args"]["name"].is_string()), "{names:?}");
        events
    }

    /// Begin and end, in nanoseconds.
    fn span(event: &Value) -> (u64, u64) {
        let nanos = |name: &str| {
            let micros = event[name].as_f64().unwrap();
            assert!(micros >= 0.0, "{event}");
            (micros * 1000.0).round() as u64
        };
        (nanos("ts"), nanos("ts") + nanos("dur"))
    }

    /// Work under load: everything that the statistics count is in the trace, and the events of a
    /// thread lie in or after each other.
    #[test]
    fn no_event_is_lost_and_those_of_a_thread_nest() {
        let options = Options::default()
            .vfs(Arc::new(MemoryVfs::new()))
            .writes(|w| w.write_buffer_bytes(64 << 10).max_frozen_memtables(1))
            .compaction(|c| c.base_level_bytes(256 << 10).table_bytes(64 << 10));
        let db = Db::open("db", options).unwrap();
        let out = Shared::default();
        let trace = BackgroundTrace::new(out.clone());
        db.trace_background(&trace);
        thread::scope(|scope| {
            for writer in 0..3_u32 {
                let db = &db;
                scope.spawn(move || {
                    for nth in 0..1500_u32 {
                        let key = nth.wrapping_mul(0x9e37_79b9).rotate_left(writer);
                        db.put(format!("{key:08x}"), [writer as u8; 500]).unwrap();
                        if nth % 500 == 0 {
                            db.put_with("synced", [], WriteOptions::sync()).unwrap();
                        }
                    }
                });
            }
        });
        db.compact_all().unwrap();
        db.set_filters("paired:20".parse().unwrap()).unwrap();
        db.rebuild_filters(&RebuildOptions::default()).unwrap();
        db.wait_idle().unwrap();
        let stats = db.stats();
        let written = trace.finish().unwrap();
        db.put_with("late", [], WriteOptions::sync()).unwrap();

        let events = complete(&out);
        assert_eq!(events.len() as u64, written);
        let count = |name: &str| events.iter().filter(|event| event["name"] == name).count() as u64;
        let (jobs, stalls) = (&stats.background, &stats.background.stalls);
        assert_eq!(count("flush"), jobs.flushes.count);
        assert_eq!(count("compaction"), jobs.compactions.count);
        assert_eq!(count("filter-rebuild"), jobs.filter_rebuilds.tables);
        assert_eq!(count("sync"), stats.writes.log_syncs);
        assert_eq!(
            count("stall"),
            stalls.memtables.times + stalls.level_0.times + stalls.debt.times
        );
        assert_eq!(count("move"), jobs.compactions.trivial_moves);
        assert!(count("compaction") > 0 && count("filter-rebuild") > 0 && count("sync") > 0);
        let sum = |name: &str, detail: &str| -> u64 {
            let of = events.iter().filter(|event| event["name"] == name);
            of.map(|event| event["args"][detail].as_u64().unwrap()).sum()
        };
        assert_eq!(sum("flush", "bytes"), jobs.flushes.bytes);
        assert_eq!(sum("compaction", "bytes_read"), jobs.compactions.bytes_read);
        assert_eq!(sum("compaction", "bytes_written"), jobs.compactions.bytes_written);

        let mut threads: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for event in &events {
            threads.entry(event["tid"].as_u64().unwrap()).or_default().push(span(event));
        }
        for spans in threads.values_mut() {
            spans.sort_by_key(|(start, end)| (*start, u64::MAX - end));
            let mut around: Vec<u64> = Vec::new();
            for (start, end) in spans {
                around.retain(|outer| *outer > *start);
                assert!(around.iter().all(|outer| *outer >= *end), "{start} to {end}: {around:?}");
                around.push(*end);
            }
        }
    }

    /// A trace of a program that ends early is complete as far as it goes.
    #[test]
    fn a_dropped_trace_is_ended_and_text_is_escaped() {
        let out = Shared::default();
        let trace = BackgroundTrace::new(out.clone());
        let work = || {
            let began = trace.recording.began;
            trace.recording.add("a \"b\"\\\n", began, began, &[("why", Detail::Text("\u{1}"))]);
        };
        let builder = thread::Builder::new().name("\"x\"".to_owned());
        thread::scope(|scope| _ = builder.spawn_scoped(scope, work).unwrap());
        drop(trace);
        let events = complete(&out);
        assert_eq!(
            (&events[0]["name"], &events[0]["args"]["why"]),
            (&"a \"b\"\\\n".into(), &"\u{1}".into())
        );
        assert_eq!(span(&events[0]), (0, 0));
    }

    #[test]
    fn the_first_error_of_the_output_is_returned() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let trace = BackgroundTrace::new(Full);
        for _ in 0..1000 {
            trace.recording.add("work", env::now(), env::now(), &[]);
        }
        assert_eq!(trace.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
