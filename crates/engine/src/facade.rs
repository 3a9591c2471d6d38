//! Metrics through the crate `metrics`, which passes them to the recorder that a program has
//! installed.

use metrics::{Label, counter, describe_counter, describe_gauge, gauge};

use crate::families::{Family, FamilyKind, Figure, MetricSample};

/// Publishes `families`, each sample with `labels` in addition to its own.
pub(crate) fn publish(families: &[Family], labels: &[(&'static str, &str)]) {
    for Family { name, kind, help, samples } in families {
        for MetricSample { suffix, labels: own, value } in samples {
            let name = format!("trommel_{name}{suffix}");
            let own = own.iter().map(|(label, value)| (*label, value.as_str()));
            let labels: Vec<Label> = own
                .chain(labels.iter().copied())
                .map(|(label, value)| Label::new(label, value.to_owned()))
                .collect();
            match (kind, value) {
                (FamilyKind::Counter | FamilyKind::Histogram, Figure::Count(count)) => {
                    describe_counter!(name.clone(), help.clone());
                    counter!(name, labels).absolute(*count);
                }
                (_, Figure::Count(count)) => set(name, help, labels, *count as f64),
                (_, Figure::Real(real)) => set(name, help, labels, *real),
            }
        }
    }
}

fn set(name: String, help: &str, labels: Vec<Label>, value: f64) {
    describe_gauge!(name.clone(), help.to_owned());
    gauge!(name, labels).set(value);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use trommel_sim::MemoryVfs;

    use crate::{Db, Options};

    /// The numbers of the text and of the recorder are the same, name by name.
    #[test]
    fn a_recorder_gets_what_the_text_says() {
        let db = Db::open("db", Options::default().vfs(Arc::new(MemoryVfs::new()))).unwrap();
        db.measure_latencies(true);
        (0..1000_u32).for_each(|key| _ = db.put(format!("{key}"), "value").unwrap());
        db.flush().unwrap();
        (500..1500_u32).for_each(|key| _ = db.get(format!("{key}")).unwrap());
        db.wait_idle().unwrap();

        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || db.publish_metrics(&[("store", "it")]));
        let mut published = BTreeMap::new();
        for (key, _, help, value) in snapshotter.snapshot().into_vec() {
            let key = key.key();
            assert!(help.is_some(), "{key}");
            let labels: Vec<String> = key
                .labels()
                .map(|label| format!("{}=\"{}\"", label.key(), label.value()))
                .collect();
            let (last, labels) = labels.split_last().unwrap();
            assert_eq!(last, "store=\"it\"");
            let labels = match labels {
                [] => String::new(),
                labels => format!("{{{}}}", labels.join(",")),
            };
            let value = match value {
                DebugValue::Counter(count) => count as f64,
                DebugValue::Gauge(value) => value.0,
                DebugValue::Histogram(_) => panic!("{key} is a histogram"),
            };
            assert!(published.insert(format!("{}{labels}", key.name()), value).is_none(), "{key}");
        }
        let text = db.openmetrics();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let written: BTreeMap<String, f64> = samples
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(sample, value)| (sample.to_owned(), value.parse().unwrap()))
            .collect();
        assert_eq!(published, written);
        assert!(written["trommel_gets_total"] == 1000.0 && written.len() > 300, "{written:?}");
    }
}
