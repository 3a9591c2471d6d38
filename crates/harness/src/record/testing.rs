//! Records for tests.

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::{
    Amplification, BudgetRecord, FilterRecord, Io, LevelRecord, Product, Record, Run, State,
};
use crate::histogram::Latencies;
use crate::machine::Environment;
use crate::measured::Measured;

/// A record with every part present.
pub(crate) fn full() -> Record {
    let run = Run {
        id: "2026-11-21T09:30:00Z-0badcafe".into(),
        store: Product { name: "trommel".into(), version: "0.1.0".into() },
        settings: [
            ("num", json!(1_000_000)),
            ("filters", json!("L0=paired:16,L1-=paired:12")),
            ("sync", json!(false)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect(),
        environment: environment(),
    };
    let mut latencies = Latencies::new();
    for nanos in (0..10_000_u64).map(|n| 900 + n * n % 40 * 97 + (n % 1000 / 999) * 250_000) {
        latencies.record(Duration::from_nanos(nanos));
    }
    let measured = Measured {
        operations: 1_000_000,
        bytes: 73_327_312,
        found: Some((632_132, 1_000_000)),
        thread_time: Duration::from_millis(5_026),
        wall_time: Duration::from_millis(2_531),
        latencies: Some(latencies),
        ..Measured::default()
    };
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_253_400);
    let mut record = Record::new(&run, "readrandom", 1, 2, start, &measured);
    record.user_seconds = Some(4.75);
    record.system_seconds = Some(0.25);
    record.series = vec![(1.0, 380_000), (2.0, 410_000), (2.531, 210_000)];
    record.state = state();
    record
}

fn environment() -> Environment {
    Environment {
        program: "0.1.0".into(),
        commit: Some("6194cf6".into()),
        rustc: "rustc 1.95.0".into(),
        profile: "release".into(),
        debug_assertions: false,
        cpu: Some("AMD EPYC".into()),
        cpu_flags: vec!["avx2".into(), "bmi2".into()],
        cores: 2,
        governor: Some("performance".into()),
        memory_bytes: Some(16 << 30),
        kernel: Some("Linux 6.1.0".into()),
        directory: Some("/data/bench".into()),
        file_system: Some("ext4".into()),
        device: Some("/dev/vda1".into()),
        rotational: Some(false),
    }
}

fn state() -> State {
    let level = |level, tables, bytes, entries| LevelRecord {
        level,
        tables,
        bytes,
        entries: Some(entries),
        deletions: Some(0),
    };
    let filter = |level, keys: u64, probes: u64, false_positives: u64, rate: f64| {
        let negatives = probes / 2;
        FilterRecord {
            level,
            kind: "paired".into(),
            tables: level + 1,
            keys,
            bits_asked: Some(12.0),
            bits_stored: Some(12.02),
            bytes: keys * 12 / 8,
            probes,
            negatives,
            false_positives,
            true_positives: probes - negatives - false_positives,
            measured_rate: Some(false_positives as f64 / (negatives + false_positives) as f64),
            interval: Some(trommel::wilson(false_positives, negatives + false_positives)),
            expected_rate: Some(rate),
            alarm: None,
        }
    };
    let memory = [("memtables", 1 << 20), ("block cache", 32 << 20), ("filters", 948_198)];
    State {
        io: Some(Io {
            gets: Some(1_000_000),
            block_reads: Some(640_211),
            cache_hits: Some(12_345),
            bytes_read: Some(2_622_304_256),
            bytes_written: Some(0),
            user_bytes: Some(0),
            log_bytes: Some(0),
            log_syncs: Some(0),
            flushes: Some(0),
            flush_bytes: Some(0),
            flush_seconds: Some(0.0),
            compactions: Some(0),
            compaction_bytes_read: Some(0),
            compaction_bytes_written: Some(0),
            compaction_seconds: Some(0.0),
            filter_seconds: Some(0.0),
            stall_seconds: Some(0.0),
        }),
        levels: Some(vec![level(0, 2, 7_549_747, 65_536), level(1, 9, 66_400_000, 576_001)]),
        filters: Some(vec![
            filter(0, 65_536, 1_900_000, 2_850, 0.003_1),
            filter(1, 576_001, 870_000, 1_305, 0.002_95),
        ]),
        budget: Some(budget()),
        memory: Some(memory.map(|(part, bytes)| (part.to_owned(), bytes)).into_iter().collect()),
        amplification: Some(Amplification {
            write: Some(3.25),
            space: Some(1.08),
            read: Some(0.652_556),
        }),
    }
}

fn budget() -> BudgetRecord {
    BudgetRecord {
        spec: "budget=12/key".into(),
        budget_bytes: 962_305,
        built_bytes: 948_198,
        resident_bytes: 950_004,
        dropped_tables: 1,
        drifted_tables: 2,
        expected_wasted_reads: 0.004_1,
        planned_wasted_reads: 0.003_9,
    }
}
