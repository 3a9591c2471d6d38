//! The limit of filter memory holds while it is lowered, during reads and after losses of files.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{budget, check, check_fits, filled, in_memory, key, names, options};
use crate::{
    Db, FilterChoice, FilterContext, FilterReason, RebuildOptions, UserFilter, UserFilterBuilder,
    UserFilterPolicy,
};

const LONGEST: Duration = Duration::from_secs(60);

/// A point at which one thread stops until it may continue.
#[derive(Debug)]
struct Gate {
    is_shut: AtomicBool,
    reached: Sender<()>,
    let_go: Mutex<Receiver<()>>,
}

impl Gate {
    /// An open gate, the channel that reports arrivals, and the channel that lets them continue.
    fn new() -> (Arc<Self>, Receiver<()>, Sender<()>) {
        let (reached, arrivals) = channel();
        let (opener, let_go) = channel();
        let is_shut = AtomicBool::new(false);
        let gate = Self { is_shut, reached, let_go: Mutex::new(let_go) };
        (Arc::new(gate), arrivals, opener)
    }

    fn shut(&self) {
        self.is_shut.store(true, Ordering::Relaxed);
    }

    fn pass(&self) {
        if self.is_shut.swap(false, Ordering::Relaxed) {
            self.reached.send(()).unwrap();
            self.let_go.lock().unwrap().recv_timeout(LONGEST).unwrap();
        }
    }
}

/// Builds a user filter if `builds_for` is the reason; the filter passes a gate for each key added
/// and for each probe.
#[derive(Debug)]
struct Gated {
    builds_for: FilterReason,
    gate: Arc<Gate>,
}

impl UserFilterPolicy for Gated {
    fn name(&self) -> &str {
        "gated"
    }

    fn choose(&self, context: &FilterContext) -> FilterChoice {
        match context.reason == self.builds_for {
            true => FilterChoice::User(Box::new(Slow(Arc::clone(&self.gate)))),
            false => FilterChoice::Spec(context.configured),
        }
    }

    fn open(&self, _: &[u8]) -> Result<Box<dyn UserFilter>, String> {
        Ok(Box::new(Slow(Arc::clone(&self.gate))))
    }
}

#[derive(Debug)]
struct Slow(Arc<Gate>);

impl UserFilterBuilder for Slow {
    fn add(&mut self, _: &[u8], _: u64) {
        self.0.pass();
    }

    fn finish(self: Box<Self>) -> Vec<u8> {
        vec![7; 1_000]
    }

    fn memory_bytes(&self) -> usize {
        1_000
    }
}

impl UserFilter for Slow {
    fn may_contain(&self, _: &[u8], _: u64) -> bool {
        self.0.pass();
        true
    }

    fn expected_fpr(&self) -> f64 {
        1.0
    }

    fn memory_bytes(&self) -> usize {
        1_000
    }
}

/// A store with one thread, whose single table has a filter that is held.
fn holding(builds_for: FilterReason) -> (Db, Arc<Gate>, Receiver<()>, Sender<()>) {
    let (gate, arrivals, opener) = Gate::new();
    let policy = Gated { builds_for, gate: Arc::clone(&gate) };
    let options = options(&in_memory(), "paired:16").background_threads(1);
    let db = Db::open("db", options.filtering(|f| f.user_filters(Arc::new(policy)))).unwrap();
    for i in 0..400 {
        db.put(key(i), "value").unwrap();
    }
    db.compact_all().unwrap();
    assert!(db.get(key(7)).unwrap().is_some());
    assert!(db.stats().memory.held_filters > 700);
    (db, gate, arrivals, opener)
}

