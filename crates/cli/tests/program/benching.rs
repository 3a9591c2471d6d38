//! `trommel bench` beyond the basics: db_bench's own command lines, records, repeats, rates.

use std::path::PathBuf;

use trommel_harness::record::read_lines;

use crate::support::{Program, Ran, check_snapshot};

/// Runs a bench on the store `name` and expects success.
fn bench(program: &Program, name: &str, line: &str) -> Ran {
    let ran = program.run(&format!("bench --db={} {line}", program.path(name).display()));
    assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
    ran
}

/// Flags of RocksDB's page on reads while writing that mean the same here, at 10,000 keys.
const READ_WHILE_WRITING: &str = "--benchmarks=readwhilewriting --statistics=1 --histogram=1 \
    --num=10000 --threads=2 --value_size=800 --block_size=16384 --cache_size=17179869184 \
    --bloom_bits=10 --open_files=50000000 --disable_wal=0 --compression_type=none \
    --compression_ratio=0.50 --write_buffer_size=67108864 --target_file_size_base=67108864 \
    --max_write_buffer_number=3 --max_background_jobs=9 --level0_file_num_compaction_trigger=8 \
    --level0_slowdown_writes_trigger=17 --level0_stop_writes_trigger=24 \
    --disable_auto_compactions=0 --use_existing_db=1 --seed=1365556909 \
    --max_bytes_for_level_base=536870912 --max_bytes_for_level_multiplier=8 --duration=1";

#[test]
fn command_lines_of_rocksdb_s_wiki_run_unchanged() {
    let program = Program::new();
    for line in [
        "--benchmarks=fillseq --num=2000",
        "--benchmarks=fillseq,stats --statistics --num=2000",
        "--benchmarks=fillseq,readrandom,readseq --num=2000",
        "-benchmarks=fillrandom,readrandom -num=2000 -histogram -compression_type=none",
        "--filter_uri=speedb.PairedBloomFilter --bloom_bits=23.4 --num=2000",
        "-filter_uri=speedb.PairedBloomFilter:23.2 -num=2000",
    ] {
        let ran = program.run(&format!("bench {line}"));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{line}: {}", ran.out);
    }
    bench(&program, "rww", "--benchmarks=fillrandom --num=10000 --value_size=800");
    let ran = bench(&program, "rww", READ_WHILE_WRITING);
    for text in [
        "Seed:       1365556909",
        "Filters:    blocked:10",
        "level_ratio 8,",
        "background_threads 9,",
        "max_frozen_memtables 2,",
    ] {
        assert!(ran.out.contains(text), "{text}: {}", ran.out);
    }
    assert!(ran.out.contains("Microseconds per read:") && ran.out.contains("STATISTICS:"));
    let line = "--disable_auto_compactions=1 --disable_wal --sync=0 --num=2000 --open_files=-1 \
        --compression_type=lz4 --benchmarks=filluniquerandom,compact,stats";
    let ran = bench(&program, "bulk", line);
    assert!(ran.out.contains("\nfilluniquerandom :") && ran.out.contains(" 2000 operations;"));
    assert!(ran.out.contains("auto_compaction false") && ran.out.contains("log false"));
}

#[test]
fn what_cannot_be_done_is_refused_with_its_reason() {
    let program = Program::new();
    let mut text = String::new();
    for line in [
        "--compression_type=zlib",
        "--wal_dir=/elsewhere",
        "--num_levels=6",
        "--sync=perhaps",
        "--filter-residency=held",
        "--filters=paired:10 --bloom_bits=10",
        "--filter-shape=sliced",
        "--filter-partition-bytes=100",
        "--filter_uri=cuckoo:10",
        "--benchmarks=fillseq,mixgraph",
        "--benchmarks=fillseq[Y3]",
        "--benchmarks=fillseq,ycsba",
        "--get-then-put-hit-rate=2",
        "--duration=-1",
        "--max_write_buffer_number=1",
        "--json=/no/such/directory/a.jsonl",
    ] {
        let ran = program.run(&format!("bench {line}"));
        assert_eq!(&*ran.out, "", "{line}: {ran:?}");
        text += &format!("$ trommel bench {line}\n{}exit {}\n\n", ran.err, ran.code.unwrap());
    }
    check_snapshot("bench_refusals", &text);
    assert_eq!(program.left_over(), [] as [PathBuf; 0]);
}

