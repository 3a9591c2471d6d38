//! The program as a whole, with few keys. No test depends on times.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use trommel_filter::{FilterKind, Kernel};
use trommel_filters::cell::{Cell, Results};
use trommel_filters::contestant::Contestant;
use trommel_filters::goals::goals;
use trommel_filters::loops::MODES;
use trommel_filters::plan::{self, BITS, Given};

fn run(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_trommel-filters")).args(arguments).output();
    output.expect("the program of this package")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("words")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn every_filter_has_its_figures_and_the_page_can_be_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (out, page) = (at("out").display().to_string(), at("page.md").display().to_string());
    let output = run(&["--quick", "--out", &out, "--page", &page]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");

    let records = at("out/filters.jsonl");
    let results = Results::read(&read(&records)).unwrap();
    let keys = <[u64; 5]>::try_from(&*results.machine.keys).unwrap();
    let groups = plan::groups(keys);
    assert_eq!(results.groups().len(), groups.len());
    assert!(results.end.as_ref().is_some_and(|end| end.left_out.is_empty()));
    for group in groups {
        for (contestant, _) in group.contestants() {
            let given = group.given.to_string();
            let of = results.of(group.keys, &given);
            let cells: Vec<&Cell> =
                of.filter(|cell| cell.contestant == contestant.to_string()).collect();
            let kernels = if contestant.has_kernels() { Kernel::available().count() } else { 1 };
            assert!(cells.len() >= kernels, "{group}: {contestant}");
            for cell in cells {
                assert!(MODES.iter().all(|mode| cell.rounds(*mode).len() == 2), "{cell:?}");
            }
        }
    }
    rates_are_as_expected(&results);
    sizes_are_equal(&results, keys[2]);

    let shown = read(Path::new(&page));
    for heading in
        ["## Speed to meet", "## Bits per key for a rate", "4,000 keys, a rate of 1/58000"]
    {
        assert!(shown.contains(heading), "{heading} is missing in\n{shown}");
    }
    for name in Contestant::ALL {
        assert!(shown.contains(&format!("| {name}")), "{name}");
    }
    assert!(read(&at("page-rates.svg")).contains("fastbloom"));
    assert!(goals(&results).iter().all(|goal| !goal.rows.is_empty()));
    assert_eq!(read(&at("out/goals.txt")), stdout);

    let again = at("again.md").display().to_string();
    let output = run(&["--from", &records.display().to_string(), "--page", &again]);
    assert_eq!(text(&output.stdout), stdout);
    assert_eq!(read(Path::new(&again)).replace("again-", "page-"), shown);
}

/// Over all filters of a kind together, so that the variation between filters evens out.
fn rates_are_as_expected(results: &Results) {
    for contestant in Contestant::ALL {
        let name = contestant.to_string();
        let (mut seen, mut expected) = (0.0, 0.0);
        for cell in results.cells.iter().filter(|cell| cell.contestant == name) {
            if !cell.build_ns.is_empty() && cell.keys >= 1000 {
                seen += cell.rate.false_positives as f64;
                expected += cell.rate.expected * cell.rate.asked as f64;
            }
        }
        // With so few expected false positives there are not enough queries for a closer check.
        if expected < 20.0 {
            assert!(seen < expected + 5.0 * expected.sqrt() + 3.0, "{name}: {seen} of {expected}");
            continue;
        }
        let chance = 5.0 / expected.sqrt();
        assert!((seen / expected - 1.0).abs() < 0.06 + chance, "{name}: {seen} of {expected}");
    }
}

fn sizes_are_equal(results: &Results, keys: u64) {
    for bits in BITS {
        for cell in results.of(keys, &Given::Bits(bits).to_string()) {
            // A ribbon has whole columns of 128 slots, and two blocks of a paired filter are 1,024
            // bits: with so few keys, both are larger.
            let most = if cell.contestant == FilterKind::Ribbon.name() { 0.1 } else { 0.035 };
            let away = (cell.bits / bits - 1.0).abs();
            assert!(away < most, "{}: {} instead of {bits}", cell.contestant, cell.bits);
        }
    }
}

#[test]
fn groups_without_time_are_left_out_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    let shown = page.display().to_string();
    let output = run(&["--quick", "--minutes", "0", "--page", &shown]);
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("left out, no time: 12,000 keys, 23.4 bits per key"));
    assert!(text(&output.stdout).contains("not measured: "));
    assert!(read(&page).contains("## Left out"));
}

#[test]
fn what_cannot_be_done_is_explained() {
    let error = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        text(&output.stderr)
    };
    assert!(error(&["--from", "no-such-file"]).contains("no-such-file: "));
    assert!(error(&["--keys", "1K,2K"]).contains("--keys"));
    assert!(error(&["--from", env!("CARGO_MANIFEST_PATH")]).contains("line 1"));
}
