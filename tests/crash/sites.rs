//! Every site at which a store calls its disk, and every way in which the call can fail there.
//!
//! A *site* is a kind of call on a kind of file: the sync of a log, the removal of a table. A
//! healthy run shows which sites exist. Each then fails with every error that can occur there, at
//! several of its calls, once and permanently; in the end no combination may have occurred less
//! than three times.

use std::collections::{BTreeMap, BTreeSet};

use trommel_sim::{Failure, Fault, OpKind};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, scale, stride};

use crate::faults::{file_kind, run};
use crate::settings::only;
use crate::trouble::{CutDown, Trouble};
use trommel_tests::watchdog;

/// Number of workloads to observe, and to run with failures; half of them in plain `cargo test`.
const WORKLOADS: u64 = 8;

type Site = (OpKind, &'static str);

/// Possible errors of the system; the first three get more runs.
const FAILURES: [Failure; 13] = [
    Failure::Io,
    Failure::NoSpace,
    Failure::TooManyOpenFiles,
    Failure::QuotaExceeded,
    Failure::TooManySystemFiles,
    Failure::NoMemory,
    Failure::PermissionDenied,
    Failure::ReadOnly,
    Failure::NotFound,
    Failure::Interrupted,
    Failure::NoLocks,
    Failure::EndOfFile,
    Failure::ShortRead,
];
const OFTEN: &[Failure] = &[Failure::Io, Failure::NoSpace, Failure::TooManyOpenFiles];
/// Possible results of a file read after some bytes or none.
const ENDS: &[Failure] = &[Failure::EndOfFile, Failure::ShortRead];

/// Whether a call of this kind can fail like this: opening a file needs a handle, and changes need
/// space.
fn can_occur(kind: OpKind, failure: Failure) -> bool {
    let opens = [OpKind::Create, OpKind::Open, OpKind::List, OpKind::SyncDir, OpKind::Lock];
    let names = [OpKind::Rename, OpKind::Remove, OpKind::HardLink, OpKind::CreateDir];
    match failure {
        Failure::NoSpace | Failure::QuotaExceeded | Failure::ReadOnly => kind.is_write(),
        Failure::TooManyOpenFiles | Failure::TooManySystemFiles => opens.contains(&kind),
        Failure::PermissionDenied | Failure::NotFound => {
            opens.contains(&kind) || names.contains(&kind)
        }
        Failure::Interrupted => !names.contains(&kind),
        Failure::NoLocks => kind == OpKind::Lock,
        Failure::EndOfFile | Failure::ShortRead => kind == OpKind::Read,
        _ => true,
    }
}

/// A part of the name that only files of this kind have.
fn part_of_name(file: &str) -> &'static str {
    match file {
        "lock" => "LOCK",
        "current" => "CURRENT",
        "options" => "OPTIONS",
        "manifest" => "MANIFEST-",
        "log" => ".log",
        "table" => ".sst",
        "sidecar" => ".flt",
        "spare" => ".spare",
        _ => "",
    }
}

/// The sites of a healthy run of this seed's workload, with their numbers of calls.
fn sites(seed: u64) -> BTreeMap<Site, u64> {
    let mut counters = Counters::new("healthy");
    let disk = run(seed, 0, Trouble::None, &mut counters).expect("a healthy disk");
    let mut sites = BTreeMap::new();
    for ((kind, path), calls) in disk.calls_by_path() {
        *sites.entry((kind, file_kind(&path))).or_default() += calls;
    }
    sites
}

/// Fault number `number` at a site.
fn fault((kind, file): Site, failure: Failure, calls: u64, number: u64) -> Fault {
    let fault = match failure {
        Failure::EndOfFile => Fault::end_of_file((number * 97) as usize),
        Failure::ShortRead => Fault::short_read((number * 97) as usize),
        _ => Fault::new(failure).on(kind),
    };
    let fault = fault.named(part_of_name(file));
    // The first call, the last, and some in between; every other fault is permanent.
    let call = match number / 2 {
        0 => 0,
        1 => calls - 1,
        more => (more * 7919) % calls,
    };
    let fault = fault.after(call);
    // The part of the call that takes effect.
    let fault = match number {
        4 => fault.after_the_fact(),
        5 => fault.writing_part(1 + call as usize % 300),
        6 => fault.writing_all_but(1),
        _ => fault,
    };
    // A call that is retried is not interrupted forever.
    let once = number.is_multiple_of(2) || failure == Failure::Interrupted;
    if once { fault } else { fault.lasting() }
}