/// A limit of bytes used to assume values of --value-size, but fill100K writes others. Filters of
/// prefixes used to be built for a benchmark whose workloads never queried them.
#[test]
fn seeks_within_prefixes_query_filters_of_prefixes() {
    let program = Program::new();
    let fill = "--num=5000 --write_buffer_size=64K --prefix_size=12 --filters=paired:12";
    let workloads = "--benchmarks=fillrandom,flush,resetstats,seekrandom,filterstats --reads=2000";
    // Whether tables are skipped because none of their keys has the prefix.
    let passed = |name: &str, flags: &str| -> (u64, u64) {
        let out = bench(&program, name, &format!("{workloads} {fill} {flags}")).out;
        let rows = out.lines().skip_while(|line| !line.starts_with("filters of prefixes"));
        let rows: Vec<Vec<u64>> = rows
            .skip(1)
            .take_while(|line| line.trim_start().starts_with('L'))
            .map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
            .collect();
        assert!(!rows.is_empty(), "{out}");
        // The columns after the tables and keys: probes and negatives, which are integers.
        let line = |row: &Vec<u64>| (row[2], row[3]);
        rows.iter().map(line).fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1))
    };
    let (probes, no) = passed("missing", "--seek_missing_prefix");
    assert!(probes >= 2000 && no * 100 > probes * 95, "{no} of {probes}");
    let (probes, no) = passed("there", "--prefix_same_as_start --seek_nexts=10");
    // If a scan starts within its prefix, only tables in which it found entries count.
    assert!(probes > 500 && no < probes, "{no} of {probes}");
    for (flags, why) in [
        ("--prefix_same_as_start", "--prefix_same_as_start needs prefixes: give --prefix_size too"),
        ("--seek_missing_prefix --prefix_size=8", "give a --prefix_size of more than 8"),
        ("--prefix_same_as_start --prefix_size=17", "up to the --key_size"),
    ] {
        let ran = program.run(&format!("bench --benchmarks=seekrandom --num=1000 {flags}"));
        assert_eq!(ran.code, Some(2), "{flags}: {ran:?}");
        assert!(ran.err.contains(why), "{flags}: {}", ran.err);
    }
}

#[test]
fn a_limit_of_bytes_is_of_those_that_are_written() {
    let line = "bench --num=3000 --benchmarks=fill100K --benchmark_write_rate_limit=1000000";
    let ran = Program::new().run(line);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    let seconds = ran.out.split_once(" seconds ").unwrap().0.rsplit_once(' ').unwrap().1;
    assert!(seconds.parse::<f64>().unwrap() >= 0.2, "three values of a tenth: {ran:?}");
}

/// A limit for benchmarks that write used to have no effect on those that also read, silently.
#[test]
fn limits_that_do_not_hold_are_named() {
    let program = Program::new();
    let line = "bench --num=100 --benchmarks=fillrandom,updaterandom,deleterandom,ycsbload,ycsba \
        --benchmark_write_rate_limit=1000000000";
    let ran = program.run(line);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let note = "note: --benchmark-write-rate-limit does not apply to updaterandom, ycsba";
    assert!(ran.err.starts_with(note), "{ran:?}");
    assert!(ran.out.contains("1000000000 bytes a second\n"), "{ran:?}");
    let ran = program.run(&format!("{line} --rate=1000000"));
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
}

#[test]
fn filters_are_cut_and_held_where_the_flags_say() {
    let program = Program::new();
    let work = "--num=3000 --benchmarks=fillrandom,compact,readmissing,memstats";
    let in_cache = |ran: &Ran| {
        let line = ran.out.lines().find(|line| line.starts_with("- its filters")).unwrap();
        !line.ends_with(" 0 B")
    };
    for (flags, settings, cached) in [
        (
            "--filter-shape=partitioned --filter-residency=cached --metadata_block_size=1024",
            ["filter_shape partitioned", "filter_partition_bytes 1024", "filter_residency cached"],
            true,
        ),
        (
            "--filter-shape=partitioned --pinned-filter-bytes=1M --filter-residency=pinned",
            ["filter_shape partitioned", "pinned_filter_bytes 1048576", "compression none"],
            false,
        ),
    ] {
        let ran = program.run(&format!("bench {flags} {work}"));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
        assert!(settings.iter().all(|setting| ran.out.contains(setting)), "{ran:?}");
        assert_eq!(in_cache(&ran), cached, "{ran:?}");
    }
}

