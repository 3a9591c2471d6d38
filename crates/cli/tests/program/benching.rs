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

/// The flags of RocksDB's page on reads while writing, at 10,000 keys and 1 second.
const READ_WHILE_WRITING: &str = "--benchmarks=readwhilewriting --disable_seek_compaction=1 \
    --mmap_read=0 --statistics=1 --histogram=1 --readahead=0 --num=10000 --threads=2 \
    --value_size=800 --block_size=16384 --cache_size=17179869184 --bloom_bits=10 \
    --cache_numshardbits=4 --open_files=50000000 --verify_checksum=1 --disable_data_sync=0 \
    --disable_wal=0 --compression_type=none --stats_interval=10000 --compression_ratio=0.50 \
    --write_buffer_size=67108864 --target_file_size_base=67108864 --max_write_buffer_number=3 \
    --max_background_compactions=8 --level0_file_num_compaction_trigger=8 \
    --level0_slowdown_writes_trigger=17 --level0_stop_writes_trigger=24 --num_levels=6 \
    --delete_obsolete_files_period_micros=5000000 --min_level_to_compress=3 \
    --stats_per_interval=1 --disable_auto_compactions=0 --source_compaction_factor=1 \
    --use_existing_db=1 --seed=1365556909 --rate_limit=2 --mmap_write=0 \
    --max_bytes_for_level_base=536870912 --max_bytes_for_level_multiplier=8 \
    --writes_per_second=10000 --duration=1";

/// The flags that RocksDB's benchmark.sh passes, except for features that are missing here.
const BENCHMARK_SH: &str = "--disable_auto_compactions=1 --sync=0 --num=2000 --num_levels=6 \
    --key_size=20 --value_size=400 --block_size=8192 --cache_size=1048576 \
    --cache_numshardbits=6 --compression_max_dict_bytes=0 --compression_ratio=0.5 \
    --compression_type=lz4 --bytes_per_sync=8388608 --cache_index_and_filter_blocks=0 \
    --pin_l0_filter_and_index_blocks_in_cache=1 --benchmark_write_rate_limit=0 \
    --hard_rate_limit=3 --rate_limit_delay_max_milliseconds=1000000 \
    --write_buffer_size=134217728 --target_file_size_base=134217728 \
    --max_bytes_for_level_base=1073741824 --verify_checksum=1 \
    --delete_obsolete_files_period_micros=62914560 --max_bytes_for_level_multiplier=8 \
    --statistics=0 --stats_per_interval=1 --stats_interval_seconds=60 --histogram=1 \
    --memtablerep=skip_list --bloom_bits=10 --open_files=-1 --subcompactions=1 \
    --compaction_style=0 --num_column_families=1 --level_compaction_dynamic_level_bytes=true \
    --soft_pending_compaction_bytes_limit=167503724544 \
    --hard_pending_compaction_bytes_limit=335007449088 --use_direct_reads=0 \
    --use_direct_io_for_flush_and_compaction=0 --prefix_size=0 --max_background_jobs=8 \
    --level0_file_num_compaction_trigger=4 --level0_slowdown_writes_trigger=10485760 \
    --level0_stop_writes_trigger=10485760 --min_level_to_compress=0 --threads=1 \
    --disable_wal=1 --seed=1700000000 --benchmarks=filluniquerandom,compact,stats";

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
    for text in ["Seed:       1365556909", "Filters:    blocked:10", "ratio 8,", "Background: 9"] {
        assert!(ran.out.contains(text), "{text}: {}", ran.out);
    }
    assert!(ran.out.contains("Microseconds per read:") && ran.out.contains("STATISTICS:"));
    let notes: Vec<_> = ran.err.lines().filter(|line| line.starts_with("note: ")).collect();
    let others: Vec<_> = ran.err.lines().filter(|line| !line.starts_with("note: ")).collect();
    check_snapshot("bench_notes", &(notes.join("\n") + "\n"));
    assert!(others.iter().all(|line| line.starts_with("readwhilewriting: (")), "{others:?}");
    let ran = bench(&program, "bulk", BENCHMARK_SH);
    assert!(ran.out.contains("\nfilluniquerandom :") && ran.out.contains(" 2000 operations;"));
    assert!(ran.out.contains("Compaction: only on request"), "{}", ran.out);
}