/// Number of runs for each workload with this failure at a site; appends also fail after a partial
/// write, and changes after they took effect.
fn runs(kind: OpKind, failure: Failure) -> u64 {
    match kind {
        OpKind::Read if ENDS.contains(&failure) => 4,
        _ if !OFTEN.contains(&failure) => 2,
        OpKind::Append => 7,
        kind if kind.is_write() => 5,
        _ => 4,
    }
}

/// The name of the counter of this failure at a site.
fn name_of((kind, file): Site, failure: Failure) -> String {
    format!("faults.{}.{file}.{failure}", format!("{kind:?}").to_lowercase())
}

/// Makes every site of this seed's workload that `wanted` selects fail, in each of its ways.
fn fail_at(seed: u64, sites: &BTreeMap<Site, u64>, wanted: Wanted<'_>, counters: &mut Counters) {
    let chosen = only::<3>();
    for (place, (&site, &calls)) in sites.iter().enumerate() {
        for failure in FAILURES.into_iter().filter(|failure| can_occur(site.0, *failure)) {
            if !wanted(&name_of(site, failure)) {
                continue;
            }
            for number in 0..runs(site.0, failure) * scale() {
                let case = [seed, place as u64, number];
                if chosen.is_some_and(|chosen| chosen != case) {
                    continue;
                }
                watchdog::note([seed, place as u64, number, 0, 0]);
                let fault = fault(site, failure, calls, number);
                let run = run(seed, 0, Trouble::Fault(fault), counters);
                if let Err(CutDown { what, takes }) = run {
                    panic!(
                        "{what}\n  at {site:?}, {failure}\n  run it again: \
                         TROMMEL_CRASH_ONLY={seed},{place},{number}{takes} cargo test -p \
                         trommel-tests --test crash every_site -- --nocapture"
                    )
                }
            }
        }
    }
}

/// Selects sites and failures by the name of their counter.
type Wanted<'a> = &'a dyn Fn(&str) -> bool;

/// Minimum number of occurrences of each failure.
const LEAST: u64 = 3;

#[test]
fn every_site_fails_in_every_way() {
    let mut counters = Counters::new("crash/every_site_fails_in_every_way");
    let mut all = BTreeSet::new();
    let workloads = WORKLOADS / stride().min(2) as u64;
    for seed in first_seed()..first_seed() + workloads {
        let sites = sites(seed);
        all.extend(sites.keys().copied());
        fail_at(seed, &sites, &|_| true, &mut counters);
    }
    if only::<3>().is_some() {
        return;
    }
    counters.add("sites", all.len() as u64);
    assert!(counters.get("sites") >= 20, "a workload that does so little shows nothing");
    let seldom = |counters: &Counters| {
        let ways = |site: &Site| FAILURES.map(|failure| (*site, failure));
        let ways = all.iter().flat_map(ways);
        let ways = ways.filter(|((kind, _), failure)| can_occur(*kind, *failure));
        let names = ways.map(|(site, failure)| name_of(site, failure));
        names.filter(|name| counters.get(name) < LEAST).collect::<BTreeSet<_>>()
    };
    // Sites that few workloads have, such as the link of a backup, are searched for in more
    // workloads.
    for seed in (first_seed() + workloads..).take(8 * WORKLOADS as usize) {
        let seldom = seldom(&counters);
        if seldom.is_empty() {
            break;
        }
        fail_at(seed, &sites(seed), &|name| seldom.contains(name), &mut counters);
    }
    let seldom = seldom(&counters);
    assert!(seldom.is_empty(), "hit less than {LEAST} times: {seldom:?}");
    counters.finish();
}