#[test]
fn records_are_written_in_addition_to_the_lines() {
    let program = Program::new();
    let json = program.path("a.jsonl");
    let ran = program.run(&format!(
        "bench --num=2000 --benchmarks=fillrandom,flush,readmissing[W1-X2] --histogram \
         --duration=0.2 --json={}",
        json.display()
    ));
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{}", ran.out);
    let read = |file| std::fs::read_to_string(file).unwrap();
    let records = read_lines(&read(json)).unwrap();
    let names: Vec<_> = records.iter().map(|record| (&*record.workload, record.repeat)).collect();
    assert_eq!(names, [("fillrandom", 1), ("flush", 1), ("readmissing", 1), ("readmissing", 2)]);
    let settings = &records[0].settings;
    for (name, value) in [("duration", "0.2"), ("cache_bytes", "33554432"), ("seed", "42")] {
        assert_eq!(settings[name].to_string(), value);
    }
    assert_eq!(settings["filters"], "L0=paired:16,L1-=paired:12");
    let read_record = &records[3];
    assert!(read_record.results.latency_ns.is_some() && read_record.state.filters.is_some());
    assert_eq!(read_record.results.lookups, Some(read_record.results.operations));
    assert!(ran.out.contains("\nreadmissing [AVG    2 runs] : "), "{}", ran.out);
}

#[test]
fn every_workload_runs_on_the_real_store() {
    let program = Program::new();
    let ran = bench(
        &program,
        "db",
        "--num=2000 --threads=2 --cold --write_buffer_size=65536 --benchmarks=fillseq,fillbatch,\
         fillsync,fill100K,filluniquerandom,waitforcompaction,readhot,newiterator,\
         readwhilewriting,readwhilescanning,seekrandomwhilewriting,readrandomwriterandom,\
         updaterandom,getthenput,open,checkpoint,verifychecksum,levelstats,memstats,sstables,\
         ycsbload,ycsb-a,ycsbb,ycsbc,ycsbd,ycsbe,ycsbf,compactall",
    );
    let lines = |name: &str| {
        let start = format!("{name:<12} : ");
        ran.out.lines().filter(|line| line.starts_with(&start)).count()
    };
    for name in [
        "fillbatch",
        "fillsync",
        "fill100K",
        "filluniquerandom",
        "readhot",
        "newiterator",
        "readwhilewriting",
        "readwhilescanning",
        "seekrandomwhilewriting",
        "readrandomwriterandom",
        "updaterandom",
        "getthenput",
        "open",
        "checkpoint",
        "verify",
        "ycsbload",
        "ycsba",
        "ycsbb",
        "ycsbc",
        "ycsbd",
        "ycsbe",
        "ycsbf",
        "compact",
    ] {
        assert_eq!(lines(name), 1, "{name}: {}", ran.out);
    }
    for text in
        ["Level Files Size(MB)", "Block cache", "Level  Table   Size(KB)", "(4000 of 4000 found)"]
    {
        assert!(ran.out.contains(text), "{text}: {}", ran.out);
    }
    let left: Vec<_> = program.left_over();
    assert_eq!(left, [program.path("db")], "no checkpoint is left");
}

#[test]
fn the_seed_may_be_taken_from_the_clock() {
    let program = Program::new();
    let ran = program.run("bench --seed=0 --num=100 --benchmarks=fillrandom");
    let seed = ran.out.lines().find_map(|line| line.strip_prefix("Seed:       ")).unwrap();
    assert!(seed.parse::<u64>().unwrap() > 42, "{seed}");
}

/// Used to be rejected, on the grounds that filters always hold whole keys.
#[test]
fn filters_of_prefixes_can_be_the_only_ones() {
    let program = Program::new();
    let line = "--benchmarks=fillseq,flush,readmissing,filterstats --num=2000 --prefix_size=14";
    let ran = bench(&program, "prefixes", &format!("{line} -whole_key_filtering=false"));
    assert!(ran.out.contains("prefix_extractor fixed:14, whole_key_filters false"), "{}", ran.out);
    assert!(ran.out.contains("keys are prefixes"), "{}", ran.out);
    let ran = bench(&program, "both", &format!("{line} --whole_key_filtering"));
    assert!(ran.out.contains("filters of prefixes, queried by scans"), "{}", ran.out);
    assert!(!ran.out.contains("whole_key_filters false"), "{}", ran.out);
    let ran = program.run("bench --whole_key_filtering=false");
    assert_ne!(ran.code, Some(0));
    assert!(ran.err.contains("--prefix_size=8"), "{}", ran.err);
}
