use super::*;
use crate::report::tests::{check_alone, check_tags};
use crate::tune::testing::{cell, grown, record};

fn many() -> Vec<Record> {
    let mut records = Vec::new();
    for family in ["paired:{budget}", "blocked:{budget}"] {
        for bits in [6.0, 8.0, 10.0] {
            records.push(record(cell(family, bits)));
        }
    }
    records.push(record(grown("paired:{budget}", 8.0)));
    records
}

#[test]
fn the_page_is_whole_and_stands_alone() {
    let html = page("Experiments", &many());
    check_tags(&html);
    check_alone(&html);
    // One group has several filters: a chart of reads and one of times, and two of the prediction.
    assert_eq!(html.matches("<svg ").count(), 4);
    assert_eq!(html.matches("<svg ").count(), html.matches("</desc>").count());
    for text in [
        "<h1>Experiments</h1>",
        "two &lt;full&gt; levels, 90% misses, uniform, cached 8 MiB",
        "7 of 7 measurements are within 5% of the prediction",
        // The predictions are 2% above the measurements, so "measured less predicted" is -2%.
        "-2.0%",
        "blocked:{budget}",
        "paired:6",
        "± ",
        "Bits per level",
        "Every level",
    ] {
        assert!(html.contains(text), "{text}");
    }
    assert!(!html.contains("machines or builds"));
    let empty = page("Nothing", &[]);
    check_tags(&empty);
    assert_eq!(empty.matches("<svg ").count(), 0);
}

#[test]
fn charts_are_files_of_their_own() {
    let plots = plots(&many());
    let names: Vec<&str> = plots.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["waste-1", "time-1", "predicted", "off"]);
    for (name, svg) in &plots {
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{name}");
        assert!(svg.contains("prefers-color-scheme: dark"), "{name}");
        assert!(svg.contains(">blocked:{budget}</text>"), "{name}");
    }
}

#[test]
fn what_cannot_be_compared_is_reported() {
    let mut records = many();
    records[1].environment.build.commit = Some("abc".into());
    records[2].environment.storage.directory = Some("/elsewhere".into());
    records[3].environment.build.debug_assertions = true;
    let html = page("Mixed", &records);
    assert!(
        html.contains("3 machines or builds measured") && html.contains("checks its assertions")
    );
}

/// Trees of several plans may share a name, and one tree may have several seeds: none is mistaken
/// for another.
#[test]
fn what_has_one_name_is_distinguished() {
    let mut records = many();
    records.truncate(4);
    let change: [fn(&mut Record); 3] = [
        |record| record.cell.tree.levels[0] += 1,
        |record| record.cell.seed += 1,
        |record| record.cell.tree.table_bytes += 1,
    ];
    for (record, change) in records[1..].iter_mut().zip(change) {
        change(record);
    }
    let groups = Groups::new(&records);
    let mut places: Vec<&str> = groups.groups.iter().map(|group| &*group.place).collect();
    assert_eq!(places.len(), 4);
    assert!(places[1].ends_with("; 11101 keys, 100000 lookups in each of 8 stores, seed 42"));
    assert!(places[2].ends_with("seed 43") && places[3].ends_with("seed 42"), "{places:?}");
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 4, "{places:?}");
}

#[test]
fn odd_numbers_do_no_harm() {
    for odd in [0.0, -1.0, f64::MAX, 1e-300, f64::NAN, f64::INFINITY] {
        let mut records = many();
        for record in &mut records[..3] {
            (record.measured.wasted_reads.mean, record.measured.micros.mean) = (odd, odd);
            (record.filter_bytes, record.predicted.wasted_reads) = (odd, odd);
            record.levels[0].keys = odd;
        }
        let html = page("Odd", &records);
        check_tags(&html);
        check_alone(&html);
        write_csv(&records, &mut Vec::new()).unwrap();
    }
}

#[test]
fn the_front_is_what_no_other_beats() {
    let mut records = many();
    records.truncate(6);
    // The blocked filters are as large and waste as many reads, except that one wastes more, and
    // one fewer.
    records[3].measured.wasted_reads.mean *= 2.0;
    records[4].measured.wasted_reads.mean /= 2.0;
    let groups = Groups::new(&records);
    let front = groups.groups[0].front(|record| record.measured.wasted_reads.mean);
    let front: Vec<&str> = front.iter().map(|record| &*record.cell.filters).collect();
    assert_eq!(front, ["paired:6", "blocked:8", "paired:10"]);
}

#[test]
fn rows_have_all_columns() {
    let mut records = many();
    records[0].cell.filters = "L0=paired:9,last=none".into();
    let mut bytes = Vec::new();
    write_csv(&records, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.lines().count(), 1 + 7 * 4, "a row for each level, and one for all");
    let columns = text.lines().next().unwrap().split(',').count();
    for line in text.lines().skip(1) {
        let quoted = line.replace("\"L0=paired:9,last=none\"", "x");
        assert_eq!(quoted.split(',').count(), columns, "{line}");
    }
    assert!(text.lines().nth(1).unwrap().contains(",all,"), "{text}");
}
