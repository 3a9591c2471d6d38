//! Metrics through the crate `metrics`, which passes them to the recorder that a program has
//! installed.
//!
//! 1. A counter is incremented by what was counted since the last publication. So the recorder's
//!    counters continue when the store is opened again, or its statistics are reset, although the
//!    store's own restart at 0. What was counted between the last publication and a reset is lost.
//! 2. The crate's counters are integers. Times are published in microseconds, under a name that
//!    says so; of expected false positives the fraction is left out. As totals are rounded, not
//!    their growth, no error adds up.
//! 3. A gauge that is no longer published becomes 0, as does each gauge when the store is closed.
//! 4. The values are computed, and a reset takes place, under the lock of what was published last.
//!    So publications cannot overtake each other, and a smaller total is never taken for a reset.

use std::collections::{HashMap, HashSet};

use metrics::{Key, Label, Level, Metadata, Recorder, Unit, with_recorder};

use crate::metric_family::{Family, FamilyKind, Figure, MetricSample};
use crate::sync::{Mutex, lock};

const METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, None);

/// What a store has published.
#[derive(Debug, Default)]
pub(crate) struct Publisher(Mutex<PublishedSeries>);

#[derive(Debug, Default)]
struct PublishedSeries {
    /// The totals of counters at the last publication.
    counters: HashMap<Key, u64>,
    gauges: HashSet<Key>,
}

impl Publisher {
    /// Publishes the current families, each sample with the label `store` in addition to its own.
    /// Gauges that are not among them become 0.
    pub(crate) fn publish(&self, store: &str, current: impl FnOnce() -> Vec<Family>) {
        let mut last = lock(&self.0);
        let before = std::mem::take(&mut last.gauges);
        let families = current();
        with_recorder(|recorder| {
            for family in &families {
                for sample in &family.samples {
                    last.publish(recorder, family, sample, store);
                }
            }
            for gauge in before.difference(&last.gauges) {
                recorder.register_gauge(gauge, &METADATA).set(0.0);
            }
        });
    }

    /// Runs `reset`, which resets all counters.
    pub(crate) fn restart(&self, reset: impl FnOnce()) {
        let mut last = lock(&self.0);
        reset();
        last.counters.clear();
    }
}

