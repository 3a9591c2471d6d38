//! Metrics as OpenMetrics text, which Prometheus and compatible systems read.
//!
//! Source: [OpenMetrics 1.0](https://prometheus.io/docs/specs/om/open_metrics_spec/).

use std::fmt::Write;

use crate::metric_family::{Family, FamilyKind, Figure};

/// The text, with its end marker. Each sample has the label `store` in addition to its own.
pub(crate) fn text(families: &[Family], store: &str) -> String {
    let mut text = String::new();
    let store = escaped(store);
    for Family { name, kind, help, samples } in families {
        let kind = match kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
            FamilyKind::Info => "info",
        };
        // Writing to a string never fails.
        let _ = writeln!(text, "# TYPE trommel_{name} {kind}\n# HELP trommel_{name} {help}");
        for sample in samples {
            let _ = write!(text, "trommel_{name}{}{{store=\"{store}\"", sample.suffix);
            for (label, value) in &sample.labels {
                let _ = write!(text, ",{label}=\"{}\"", escaped(value));
            }
            let _ = match sample.value {
                Figure::Count(count) => writeln!(text, "}} {count}"),
                other => writeln!(text, "}} {}", other.as_f64()),
            };
        }
    }
    text.push_str("# EOF\n");
    text
}

/// A label's value as it is written between quotation marks.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use trommel_sim::MemoryVfs;

    use crate::{Db, Options};

    fn store() -> Db {
        let options = Options::default().vfs(Arc::new(MemoryVfs::new()));
        let db = Db::open("db", options.filters("blocked:10".parse().unwrap())).unwrap();
        db.measure_latencies(true);
        (0..1000_u32).for_each(|key| _ = db.put(format!("{:04}", 2 * key), "value").unwrap());
        db.flush().unwrap();
        (0..1999_u32).for_each(|key| _ = db.get(format!("{key:04}")).unwrap());
        db
    }

    /// Each sample belongs to the family above it, each family occurs once, and the values are
    /// those of the statistics.
    #[test]
    fn the_text_is_openmetrics_and_has_the_values_of_the_statistics() {
        let db = store();
        let text = db.openmetrics("a\"b");
        let body = text.strip_suffix("# EOF\n").expect("an end marker");
        let (mut names, mut family, mut kind) = (BTreeSet::new(), "", "");
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                (family, kind) = rest.split_once(' ').unwrap();
                assert!(names.insert(family), "{family} twice");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# HELP ") {
                assert_eq!(rest.split_once(' ').unwrap().0, family);
                continue;
            }
            let (sample, value) = line.rsplit_once(' ').unwrap();
            assert!(sample.contains("{store=\"a\\\"b\""), "{line}");
            let name = sample.split('{').next().unwrap();
            let suffixes: &[&str] = match kind {
                "counter" => &["_total"],
                "gauge" => &[""],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_count", "_sum"],
                _ => panic!("{family} is a {kind}"),
            };
            let suffix = name.strip_prefix(family).unwrap();
            assert!(suffixes.contains(&suffix), "{line} of a {kind}");
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        }
        let stats = db.stats();
        let has = |line: String| assert!(body.lines().any(|it| it == line), "{line} in\n{body}");
        let store = "store=\"a\\\"b\"";
        has(format!("trommel_gets_total{{{store}}} 1999"));
        has(format!("trommel_gets_found_total{{{store}}} 1000"));
        has(format!("trommel_level_entries{{{store},level=\"0\"}} 1000"));
        let memtables = stats.memory.memtables;
        has(format!("trommel_memory_bytes{{{store},component=\"memtables\"}} {memtables}"));
        let counts = db.filter_report().levels[0].counts;
        assert!(counts.negatives > 900, "{counts:?}");
        let labels = format!("{{{store},level=\"0\",kind=\"blocked\"}}");
        has(format!("trommel_filter_negatives_total{labels} {}", counts.negatives));
    }

    /// The buckets of a histogram are cumulative, with ascending bounds, and the last one is its
    /// count.
    #[test]
    fn histograms_are_cumulative_and_end_in_their_count() {
        let db = store();
        let text = db.openmetrics("it");
        let of = |operation: &str, suffix: &str| -> Vec<(String, f64)> {
            let start = format!(
                "trommel_operation_seconds{suffix}{{store=\"it\",operation=\"{operation}\""
            );
            let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
            let pair = |rest: &str| {
                let (labels, value) = rest.split_once("} ").unwrap();
                let bound = labels.strip_prefix(",le=\"").map(|it| it.trim_end_matches('"'));
                (bound.unwrap_or_default().to_owned(), value.parse().unwrap())
            };
            lines.map(pair).collect()
        };
        for latency in db.latencies() {
            let name = latency.operation.name();
            let (buckets, counts, sums) =
                (of(name, "_bucket"), of(name, "_count"), of(name, "_sum"));
            assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{buckets:?}");
            let bounds: Vec<f64> =
                buckets.iter().map(|(bound, _)| bound.replace('+', "").parse().unwrap()).collect();
            assert!(bounds.is_sorted() && bounds.last() == Some(&f64::INFINITY), "{bounds:?}");
            let count = latency.count as f64;
            assert_eq!((buckets[buckets.len() - 1].1, counts[0].1), (count, count));
            assert!((sums[0].1 - latency.total.as_secs_f64()).abs() < 1e-9, "{sums:?}");
        }
        assert_eq!(of("flush", "_count")[0].1, 1.0);
        assert!(of("get", "_count")[0].1 > 5.0 && of("write", "_count")[0].1 > 2.0, "{text}");
    }

    #[test]
    fn a_label_cannot_end_its_line() {
        assert_eq!(super::escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
