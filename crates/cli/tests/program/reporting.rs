//! `trommel report`, and its page in a browser, if there is one.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use trommel_harness::record::{
    FilterCounts, FilterRates, FilterRecord, Product, Record, Run, write_line,
};
use trommel_harness::{Latencies, Measured, MeasuredTime};

use crate::support::Program;

/// A record of each of two workloads, with everything that charts need.
fn write_records(program: &Program, store: &str) -> String {
    let run = Run {
        id: store.into(),
        store: Product { name: store.into(), version: "1.0".into() },
        ..Run::default()
    };
    let mut bytes = Vec::new();
    for workload in ["readrandom", "readmissing"] {
        let mut latencies = Latencies::new();
        for nanos in 1..10_000 {
            latencies.record(Duration::from_nanos(nanos * 10));
        }
        let measured = Measured {
            operations: 30_000,
            time: MeasuredTime { wall: Duration::from_secs(3), ..MeasuredTime::default() },
            latencies: Some(latencies),
            series: vec![(1.0, 9_000), (2.0, 11_000), (3.0, 10_000)],
            ..Measured::default()
        };
        let mut record = Record::new(&run, workload, 1, 1, SystemTime::UNIX_EPOCH, &measured);
        record.state.filters = Some(vec![FilterRecord {
            level: 1,
            kind: "paired".into(),
            counts: FilterCounts {
                probes: 1000,
                negatives: 990,
                false_positives: 10,
                true_positives: 0,
            },
            rates: FilterRates {
                measured: Some(0.01),
                interval: Some((0.005, 0.018)),
                expected: Some(0.009),
            },
            ..FilterRecord::default()
        }]);
        record.state.memory = Some([("filters".to_owned(), 1 << 20)].into_iter().collect());
        write_line(&record, &mut bytes).unwrap();
    }
    let file = program.path(&format!("{store}.jsonl"));
    fs::write(&file, bytes).unwrap();
    file.display().to_string()
}

#[test]
fn a_page_is_written_to_the_requested_file() {
    let program = Program::new();
    let (one, two) = (write_records(&program, "one"), write_records(&program, "two"));
    let printed = program.run(&format!("report {one} {two} --title=Both"));
    assert_eq!((printed.code, &*printed.err), (Some(0), ""));
    assert!(printed.out.starts_with("<!DOCTYPE html>") && printed.out.contains("<h1>Both</h1>"));
    let page = program.path("page.html");
    let written = program.run(&format!("report {one} {two} --title=Both -o {}", page.display()));
    assert_eq!((written.code, &*written.out, &*written.err), (Some(0), "", ""));
    assert_eq!(fs::read_to_string(&page).unwrap(), printed.out);

    assert_eq!(program.run("report").code, Some(2));
    let ran = program.run(&format!("report {one} --output=/nowhere/at/all.html"));
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    assert!(ran.err.contains("writing /nowhere/at/all.html failed: "), "{}", ran.err);
    fs::write(program.path("bad"), "{}").unwrap();
    let ran = program.run(&format!("report {one} {}", program.path("bad").display()));
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    assert!(ran.err.contains("bad: line 1: this is not a record"), "{}", ran.err);
}

#[test]
fn a_page_has_the_records_of_a_bench() {
    let program = Program::new();
    let json = program.path("run.jsonl");
    let ran = program.run(&format!(
        "bench --num=2000 --benchmarks=fillrandom,flush,readmissing[X2] --histogram --json={}",
        json.display()
    ));
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{}", ran.out);
    let page = program.run(&format!("report {}", json.display())).out;
    for part in ["fillrandom", "flush", "latency by percentile", "Filters: measured", "Settings"] {
        assert!(page.contains(part), "{part} is missing");
    }
}

/// The first of these browsers that is installed.
fn browser() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// Opens the page in a browser and returns the document as parsed, and the browser's complaints.
fn open(browser: &str, program: &Program, page: &str, dark: bool) -> (String, Vec<String>) {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--v=0", "--dump-dom", "--window-size=390,900"])
        .arg(format!("--user-data-dir={}", program.path("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .arg(format!("file://{page}"))
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    let is_ours = |line: &&str| line.contains("CONSOLE") || line.contains("net::ERR");
    let complaints = complaints.lines().filter(is_ours).map(str::to_owned).collect();
    (String::from_utf8_lossy(&output.stdout).into_owned(), complaints)
}

#[test]
fn a_browser_finds_nothing_wrong_with_the_page() {
    let Some(browser) = browser() else {
        println!("skipped: there is no Chromium to open the page with");
        return;
    };
    let program = Program::new();
    let (one, two) = (write_records(&program, "one"), write_records(&program, "two"));
    let file = program.path("page.html");
    let page = file.display().to_string();
    assert_eq!(program.run(&format!("report {one} {two} -o {page}")).code, Some(0));
    // A script of the test measures the browser's layout.
    let probe = "<script>addEventListener('load', () => {
        const root = document.documentElement, style = name => getComputedStyle(name);
        const line = document.querySelector('svg polyline');
        root.dataset.wide = root.scrollWidth - root.clientWidth;
        root.dataset.requests = performance.getEntriesByType('resource')
            .filter(entry => !entry.name.startsWith('data:')).length;
        root.dataset.ground = style(document.body).backgroundColor;
        root.dataset.line = style(line).stroke;
        root.dataset.charts = [...document.querySelectorAll('svg')]
            .filter(chart => chart.getBoundingClientRect().width > 250).length;
    });</script></body>";
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("</body>", probe)).unwrap();
    let mut grounds = Vec::new();
    for dark in [false, true] {
        let (dom, complaints) = open(browser, &program, &page, dark);
        assert_eq!(complaints, [] as [String; 0]);
        let measured = |name: &str| {
            let rest = dom.split(&format!("data-{name}=\"")).nth(1);
            let rest = rest.unwrap_or_else(|| panic!("{name} was not measured: {:.500}", dom));
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        assert_eq!(measured("wide"), "0", "nothing makes the page wider than a phone");
        assert_eq!(measured("requests"), "0", "nothing is fetched");
        assert_eq!(measured("charts"), "6", "each workload has three charts");
        assert!(measured("line").starts_with("rgb("), "{}", measured("line"));
        grounds.push((measured("ground"), measured("line")));
    }
    assert_ne!(grounds[0].0, grounds[1].0, "light and dark have grounds of their own");
    assert_ne!(grounds[0].1, grounds[1].1, "and lines");
}