impl PublishedSeries {
    fn publish(
        &mut self,
        recorder: &dyn Recorder,
        Family { name, kind, help, .. }: &Family,
        MetricSample { suffix, labels, value }: &MetricSample,
        store: &str,
    ) {
        let mut name = format!("trommel_{name}{suffix}");
        let is_counter = matches!(kind, FamilyKind::Counter | FamilyKind::Histogram);
        let mut unit = None;
        if is_counter && matches!(value, Figure::Time(_)) {
            name = name.replace("seconds", "microseconds");
            unit = Some(Unit::Microseconds);
        }
        let labels = [("store", store)]
            .into_iter()
            .chain(labels.iter().map(|(label, value)| (*label, value.as_str())));
        let labels = labels.map(|(label, value)| Label::new(label, value.to_owned()));
        let key = Key::from_parts(name.clone(), labels.collect::<Vec<_>>());
        let help = help.clone().into();
        if is_counter {
            let total = match value {
                Figure::Count(count) => *count,
                Figure::Real(real) => *real as u64,
                Figure::Time(time) => u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
            };
            recorder.describe_counter(name.into(), unit, help);
            let counter = recorder.register_counter(&key, &METADATA);
            let before = self.counters.insert(key, total).unwrap_or(0);
            counter.increment(total.saturating_sub(before));
            return;
        }
        recorder.describe_gauge(name.into(), unit, help);
        recorder.register_gauge(&key, &METADATA).set(value.as_f64());
        self.gauges.insert(key);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
    use trommel_sim::MemoryVfs;

    use crate::{Db, Options};

    fn open(vfs: &MemoryVfs) -> Db {
        Db::open("db", Options::default().vfs(Arc::new(vfs.clone()))).unwrap()
    }

    /// The values of a recorder since the last call, by name and labels.
    fn taken(snapshotter: &Snapshotter) -> BTreeMap<String, f64> {
        let mut values = BTreeMap::new();
        for (key, unit, help, value) in snapshotter.snapshot().into_vec() {
            let key = key.key();
            assert!(help.is_some(), "{key}");
            assert_eq!(unit.is_some(), key.name().contains("micro"), "{key}");
            let labels = key.labels().map(|it| format!("{}=\"{}\"", it.key(), it.value()));
            let labels = labels.collect::<Vec<_>>().join(",");
            let value = match value {
                DebugValue::Counter(count) => count as f64,
                DebugValue::Gauge(value) => value.0,
                DebugValue::Histogram(_) => panic!("{key} is a histogram"),
            };
            let sample = format!("{}{{{labels}}}", key.name());
            assert!(values.insert(sample, value).is_none(), "{key}");
        }
        values
    }

    /// The numbers of the text and of the recorder are the same, name by name, except for times:
    /// the facade's counters are integers.
    #[test]
    fn a_recorder_gets_what_the_text_says() {
        let db = open(&MemoryVfs::new());
        db.measure_latencies(true);
        (0..1000_u32).for_each(|key| _ = db.put(format!("{key}"), "value").unwrap());
        db.flush().unwrap();
        (500..1500_u32).for_each(|key| _ = db.get(format!("{key}")).unwrap());
        db.wait_idle().unwrap();

        let recorder = DebuggingRecorder::new();
        metrics::with_local_recorder(&recorder, || db.publish_metrics("it"));
        let published = taken(&recorder.snapshotter());
        let text = db.openmetrics("it");
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let as_published = |line: &str| -> (String, f64) {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap();
            let name = sample.split('{').next().unwrap();
            if ["_seconds_total", "_seconds_sum"].iter().any(|end| name.ends_with(end)) {
                return (
                    sample.replacen("seconds", "microseconds", 1),
                    (value * 1e6 + 1e-3).floor(),
                );
            }
            (sample.to_owned(), if name.ends_with("_total") { value.floor() } else { value })
        };
        let written: BTreeMap<String, f64> = samples.map(as_published).collect();
        assert_eq!(published, written);
        let gets = written["trommel_gets_total{store=\"it\"}"];
        assert!(gets == 1000.0 && written.len() > 300, "{written:?}");
        assert!(written["trommel_flush_microseconds_total{store=\"it\"}"] > 0.0, "{written:?}");
    }

    /// Regression: a counter stayed at its highest value until a reopened store had counted more.
    #[test]
    fn counters_grow_by_what_is_new() {
        let (vfs, recorder) = (MemoryVfs::new(), DebuggingRecorder::new());
        let snapshotter = recorder.snapshotter();
        let grown = |db: &Db, gets: u32| {
            (0..gets).for_each(|_| _ = db.get("key").unwrap());
            metrics::with_local_recorder(&recorder, || db.publish_metrics("it"));
            taken(&snapshotter)["trommel_gets_total{store=\"it\"}"]
        };
        let db = open(&vfs);
        assert_eq!((grown(&db, 10), grown(&db, 5), grown(&db, 0)), (10.0, 5.0, 0.0));
        db.reset_stats();
        assert_eq!(grown(&db, 3), 3.0);
        // Regression: of more than before the reset, only the difference was added.
        db.reset_stats();
        assert_eq!(grown(&db, 7), 7.0);
        db.close().unwrap();
        let db = open(&vfs);
        assert_eq!((grown(&db, 4), grown(&db, 5)), (4.0, 5.0));
    }

    /// Regression: gauges kept their last value.
    #[test]
    fn missing_gauges_become_zero() {
        let gauge = "trommel_filter_false_positive_keys{store=\"it\",level=\"0\",kind=\"paired\"}";
        // Taking the values of this recorder sets its gauges to 0: once each.
        let recorder = DebuggingRecorder::new();
        let db = open(&MemoryVfs::new());
        (0..10_000_u32).for_each(|key| _ = db.put(format!("{key}"), "value").unwrap());
        db.flush().unwrap();
        (0..30_000_u32).for_each(|key| _ = db.get(format!("{}.5", key / 3)).unwrap());
        metrics::with_local_recorder(&recorder, || db.publish_metrics("it"));
        let text = db.openmetrics("it");
        let keys = text.lines().find_map(|line| line.strip_prefix(gauge)).unwrap();
        assert!(keys.trim().parse::<u64>().unwrap() > 0, "{text}");
        db.reset_stats();
        metrics::with_local_recorder(&recorder, || db.publish_metrics("it"));
        let now = taken(&recorder.snapshotter());
        assert_eq!(now[gauge], 0.0);
        assert_eq!(now["trommel_level_tables{store=\"it\",level=\"0\"}"], 1.0);
    }

    /// Regression: gauges became 0 only when the last iterator of a closed store was dropped, even
    /// if the store had been opened again.
    #[test]
    fn gauges_of_a_closed_store_are_zero() {
        let (vfs, recorder) = (MemoryVfs::new(), DebuggingRecorder::new());
        let gauge = "trommel_last_sequence_number{store=\"it\"}";
        let published = |act: &mut dyn FnMut()| {
            metrics::with_local_recorder(&recorder, act);
            let gauges = taken(&recorder.snapshotter()).into_iter();
            gauges.filter(|(sample, _)| !sample.contains("_total")).collect::<BTreeMap<_, _>>()
        };
        let db = open(&vfs);
        db.put("key", "value").unwrap();
        let mut iter = Some(db.iter());
        assert_eq!(published(&mut || db.publish_metrics("it"))[gauge], 1.0);
        let closed = published(&mut || {
            db.publish_metrics("it");
            db.clone().close().unwrap();
            db.publish_metrics("it");
        });
        assert!(closed.len() > 30, "{closed:?}");
        closed.iter().for_each(|(sample, value)| assert_eq!(*value, 0.0, "{sample}"));

        let again = open(&vfs);
        again.put("key", "value").unwrap();
        let opened = published(&mut || {
            again.publish_metrics("it");
            drop(iter.take());
        });
        assert_eq!(opened[gauge], 2.0);
    }

    /// Regression: publications that overtook each other were taken for a reset.
    #[test]
    fn concurrent_publications_add_each_count_once() {
        const ROUNDS: u64 = 200;
        let (db, recorder) = (open(&MemoryVfs::new()), DebuggingRecorder::new());
        let publish = || {
            for _ in 0..ROUNDS {
                db.get("key").unwrap();
                metrics::with_local_recorder(&recorder, || db.publish_metrics("it"));
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(publish)));
        let gets = taken(&recorder.snapshotter())["trommel_gets_total{store=\"it\"}"];
        assert_eq!(gets, (4 * ROUNDS) as f64);
    }

    /// Regression: an unknown number of wasted reads was published as 0.
    #[test]
    fn an_unknown_gauge_is_not_a_number() {
        let gauge = "trommel_expected_wasted_reads_per_miss{store=\"it\"}";
        let (vfs, recorder) = (MemoryVfs::new(), DebuggingRecorder::new());
        let db = open(&vfs);
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let db = open(&vfs);
        metrics::with_local_recorder(&recorder, || db.publish_metrics("it"));
        assert!(taken(&recorder.snapshotter())[gauge].is_nan());
        db.get("key").unwrap();
        metrics::with_local_recorder(&recorder, || db.publish_metrics("it"));
        assert!(taken(&recorder.snapshotter())[gauge] < 1.0);
    }
}
