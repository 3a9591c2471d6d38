//! The presentation of studies.

use trommel_harness::record::Record;
use trommel_harness::table::Table;
use trommel_lab::report::{Source, page};

use crate::figures::Results;
use crate::report::{self, Shown, figures, troubles};
use crate::studies::Study;
use crate::trial::FAILED;
use crate::verdict::{Verdict, shortfalls_first};

/// The targets of a study, and whether they were reached; missed ones first.
pub(crate) fn verdicts(study: Study, results: &Results) -> Vec<Verdict> {
    let of_keys = |num| {
        let verdicts = (study.sheet().verdicts)(results, num).into_iter();
        verdicts.map(move |verdict| verdict.of_rounds(results.rounds(num)))
    };
    shortfalls_first(results.nums().into_iter().flat_map(of_keys).collect())
}

/// The study's contenders without any record.
pub(crate) fn absent(study: Study, results: &Results) -> Vec<&'static str> {
    let here = results.all_names();
    let named = study.sheet().stores.iter().copied();
    named.filter(|name| !here.contains(name)).collect()
}

/// The best Trommel against the fastest rival, in all tables of times in which stores compete.
pub(crate) fn races(study: Study, results: &Results) -> Vec<String> {
    let (sheet, mut lines) = (study.sheet(), Vec::new());
    for num in results.nums() {
        for (heading, columns) in sheet.tables.iter().filter(|(it, _)| sheet.raced.contains(it)) {
            let of_each = report::reading(results, num, columns, "");
            lines.extend(of_each.into_iter().map(|line| format!("{heading}, {line}")));
        }
    }
    lines
}

/// Headings and tables of a study; a table without any figure is left out.
fn tables(study: Study, results: &Results) -> Vec<(&'static str, Table)> {
    let mut tables = Vec::new();
    for num in results.nums() {
        let grids = study.sheet().tables.iter();
        tables.extend(grids.map(|(heading, columns)| (*heading, figures(results, num, columns))));
    }
    tables.retain(|(_, grid)| grid.head.len() > 1);
    tables
}

fn troubles_of(results: &Results) -> Vec<String> {
    results.nums().iter().flat_map(|num| troubles(results, *num)).collect()
}

/// A study for a terminal.
pub(crate) fn text(study: Study, results: &Results) -> String {
    let mut text = format!("{}\n", study.sheet().title);
    for (heading, grid) in tables(study, results) {
        text += &format!("\n{heading}\n{}", grid.text());
    }
    text += "\nThe best Trommel beside the fastest rival\n";
    for line in races(study, results) {
        text += &format!("- {}\n", line.replace("**", ""));
    }
    text += "\nTargets\n";
    for verdict in verdicts(study, results) {
        text += &format!("- {}\n", verdict.line().replace("**", ""));
    }
    for line in troubles_of(results) {
        text += &format!("! {line}\n");
    }
    text
}

/// A study for a page in Markdown.
pub(crate) fn markdown(study: Study, results: &Results) -> String {
    let sheet = study.sheet();
    let mut text = format!("\n## {}\n\n", sheet.title);
    for line in troubles_of(results) {
        text += &format!("* **{line}**\n");
    }
    text += &format!("{}\n", wrapped(sheet.about));
    for num in results.nums() {
        text += &format!("\n{}\n", results.rounds_and_runs(num));
    }
    let absent = absent(study, results);
    if !absent.is_empty() {
        text += &format!("\nNot measured here: {}.\n", absent.join(", "));
    }
    if let Some(line) = results.nums().into_iter().find_map(|num| report::caveat(results, num)) {
        text += &format!("\n**{line}**\n");
    }
    for (heading, grid) in tables(study, results) {
        text += &format!("\n{heading}:\n\n{}", grid.markdown());
    }
    text += "\n### The best Trommel beside the fastest rival\n\n";
    for line in races(study, results) {
        text += &format!("* {line}\n");
    }
    text += "\n### Targets\n\n";
    for verdict in verdicts(study, results) {
        text += &format!("* {}\n", verdict.line());
    }
    text
}

/// Wraps a text to the line length of a page in Markdown.
fn wrapped(words: &str) -> String {
    const WIDTH: usize = 100;
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        let line = lines.last().map_or(0, String::len);
        if line > 0 && line + 1 + word.len() > WIDTH {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// All workloads of a study as an HTML page.
pub(crate) fn html(study: Study, results: &Results) -> String {
    // Records without a time are no workloads.
    let is_shown = |record: &&Record| record.workload != FAILED && record.results.wall_seconds > 0.0;
    let records = results.records().iter().filter(is_shown).cloned().collect();
    let title = format!("Trommel beside other stores: {}", study.sheet().title);
    page(&title, &[Source { name: String::new(), records }])
}

/// For each study the settings that differ from those in `shown`, which are a contender's first
/// ones.
pub(crate) fn fairness(
    studies: &[(Study, Results)],
    shown: &mut Shown,
) -> Vec<(Study, &'static str, Table)> {
    let mut grids = Vec::new();
    for (study, results) in studies {
        let heading = if shown.is_empty() { "all settings" } else { "settings that differ" };
        // Each study is compared with the same baseline.
        let mut shown_here = shown.clone();
        for num in results.nums() {
            grids.push((*study, heading, report::fairness(results, num, &mut shown_here)));
        }
        for (key, value) in shown_here {
            shown.entry(key).or_insert(value);
        }
    }
    grids
}

/// What is unequal in any of the studies.
pub(crate) fn unequal(studies: &[(Study, Results)]) -> impl Iterator<Item = &'static &'static str> {
    studies.iter().flat_map(|(study, _)| study.sheet().unequal)
}

#[cfg(test)]
mod tests {
    use trommel_harness::Workload;

    use super::*;

    #[test]
    fn left_out_contenders_and_leading_rivals_are_reported() {
        let of = |name: &str, seconds| {
            let mut record = Record::default();
            (record.store.name, record.workload) = (name.into(), Workload::YcsbA.name().into());
            (record.results.operations, record.results.wall_seconds) = (1000, seconds);
            record.repeat = 1;
            record.settings.insert("num".into(), 1000.into());
            record
        };
        let results = Results::new(vec![of("trommel", 0.003), of("lmdb", 0.002)]);
        let absent = absent(Study::Ycsb, &results);
        assert!(absent.contains(&"redb") && !absent.contains(&"lmdb"), "{absent:?}");
        let page = markdown(Study::Ycsb, &results);
        assert!(page.contains("Not measured here: ") && page.contains("Rounds: 1, of one run, "));
        let ahead = "Microseconds an operation, A: trommel 3.00, the fastest rival is lmdb with 2.00: **1.50 \
                     times as long: behind**";
        assert!(page.contains(ahead), "{page}");
    }

    #[test]
    fn text_is_wrapped_to_the_width_of_a_page() {
        let text = wrapped(&"word ".repeat(50));
        assert!(text.lines().all(|line| line.len() <= 100 && !line.ends_with(' ')), "{text}");
        assert_eq!(text.lines().count(), 3);
        assert_eq!(wrapped("one   two"), "one two");
    }
}
