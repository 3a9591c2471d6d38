//! `top`, and what a bench publishes and records of its background work.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Program, Ran};

/// A store of 20,000 keys, with the metrics and the background work of its bench.
fn benched() -> Program {
    let program = Program::new();
    let (metrics, trace) = (program.path("metrics"), program.path("trace.json"));
    let line = format!(
        "bench --benchmarks=fillrandom,compact,readmissing --num=20K --metrics={} \
         --background-trace={}",
        metrics.display(),
        trace.display()
    );
    let ran = program.run_on(&line);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains(" events of background work are recorded"), "{}", ran.err);
    program
}

fn top(program: &Program, flags: &str) -> Ran {
    program.run_on(&format!("top {flags}"))
}

fn json(ran: &Ran) -> Value {
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn a_follower_shows_what_is_on_disk_and_the_metrics_the_rest() {
    let program = benched();
    let alone = json(&top(&program, "--once --format=json"));
    assert!(alone["store"]["metrics"].as_str().unwrap().starts_with("none"), "{alone}");
    assert_eq!(alone["store"]["last_seqno"], 20_000);
    assert!(alone["levels"][0]["entries"].as_u64().unwrap() > 12_000, "{alone}");
    assert!(alone["filters"][0]["probes"].is_null() && alone.get("work").is_none(), "{alone}");

    let metrics = program.path("metrics");
    let shown = json(&top(&program, &format!("--format=json --metrics {}", metrics.display())));
    assert!(shown["store"]["metrics"].as_str().unwrap().ends_with(" s old"), "{shown}");
    assert!(shown["filters"][0]["probes"].as_u64().unwrap() > 19_900, "{shown}");
    let rate = |name: &str| shown["filters"][0][name].as_f64().unwrap();
    assert!(rate("measured_rate") < 0.02 && rate("expected_rate") < 0.02, "{shown}");
    // The bench has closed the store.
    assert!(shown["work"]["running_compactions"].is_null(), "{shown}");
    let operations = shown["latencies"].as_array().unwrap();
    let timed: Vec<&str> = operations.iter().map(|it| it["operation"].as_str().unwrap()).collect();
    assert!(timed.contains(&"get") && timed.contains(&"compaction"), "{timed:?}");

    // Metrics of another store are refused.
    let text = fs::read_to_string(&metrics).unwrap();
    let id = shown["store"]["id"].as_str().unwrap();
    fs::write(&metrics, text.replace(id, "0123456789abcdef")).unwrap();
    let other = json(&top(&program, &format!("--format=json --metrics {}", metrics.display())));
    assert_eq!(other["store"]["metrics"], "metrics of another store");
    assert!(other["filters"][0]["probes"].is_null(), "{other}");
}

/// The page has every part, each element is closed, and it loads nothing.
#[test]
fn the_page_is_whole_and_needs_nothing_else() {
    let program = benched();
    let (page, metrics) = (program.path("top.html"), program.path("metrics"));
    let flags =
        format!("--once --interval 2 --html {} --metrics {}", page.display(), metrics.display());
    let ran = top(&program, &flags);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "", ""));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"), "{html}");
    assert!(html.contains("<meta http-equiv=\"refresh\" content=\"2\">"));
    for part in ["Store", "Levels", "Filters", "Work", "Stalls", "Latencies"] {
        assert!(html.contains(&format!(">{part}</h2>")), "{part} in {html}");
    }
    for outside in ["http://", "https://", "src=", "<script", "@import", "url("] {
        assert!(!html.contains(outside), "{outside} in {html}");
    }
    let mut open = Vec::new();
    for tag in html.split('<').skip(1).map(|rest| rest.split(['>', ' ']).next().unwrap()) {
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{html}"),
            None if ["!DOCTYPE", "meta", "link"].contains(&tag) => {}
            None => open.push(tag),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_bench_records_its_background_work_in_a_new_file() {
    let program = benched();
    let trace = program.path("trace.json");
    let events: Vec<Value> = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    let names: Vec<&str> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
    for name in ["thread_name", "flush", "compaction"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let line = format!("bench --num=10 --background-trace={}", trace.display());
    let again = program.run(&line);
    assert_eq!((again.code, &*again.out), (Some(1), ""), "{again:?}");
    assert!(again.err.contains("trace.json"), "{}", again.err);
}

#[test]
fn a_page_is_not_written_over_a_file_of_the_store() {
    let program = benched();
    let current = program.path("db").join("CURRENT");
    let before = fs::read(&current).unwrap();
    let ran = top(&program, &format!("--once --html {}", current.display()));
    assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{ran:?}");
    assert!(ran.err.contains("name another place"), "{}", ran.err);
    assert_eq!(fs::read(&current).unwrap(), before);
    assert!(!program.path("db").join("CURRENT.tmp").exists());
}

#[test]
fn a_directory_without_its_flag_is_an_error_that_names_the_flag() {
    let program = benched();
    let ran = program.run(&format!("top {}", program.path("db").display()));
    assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{ran:?}");
    assert!(ran.err.contains(&format!("'--db {}'", program.path("db").display())), "{}", ran.err);
}

/// Regression: a page went through a link in place of its temporary file, and replaced the metrics.
#[cfg(unix)]
#[test]
fn a_page_replaces_no_other_file() {
    let program = benched();
    let (page, kept) = (program.path("top.html"), program.path("kept"));
    fs::write(&kept, "kept").unwrap();
    std::os::unix::fs::symlink(&kept, program.path("top.html.tmp")).unwrap();
    let ran = top(&program, &format!("--once --html {}", page.display()));
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "", ""));
    assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
    assert!(fs::read_to_string(&page).unwrap().ends_with("</html>\n"));

    let metrics = program.path("metrics").display().to_string();
    let ran = top(&program, &format!("--once --html {metrics} --metrics {metrics}"));
    assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{ran:?}");
    assert!(ran.err.contains("name another file"), "{}", ran.err);
    assert!(fs::read_to_string(&metrics).unwrap().ends_with("# EOF\n"));
}

/// A process that is killed when it is dropped, also if a test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A writer that was killed is reported, and what it did last is not shown as being done.
#[test]
fn a_killed_writer_is_reported() {
    let program = Program::new();
    let metrics = program.path("metrics");
    let line = format!("bench --benchmarks=fillrandom --num=5M --metrics={}", metrics.display());
    let mut writer = program.command_on(&line);
    let writer = writer.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let writer = Killed(writer);
    let limit = || Instant::now() + Duration::from_secs(60);
    let end = limit();
    let flags = format!("--once --format=json --metrics {}", metrics.display());
    while !metrics.exists() {
        assert!(Instant::now() < end, "no metrics");
        std::thread::sleep(Duration::from_millis(10));
    }
    let shown = json(&top(&program, &flags));
    assert!(shown["work"]["memtables"].as_u64().is_some(), "{shown}");
    drop(writer);
    let end = limit();
    loop {
        let shown = json(&top(&program, &flags));
        let age = shown["store"]["metrics"].as_str().unwrap();
        if age.starts_with("the writer no longer publishes") {
            assert!(shown["work"]["memtables"].is_null(), "{shown}");
            assert!(shown["work"]["running_flushes"].is_null(), "{shown}");
            break;
        }
        assert!(Instant::now() < end, "{shown}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