/// A rebuild reads its table for a long time, and does not hold the table's current filter
/// meanwhile.
#[test]
fn a_rebuild_holds_no_filter_that_has_no_room() {
    let (db, gate, arrivals, opener) = holding(FilterReason::Rebuild);
    std::thread::scope(|scope| {
        gate.shut();
        let rebuild = scope.spawn(|| db.rebuild_filters(&RebuildOptions::default()));
        arrivals.recv_timeout(LONGEST).unwrap();
        db.set_filters("budget=100".parse().unwrap()).unwrap();
        let memory = db.stats().memory;
        opener.send(()).unwrap();
        assert_eq!(memory.filter_budget, Some(100));
        assert!(memory.held_filters <= 100, "{memory:?}");
        rebuild.join().unwrap().unwrap();
    });
    db.wait_idle().unwrap();
    assert!(db.stats().memory.held_filters <= 100);
}

/// A lookup probes a filter while the budget falls: never more filters are held than allowed, no
/// others are admitted, and the new budget takes effect when the lookup ends.
#[test]
fn a_running_probe_keeps_its_filter_and_no_more() {
    let (db, gate, arrivals, opener) = holding(FilterReason::Compaction);
    db.set_filters("budget=5000".parse().unwrap()).unwrap();
    assert!(db.get(key(8)).unwrap().is_some());
    let memory = || {
        let memory = db.stats().memory;
        (memory.held_filters, memory.filter_budget)
    };
    let (held, limit) = memory();
    assert!(held >= 1_000 && limit == Some(5_000), "{held}, {limit:?}");
    std::thread::scope(|scope| {
        gate.shut();
        let lookup = scope.spawn(|| db.get(key(9)).unwrap().is_some());
        arrivals.recv_timeout(LONGEST).unwrap();
        db.set_filters("budget=100".parse().unwrap()).unwrap();
        for i in 0..400 {
            assert!(db.get(key(i)).unwrap().is_some());
            assert_eq!(memory(), (held, limit));
        }
        if let Some(budget) = db.filter_report().budget {
            assert_eq!(
                (budget.space.resident_bytes, Some(budget.space.budget_bytes)),
                (held, limit)
            );
        }
        opener.send(()).unwrap();
        assert!(lookup.join().unwrap());
    });
    let (held, limit) = memory();
    assert!(held <= 100 && limit == Some(100), "{held}, {limit:?}");
    db.wait_idle().unwrap();
}

/// Missing or corrupt sidecars: the tables' own filters, which are larger, count instead, and are
/// made to fit.
#[test]
fn filters_that_stand_in_for_lost_sidecars_are_counted() {
    let vfs = in_memory();
    let db = filled(&vfs);
    let own = db.stats().levels.iter().map(|level| level.filter_bytes).sum::<u64>();
    db.set_filters("budget=3000".parse().unwrap()).unwrap();
    db.wait_idle().unwrap();
    check_fits(&db);
    let sidecars = names(&vfs, ".flt");
    assert!(sidecars.len() > 6 && own > 7_000, "{sidecars:?}, {own}");
    db.close().unwrap();
    let path = |name: &String| Path::new(super::DIR).join(name);
    for (nth, name) in sidecars.iter().enumerate() {
        let mut bytes = vfs.read(&path(name), u64::MAX).unwrap();
        vfs.remove(&path(name)).unwrap();
        if nth % 2 == 0 {
            // A filter's bits are checked when it is first probed.
            bytes[60] ^= 1;
            vfs.create(&path(name)).unwrap().append(&bytes).unwrap();
        }
    }
    let db = Db::open(super::DIR, options(&vfs, "budget=3000")).unwrap();
    let before = budget(&db);
    assert!(before.space.resident_bytes <= 3_000, "{before}");
    assert!(before.space.built_bytes > 5_000, "those that stand in are counted: {before}");
    check(&db);
    db.wait_idle().unwrap();
    let after = budget(&db);
    assert!(after.space.built_bytes <= 3_000, "{after}");
    assert_eq!((after.queued_rebuilds, after.space.dropped_tables), (0, 0), "{after}");
    check(&db);
    db.rebuild_filters(&RebuildOptions::default()).unwrap();
    db.wait_idle().unwrap();
    check_fits(&db);
}