#[test]
fn what_cannot_be_done_is_refused_with_its_reason() {
    let program = Program::new();
    let mut text = String::new();
    for line in [
        "--use_plain_table=1 --memtablerep=prefix_hash --prefix_size=20 --mmap_read=1",
        "--compression_type=zlib",
        "--compression_type=lz4 --min_level_to_compress=2",
        "--use_direct_io_for_flush_and_compaction --compaction_style=1",
        "--num_column_families=4 --merge_operator=put",
        "--use_ribbon_filter",
        "--use_ribbon_filter --bloom_bits=10 --filter_uri=ribbon:7",
        "--noverify_checksum",
        "--wal_dir=/elsewhere",
        "--filters=paired:10 --bloom_bits=10",
        "--filter-shape=sliced",
        "--filter-shape=whole --partition_index_and_filters",
        "--filter-residency=pinned --cache_index_and_filter_blocks=1",
        "--filter-residency=cached --cache_index_and_filter_blocks --unpartitioned_pinning",
        "--filter-piece-bytes=100",
        "--filter_uri=cuckoo:10",
        "--mmap_read --use_direct_reads",
        "--benchmarks=fillseq,mergerandom",
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
fn seeks_within_prefixes_ask_filters_of_prefixes() {
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
    let note = "note: --benchmark-write-rate-limit does not hold for updaterandom, ycsba";
    assert!(ran.err.starts_with(note), "{ran:?}");
    assert!(ran.out.contains("1000000000 bytes a second\n"), "{ran:?}");
    let ran = program.run(&format!("{line} --rate=1000000"));
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
}

#[test]
fn filters_are_cut_and_held_as_db_bench_and_this_program_name_it() {
    let program = Program::new();
    let work = "--num=3000 --benchmarks=fillrandom,compact,readmissing,memstats";
    let in_cache = |ran: &Ran| {
        let line = ran.out.lines().find(|line| line.starts_with("- its filters")).unwrap();
        !line.ends_with(" 0 B")
    };
    let theirs = "--partition_index_and_filters --cache_index_and_filter_blocks=1 \
        --metadata_block_size=1024";
    let ran = program.run(&format!("bench {theirs} {work}"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("; partitioned, pieces of 1 KiB; in the block cache\n"), "{ran:?}");
    assert!(ran.err.contains("cuts filters only: indexes stay as they are"), "{ran:?}");
    assert!(ran.err.contains("indexes of open tables stay in memory"), "{ran:?}");
    assert!(in_cache(&ran), "{ran:?}");
    let ours = "--filter-shape=partitioned --pinned-filter-bytes=1M";
    let ran = program.run(&format!("bench {ours} {work}"));
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    assert!(ran.out.contains("; partitioned, pieces of 32 KiB; pinned up to 1 MiB\n"));
    assert!(!in_cache(&ran), "{ran:?}");
    let off = "--nopartition_index_and_filters --cache_index_and_filter_blocks=false";
    let ran = program.run(&format!("bench {off} --num=100 --benchmarks=fillseq"));
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    assert!(!ran.out.contains("partitioned") && !ran.out.contains("block cache"), "{ran:?}");
}

#[test]
fn the_pinning_flags_of_db_bench_pin_filters() {
    let program = Program::new();
    let cached = "--cache_index_and_filter_blocks";
    let level_0 = "--pin_l0_filter_and_index_blocks_in_cache";
    let not_by_level = "does nothing here: --filter-residency has filters of level 0 in the cache";
    let pinned_anyway = "does nothing here: all filters are pinned with their tables";
    for (line, place, told) in [
        (format!("{cached} --unpartitioned_pinning=1"), "", "has filters pinned with their tables"),
        (
            format!("{cached} --partition_index_and_filters --partition_pinning"),
            "partitioned, pieces of 32 KiB",
            "--partition_pinning has filters pinned with their tables",
        ),
        (
            format!("{cached} --unpartitioned_pinning --filter-residency=pinned"),
            "",
            "--unpartitioned_pinning has filters pinned",
        ),
        (format!("{cached} --partition_pinning"), "in the block cache", "filters are not cut"),
        (
            format!("{cached} --filter-shape=partitioned --unpartitioned_pinning"),
            "partitioned, pieces of 32 KiB; in the block cache",
            "--unpartitioned_pinning does nothing here: filters are cut",
        ),
        (format!("{cached} {level_0}"), "in the block cache, of level 0 pinned", ""),
        (format!("--filter-residency=cached {level_0}"), "in the block cache", not_by_level),
        (
            "--filter-residency=cached-below-level-0".into(),
            "in the block cache, of level 0 pinned",
            "",
        ),
        (level_0.to_owned(), "", pinned_anyway),
        (format!("{cached} --unpartitioned_pinning {level_0}"), "", pinned_anyway),
        (
            "--filter-residency=cached --pin_top_level_index_and_filter".to_owned(),
            "in the block cache",
            "the index of a cut filter's pieces is held where the pieces are",
        ),
        (format!("{cached} --unpartitioned_pinning=0 {level_0}=false"), "in the block cache", ""),
        ("--unpartitioned_pinning --partition_pinning=0".to_owned(), "", ""),
    ] {
        let ran =
            program.run(&format!("bench --num=100 --benchmarks=fillseq --filters=none {line}"));
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        let filters = ran.out.lines().find(|line| line.starts_with("Filters:")).unwrap();
        let said = filters.split_once("; ").map_or("", |(_, place)| place);
        assert_eq!(said, place, "{line}");
        assert!(ran.err.contains(told), "{line}: {}", ran.err);
        assert!(!told.is_empty() || !ran.err.contains("pin"), "{line}: {}", ran.err);
    }
}

#[test]
fn records_and_reports_are_written_in_addition_to_the_lines() {
    let program = Program::new();
    let [json, csv, page, rates] =
        ["a.jsonl", "a.csv", "a.html", "rates.csv"].map(|name| program.path(name));
    let ran = program.run(&format!(
        "bench --num=2000 --benchmarks=fillrandom,flush,readmissing[W1-X2] --histogram \
         --duration=0.2 --json={} --csv={} --report={} --report-interval-seconds=1 --report-file={}",
        json.display(),
        csv.display(),
        page.display(),
        rates.display()
    ));
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{}", ran.out);
    let read = |file| std::fs::read_to_string(file).unwrap();
    let records = read_lines(&read(json)).unwrap();
    let names: Vec<_> = records.iter().map(|record| (&*record.workload, record.repeat)).collect();
    assert_eq!(names, [("fillrandom", 1), ("flush", 1), ("readmissing", 1), ("readmissing", 2)]);
    let settings = &records[0].settings;
    for (name, value) in [("duration", "0.2"), ("cache_size", "33554432"), ("seed", "42")] {
        assert_eq!(settings[name].to_string(), value);
    }
    assert_eq!(settings["filters"], "L0=paired:16,L1-=paired:12");
    let read_record = &records[3];
    assert!(read_record.latency_ns.is_some() && read_record.state.filters.is_some());
    assert_eq!(read_record.asked, Some(read_record.operations));
    assert_eq!(read(csv).lines().count(), 5);
    let page = read(page);
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("readmissing"));
    assert!(read(rates).starts_with("secs_elapsed,interval_qps\n"));
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
    assert!(ran.out.contains("first 14 bytes, and no filters of whole keys"), "{}", ran.out);
    assert!(ran.out.contains("keys are prefixes"), "{}", ran.out);
    let ran = bench(&program, "both", &format!("{line} --whole_key_filtering"));
    assert!(ran.out.contains("filters of prefixes, asked by scans"), "{}", ran.out);
    assert!(!ran.out.contains("no filters of whole keys"), "{}", ran.out);
    let ran = program.run("bench --nowhole_key_filtering");
    assert_ne!(ran.code, Some(0));
    assert!(ran.err.contains("--prefix_size=8"), "{}", ran.err);
}
