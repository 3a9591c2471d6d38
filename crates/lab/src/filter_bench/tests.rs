//! Filters are measured according to plan, and impossible plans are rejected.

use trommel_harness::{Silent, Stop};

use super::fleet::{Fleet, FleetKeys, check_memory};
use super::*;

fn plan(spec: &str) -> FilterBenchPlan {
    FilterBenchPlan {
        spec: spec.parse().unwrap(),
        keys: 2000,
        vary: 0.4,
        key_bytes: 24,
        until: Until::Bytes(200_000),
        queries: QueryCounts { for_rate: 400_000, per_pattern: 20_000, batch: 8 },
        seed: 42,
        kernel: None,
        huge_pages: true,
        patterns: Pattern::all(),
    }
}

fn run(plan: &FilterBenchPlan) -> Result<FilterCell, Error> {
    measure(plan, Control { stop: &Stop::new(), progress: &Silent })
}

#[test]
fn a_fleet_fills_its_memory_and_errs_as_it_says() {
    for spec in ["standard:10", "blocked:10", "paired:10", "ribbon:8"] {
        let cell = run(&plan(spec)).unwrap();
        assert!((200_000..220_000).contains(&cell.built.memory_bytes), "{cell:?}");
        let average = cell.built.keys as f64 / cell.built.filters as f64;
        assert!((1600.0..2400.0).contains(&average), "{average} keys a filter");
        assert!((cell.built.stored_bits / cell.setup.bits - 1.0).abs() < 0.1, "{cell:?}");
        let rate = cell.rate.unwrap();
        assert!(rate.queries >= 400_000 && rate.false_positives > 1000);
        assert!(rate.deviation().abs() < 4.0, "{spec}: {rate:?}");
        assert!(!rate.is_bad() && !cell.interrupted);
        assert!(rate.best <= rate.measured && rate.measured <= rate.worst);
        assert!(rate.interval.0 < rate.measured && rate.measured < rate.interval.1);
        assert_eq!(cell.timings.len(), 6);
        assert!(cell.timings.iter().all(|timing| timing.gross_ns > 0.0));
        assert!((4.0..64.0).contains(&cell.built.build_bytes), "{cell:?}");
        let line = serde_json::to_string(&cell).unwrap();
        assert_eq!(serde_json::from_str::<FilterCell>(&line).unwrap(), cell);
    }
}

#[test]
fn one_filter_is_enough() {
    let mut plan = plan("paired:16");
    (plan.until, plan.keys, plan.vary) = (Until::Bytes(1), 10, 0.0);
    let cell = run(&plan).unwrap();
    assert_eq!((cell.built.filters, cell.built.keys), (1, 10));
    assert_eq!(cell.built.memory_bytes, cell.built.single_bytes);
}

#[test]
fn keys_can_be_counted_instead_of_bytes() {
    let mut plan = plan("blocked:10");
    (plan.until, plan.patterns) = (Until::Keys(5001), Vec::new());
    let cell = run(&plan).unwrap();
    assert_eq!((cell.built.keys, cell.timings.len()), (5001, 0));
    assert!((2..=5).contains(&cell.built.filters), "{cell:?}");
}

#[test]
fn all_keys_are_distinct_and_of_one_size() {
    let mut keys = FleetKeys::new(14);
    let mut seen = std::collections::HashSet::new();
    for filter in 0..3 {
        for number in 0..2000 {
            for is_absent in [false, true] {
                let key = match is_absent {
                    true => keys.absent(filter, number).to_vec(),
                    false => keys.key(filter, number).to_vec(),
                };
                assert_eq!(key.len(), 14);
                assert!(seen.insert(key), "filter {filter}, key {number}");
            }
        }
    }
    let (one, other) = (keys.key(1, 7).to_vec(), keys.key(2, 6).to_vec());
    assert!(keys.key(1, 7) == one && one != other, "whatever was made in between");
}

#[test]
fn all_kernels_err_alike() {
    let mut plan = plan("paired:10");
    (plan.patterns, plan.queries.for_rate) = (Vec::new(), 50_000);
    let mut rates = Vec::new();
    for kernel in Kernel::available() {
        plan.kernel = Some(kernel);
        let cell = run(&plan).unwrap();
        assert_eq!(cell.setup.kernel, Some(kernel.to_string()));
        rates.push(cell.rate);
    }
    assert!(rates.iter().all(|rate| rate == &rates[0]), "{rates:?}");
    plan.spec = "ribbon:8".parse().unwrap();
    assert_eq!(run(&plan).unwrap().setup.kernel, None, "it has no choice");
}

