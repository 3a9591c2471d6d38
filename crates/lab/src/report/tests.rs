//! Pages, tested without a browser: whether they are well-formed, self-contained and complete.

use serde_json::Value;
use trommel_harness::record::{FilterRecord, Record, plain};

use super::{Source, page};
use crate::testing::full;

fn source(name: &str, records: Vec<Record>) -> Source {
    Source { name: name.into(), records }
}

/// Panics unless every tag is closed, in order.
pub(super) fn check_tags(html: &str) {
    let without_end = ["meta", "link", "circle", "line", "polyline", "rect", "polygon"];
    let mut open = Vec::new();
    let body = html.split_once("<!DOCTYPE html>").expect("it says what it is").1;
    for piece in body.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').unwrap_or_else(|| panic!("no end: {piece}"));
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
        let name = tag.split(|c: char| c.is_whitespace() || c == '/').find(|part| !part.is_empty());
        let name = name.unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes nothing");
        } else if !tag.ends_with('/') && !without_end.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

/// Panics if the page would load or run anything.
pub(super) fn check_alone(html: &str) {
    for part in ["http:", "https:", "//", "<script", "src=", "url(", "@import", "<iframe", "onload"]
    {
        let at = html.find(part);
        assert!(at.is_none(), "{part}: {}", &html[at.unwrap().saturating_sub(40)..][..80]);
    }
    let links: Vec<&str> = html.split("href=\"").skip(1).collect();
    assert!(links.len() == 1 && links[0].starts_with("data:,"), "an empty icon, and nothing else");
    let ids: Vec<&str> =
        html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let mut distinct = ids.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(ids.len(), distinct.len(), "no id is given twice");
}

/// Collects all numbers and texts of a JSON value, except the encoded histogram.
fn leaves(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let wanted = fields.iter().filter(|(name, _)| *name != "hdr");
            wanted.for_each(|(_, value)| leaves(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| leaves(item, found)),
        Value::Bool(_) | Value::Null => {}
        value => found.push(plain(value)),
    }
}

#[test]
fn every_figure_is_on_the_page() {
    let record = full();
    let html = page("A bench", &[source("a", vec![record.clone()])]);
    check_tags(&html);
    check_alone(&html);
    let mut figures = Vec::new();
    leaves(&serde_json::to_value(&record).unwrap(), &mut figures);
    assert!(figures.len() > 100, "{}", figures.len());
    for figure in figures {
        assert!(html.contains(&figure), "{figure} is missing");
    }
    for part in ["<h1>A bench</h1>", "over time", "by percentile", "Memory by part", "Wilson"] {
        assert!(html.contains(part), "{part} is missing");
    }
    assert_eq!(html.matches("<svg ").count(), 3, "throughput, latency, filters");
    assert_eq!(html.matches("<svg ").count(), html.matches("</desc>").count());
}

#[test]
fn stores_stand_side_by_side() {
    let (mut ours, mut rival) = (full(), full());
    rival.store.name = "redb".into();
    rival.state = trommel_harness::record::State::default();
    rival.settings.insert("page size".into(), 4096.into());
    (ours.results.operations, rival.results.operations) = (2_531_000, 5_062_000);
    let html = page("Two", &[source("a", vec![ours]), source("b", vec![rival])]);
    check_tags(&html);
    check_alone(&html);
    let bars: Vec<&str> = html.split("class=\"bar\"").skip(1).take(2).collect();
    for (bar, parts) in bars.iter().zip([
        ["trommel", "width:50.00%", "var(--c0)", "1,000,000"],
        ["redb", "width:100.00%", "var(--c1)", "2,000,000"],
    ]) {
        for part in parts {
            assert!(bar.contains(part), "{part} is missing in {bar}");
        }
    }
    assert!(html.contains("What differs") && html.contains("page size"));
}

#[test]
fn repeats_are_one_row() {
    let mut records = vec![full(), full(), full()];
    for (repeat, record) in (1..).zip(&mut records) {
        record.repeat = repeat;
        record.results.operations = 2_531_000 * [1, 2, 4][repeat as usize - 1];
    }
    let html = page("Three", &[source("a", records)]);
    check_tags(&html);
    let row = html.split("<th scope=\"row\">readrandom</th>").nth(1).unwrap();
    assert!(row.starts_with("<td class=\"n\">3</td>"), "{}", &row[..200]);
    assert!(row[..200].contains(">2,000,000<"), "the geometric mean: {}", &row[..200]);
}

#[test]
fn nothing_in_a_record_is_markup() {
    let mut record = full();
    let text = "</td><script>alert('1 & 2')</script>\"";
    record.workload = text.into();
    record.store.name = text.into();
    record.settings.insert(text.into(), text.into());
    record.environment.cpu = Some(text.into());
    record.state.memory.as_mut().unwrap().insert(text.into(), 5);
    record.state.filters.as_mut().unwrap()[0].kind = text.into();
    let html = page(text, &[source(text, vec![record])]);
    check_tags(&html);
    assert!(!html.contains("<script"));
}

#[test]
fn odd_numbers_make_a_page_too() {
    let bare = Record { schema: 1, workload: "flush".into(), ..Record::default() };
    check_tags(&page("", &[]));
    check_tags(&page("", &[source("a", vec![bare.clone()])]));
    let mut odd = full();
    odd.results.wall_seconds = -1.0;
    odd.results.series = vec![(0.0, 5), (-3.0, 7), (1e300, u64::MAX), (1e301, 0), (1e301, 9)];
    odd.results.operations = u64::MAX;
    for filter in odd.state.filters.as_mut().unwrap() {
        filter.rates.measured = Some(7.5);
        filter.rates.interval = Some((-1.0, 1e300));
        filter.rates.expected = Some(0.0);
    }
    let mut zero = full();
    zero.results.series = vec![(1.0, 0), (2.0, 0)];
    for filter in zero.state.filters.as_mut().unwrap() {
        (filter.rates.measured, filter.rates.interval) = (Some(0.0), Some((0.0, 1e-6)));
    }
    zero.state.memory.as_mut().unwrap().values_mut().for_each(|bytes| *bytes = 0);
    for records in [vec![odd.clone()], vec![zero.clone()], vec![odd, zero, bare]] {
        let html = page("odd", &[source("a", records)]);
        check_tags(&html);
        assert!(!html.contains("NaN") && !html.contains("inf%"));
    }
}

#[test]
fn filters_that_let_too_many_keys_pass_are_warned_of() {
    let (mut first, mut second) = (full(), full());
    first.state.filters.as_mut().unwrap()[0].alarm = Some("900 where <90> are expected".into());
    second.state.filters.as_mut().unwrap()[0].alarm = None;
    let html = page("x", &[source("a", vec![first.clone(), second.clone()])]);
    assert_eq!(html.matches("class=\"warning\"").count(), 1);
    assert!(html.contains("900 where &lt;90&gt; are expected"));
    let line = serde_json::to_string(&first).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), first);
    let sums = FilterRecord::sum(&[&first, &second]);
    assert!(sums[0].alarm.is_some(), "an alarm is not forgotten");
}

#[test]
fn a_measurement_that_is_worth_little_is_marked() {
    let mut record = full();
    record.environment.build.debug_assertions = true;
    record.results.interrupted = true;
    let html = page("x", &[source("a", vec![record])]);
    assert_eq!(html.matches("class=\"warning\"").count(), 2);
    assert!(!page("x", &[source("a", vec![full()])]).contains("class=\"warning\""));
}
