//! Background work as a trace, which Chrome and Perfetto show as a time line.
//!
//! 1. Work that has ended is one complete event (`"ph":"X"`) of the thread that did it, with begin
//!    and duration in microseconds since the trace began. Work within other work of the thread,
//!    such as a flush during a compaction, lies within its event. The first event of a thread is
//!    preceded by its name.
//! 2. An event is added to a buffer in memory, under a lock, which is a leaf: the output is the
//!    user's code, and some work ends under the lock of the write queue. Events beyond
//!    [`MOST_BYTES`] are only counted.
//! 3. [`BackgroundTrace::finish`] writes the output, or the drop of the last clone does. A forked
//!    child writes nothing.
//!
//! Source: the array form of the Trace Event Format, as Perfetto's
//! [documentation](https://perfetto.dev/docs/getting-started/other-formats) describes it.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Write};
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

/// Maximum size of the recorded events, in bytes: some 500,000 events.
const MOST_BYTES: usize = 64 << 20;

/// A trace of background work being recorded, in the JSON array form of the Trace Event Format: see
/// [`Db::trace_background`](crate::Db::trace_background). Clones are the same trace.
///
/// Events are kept in memory, up to 64 MiB (some 500,000), and written when the trace is finished.
/// Later ones are counted in a last event, `lost`. Dropping the last clone, and the stores that
/// record to it, finishes the trace, and errors are lost.
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
    /// The process that began the trace.
    process: u32,
    has_ended: AtomicBool,
    state: Mutex<RecordingState>,
    out: Mutex<Option<Output>>,
}

struct Output(Box<dyn Write + Send>);

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Output")
    }
}

#[derive(Debug, Default)]
struct RecordingState {
    /// The events, each with the separator before it.
    text: String,
    /// Threads whose names are in the text.
    named: HashSet<u64>,
    events: u64,
    /// Events that had no room.
    lost: u64,
}

impl BackgroundTrace {
    /// Begins a trace, which is written to `out` when it is finished.
    ///
    /// ```
    /// let trace = trommel::BackgroundTrace::new(std::io::sink());
    /// assert_eq!(trace.finish().unwrap(), 0);
    /// ```
    pub fn new(out: impl Write + Send + 'static) -> Self {
        Self {
            recording: Arc::new(Recording {
                began: env::now(),
                process: std::process::id(),
                has_ended: AtomicBool::new(false),
                state: Mutex::new(RecordingState::default()),
                out: Mutex::new(Some(Output(Box::new(out)))),
            }),
        }
    }

    /// Ends the trace, writes it, and returns the number of its events. Work that ends later is not
    /// recorded. The second call, and a call in a forked child, write nothing.
    ///
    /// # Errors
    /// Errors of the output: then the trace is incomplete.
    pub fn finish(&self) -> io::Result<u64> {
        self.recording.end()
    }
}

impl Recording {
    fn add(&self, name: &str, start: Instant, end: Instant, details: &[(&str, Detail<'_>)]) {
        if self.has_ended.load(Relaxed) {
            return;
        }
        let thread = thread_number();
        let (from, to) = (self.micros(start), self.micros(end));
        let took = Micros(to.0.saturating_sub(from.0));
        let mut event = String::new();
        // Writing to a string never fails.
        let _ = write!(
            event,
            "{{\"name\":{},\"cat\":\"trommel\",\"ph\":\"X\",\"pid\":1,\"tid\":{thread},\
             \"ts\":{from},\"dur\":{took},\"args\":{{",
            Quoted(name),
        );
        for (nth, (name, detail)) in details.iter().enumerate() {
            let before = if nth == 0 { "" } else { "," };
            let _ = match detail {
                Detail::Number(number) => write!(event, "{before}{}:{number}", Quoted(name)),
                Detail::Text(value) => write!(event, "{before}{}:{}", Quoted(name), Quoted(value)),
            };
        }
        event += "}}";
        lock(&self.state).add(thread, &event);
    }

    fn end(&self) -> io::Result<u64> {
        if self.process != std::process::id() {
            return Ok(0);
        }
        self.has_ended.store(true, Relaxed);
        let RecordingState { mut text, events, lost, .. } = std::mem::take(&mut *lock(&self.state));
        let Some(Output(mut out)) = lock(&self.out).take() else { return Ok(events) };
        if lost > 0 {
            let at = self.micros(env::now());
            let _ = write!(
                text,
                ",\n{{\"name\":\"lost\",\"cat\":\"trommel\",\"ph\":\"i\",\"s\":\"g\",\"pid\":1,\"tid\":0,\
                 \"ts\":{at},\"args\":{{\"events\":{lost}}}}}"
            );
        }
        out.write_all(b"[")?;
        out.write_all(text.trim_start_matches(',').as_bytes())?;
        out.write_all(b"\n]\n")?;
        out.flush()?;
        Ok(events)
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
        ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{thread},\"args\":{{\"name\":{}}}}}",
        Quoted(&name)
    )
}

impl RecordingState {
    fn add(&mut self, thread: u64, event: &str) {
        if self.text.len() + event.len() > MOST_BYTES {
            self.lost += 1;
            return;
        }
        if self.named.insert(thread) {
            self.text += &thread_name(thread);
        }
        self.text += ",\n";
        self.text += event;
        self.events += 1;
    }
}

impl Drop for Recording {
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

    /// Work ends under locks of the store, so foreign code must not run there.
    #[test]
    fn the_output_is_not_used_before_the_end() {
        struct Unused;
        impl Write for Unused {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                panic!("written");
            }

            fn flush(&mut self) -> io::Result<()> {
                panic!("flushed");
            }
        }
        let trace = BackgroundTrace::new(Unused);
        let options = Options::default().vfs(Arc::new(MemoryVfs::new()));
        let db = Db::open("db", options).unwrap();
        db.trace_background(&trace);
        for nth in 0..1000_u32 {
            db.put_with(nth.to_le_bytes(), [], WriteOptions::sync()).unwrap();
        }
        db.flush().unwrap();
        drop(db);
        // Its drop would write.
        std::mem::forget(trace);
    }

    #[test]
    fn events_beyond_the_bound_are_counted() {
        let out = Shared::default();
        let trace = BackgroundTrace::new(out.clone());
        let (began, long) = (trace.recording.began, "x".repeat(MOST_BYTES / 2));
        for _ in 0..3 {
            trace.recording.add("work", began, began, &[("why", Detail::Text(&long))]);
        }
        assert_eq!(trace.finish().unwrap(), 1);
        let events: Vec<Value> = serde_json::from_slice(&lock(&out.0)).unwrap();
        let last = events.last().unwrap();
        assert_eq!((&last["name"], &last["args"]["events"]), (&"lost".into(), &2.into()));
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