/// Times on large filters used to be for small pages, while a store has its filters on huge ones.
#[cfg(target_os = "linux")]
#[test]
fn large_filters_lie_on_the_pages_that_the_plan_says() {
    let advised = || {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut flags = maps.lines().filter(|line| line.starts_with("VmFlags:")).peekable();
        flags.peek()?;
        Some(flags.any(|line| line.split_whitespace().any(|flag| flag == "hg")))
    };
    let has_huge_pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    if !has_huge_pages || advised().is_none() {
        return;
    }
    let mut plan = plan("blocked:64");
    (plan.until, plan.keys, plan.vary) = (Until::Bytes(1), 1_000_000, 0.0);
    for huge_pages in [false, true] {
        plan.huge_pages = huge_pages;
        let fleet = Fleet::build(&plan, Control { stop: &Stop::new(), progress: &Silent }).unwrap();
        assert_eq!(fleet.cell(&plan).setup.huge_pages, huge_pages);
        assert_eq!(advised(), Some(huge_pages), "pages of the filter");
    }
}

#[test]
fn what_cannot_be_done_is_explained() {
    let text = |change: fn(&mut FilterBenchPlan)| {
        let mut plan = plan("paired:10");
        change(&mut plan);
        let error = run(&plan).unwrap_err();
        assert!(matches!(error, Error::Usage(_)), "{error:?}");
        error.to_string()
    };
    assert!(text(|plan| plan.keys = 0).contains("at least one key"));
    for vary in [1.0, -0.1, f64::NAN, f64::INFINITY] {
        let mut plan = plan("paired:10");
        plan.vary = vary;
        assert!(run(&plan).unwrap_err().to_string().contains("below 1"), "{vary}");
    }
    assert!(text(|plan| plan.key_bytes = 11).contains("at least 12 bytes"));
    assert!(text(|plan| plan.key_bytes = usize::MAX / 2).contains("at most 65536 bytes"));
    assert!(text(|plan| plan.spec = FilterSpec::NONE).contains("none"));
    assert!(text(|plan| plan.queries.batch = 0).contains("at least one key"));
    assert!(text(|plan| plan.queries.batch = 1 << 20).contains("at most 65536 keys"));
    assert!(text(|plan| plan.queries.per_pattern = 0).contains("at least one query"));
    if trommel_harness::machine::memory_bytes().is_some() {
        let error = text(|plan| plan.keys = u64::MAX / 2);
        assert!(error.contains("to build paired:10 of"), "{error}");
        assert!(text(|plan| plan.until = Until::Bytes(u64::MAX)).contains("for filters of"));
        assert!(text(|plan| plan.until = Until::Keys(u64::MAX)).contains("for filters of"));
    }
}

#[test]
fn more_memory_than_there_is_is_refused_before_it_is_taken() {
    let mut plan = plan("paired:10");
    plan.until = Until::Bytes(1 << 30);
    let text = check_memory(&plan, Some(1 << 20)).unwrap_err().to_string();
    assert!(text.contains("this machine has 1 MiB") && text.contains("--working-mem"), "{text}");
    check_memory(&plan, Some(2 << 30)).unwrap();
    check_memory(&plan, None).unwrap();
}

#[test]
fn a_time_lost_in_the_noise_is_not_reported() {
    let pattern = Pattern::all()[0];
    let net = |gross_ns, dry_ns| Timing { pattern, gross_ns, dry_ns }.net_ns();
    assert_eq!(net(20.0, 12.5), Some(7.5));
    assert_eq!([net(12.5, 12.5), net(1.0, 9.0)], [None, None]);
}

#[test]
fn a_stop_ends_it() {
    let stop = Stop::new();
    stop.set();
    let control = Control { stop: &stop, progress: &Silent };
    let result = measure(&plan("paired:10"), control);
    assert!(matches!(result, Err(Error::Interrupted)));
}

/// Stops the run when its first pattern begins.
struct Stopper(Stop);

impl trommel_harness::Progress for Stopper {
    fn begin(&self, what: &str, _: u64, _: trommel_harness::Unit) {
        if what.contains("single") {
            self.0.set();
        }
    }

    fn advance(&self, _: u64) {}

    fn end(&self) {}

    fn say(&self, _: &str) {}
}

#[test]
fn a_stop_keeps_what_is_known() {
    let stop = Stop::new();
    let stopper = Stopper(stop.clone());
    let control = Control { stop: &stop, progress: &stopper };
    let mut plan = plan("paired:10");
    plan.queries.per_pattern = 1 << 20;
    let cell = measure(&plan, control).unwrap();
    assert!(cell.interrupted && cell.rate.is_some() && cell.timings.is_empty());
}
