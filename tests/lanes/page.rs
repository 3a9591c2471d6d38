//! The generated pages: docs/measurements/lanes.md and docs/planted-bugs.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use trommel_harness::table::Table;
use trommel_harness::units::grouped;
use trommel_tests::planted::{Bug, Catalogue};

use crate::binaries::Outcome;
use crate::planted::Caught;
use crate::record;
use crate::sums::Sums;

/// Writes the page of the planted bugs.
pub(crate) fn write_planted(catalogue: &Catalogue, all: &[(&Bug, Option<Caught>)]) -> Outcome<()> {
    let head = ["bug", "what it does", "seen before in", "planted in", "found by", "seconds"];
    let mut table = Table::new(head, 5);
    for (bug, caught) in all {
        let sites = catalogue.sites(bug);
        let sites = sites.iter().map(|site| format!("`{}`", site.trim_start_matches("crates/")));
        let sites = sites.collect::<Vec<_>>().join(", ");
        let (by, seconds) = match caught {
            Some(caught) => (format!("`{}`", caught.test), format!("{:.1}", caught.seconds)),
            None => ("**none**".to_owned(), String::new()),
        };
        let (name, what, seen) = (bug.name.clone(), bug.what.clone(), bug.seen.clone());
        table.row([name, what, seen, sites, by, seconds]);
    }
    record::write_text("docs/planted-bugs.md", &(PLANTED_HEAD.to_owned() + &table.markdown()))
}

const PLANTED_HEAD: &str = "\
# Planted bugs

A lane that has never failed proves nothing. So bugs are planted in a copy of the sources, most of
them known from other stores, and each must be found by a lane at the size that runs for every
change. The sources themselves know nothing of them.

The catalogue, `tests/planted/*.toml`, describes each bug and the edits that plant it: an edit
replaces a text that occurs exactly once in its file by the same code with the bug in it, which
`trommel_base::planted::is(\"Name\")` activates at run time. An edit that no longer applies fails
`cargo test` (`tests/tidy`) and the command below. To add a bug, add an entry to the catalogue and run
the command with `--bug NAME --keep`; to find the text of an edit, copy code, not comments.

```text
cargo run -p trommel-tests --bin lanes -- planted
```

copies the sources to `target/lanes/planted-copy`, plants all bugs there and builds the tests. It runs
them with one bug active at a time (`TROMMEL_PLANTED`) until one fails, then runs those that failed once
more without a bug (all must pass), and writes this page and
[planted.json](../benches/records/planted.json). `--bug NAME` activates one bug (with `--keep`, its row
is updated), `--some 6` those whose turn it is at this commit. The test named is the first that failed,
not the only one that would; the seconds are its own.

";

/// Writes the page of the lanes, from the existing records.
pub(crate) fn write_lanes() -> Outcome<()> {
    let mut text = String::from(LANES_HEAD);
    for (title, path) in [
        ("One run at the size for every change", "benches/records/lanes-ci.json"),
        ("The soak", "benches/records/lanes-soak.json"),
    ] {
        let record = record::read(path)?;
        if !record.is_null() {
            write_record(&mut text, title, path, &record);
        }
    }
    record::write_text("docs/measurements/lanes.md", &text)
}

const LANES_HEAD: &str = "\
# Lanes

What the lanes did, as they counted it. Both records are written by a command, and this page with
them:

```text
cargo run -p trommel-tests --bin lanes -- ci
cargo run -p trommel-tests --bin lanes -- soak --minutes 60
```

A lane that finds anything panics and counts nothing; what it found is listed as a failure, with the
line that plays it again.
";

/// The titles of counters with details.
const DETAILED: [(&str, &str); 6] = [
    ("images", "Crash images, by what the power cut left"),
    ("faults", "Injected faults, by the call that failed and the error"),
    ("flips", "Bytes of which one bit was flipped, by the kind of file"),
    ("cuts", "Files cut short, by the kind of file"),
    ("hostile", "Contents that nobody wrote, behind right checksums, by the kind of file"),
    ("outcomes", "What came of damage of all kinds, by the kind of file"),
];

fn write_record(text: &mut String, title: &str, path: &str, record: &Value) {
    let sums = Sums::of_record(record);
    let said = |pointer: &str| match record.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let seconds = record.pointer("/seconds").and_then(Value::as_f64).unwrap_or(0.0);
    let name = path.rsplit('/').next().unwrap_or(path);
    let commit: String = said("/commit").chars().take(10).collect();
    let _ = write!(
        text,
        "\n## {title}\n\n`{}`, commit {commit}, {}, on {} cores ({}), {}; {:.1} minutes, seeds from \
         {} to {}. Runs of lanes that passed: {}; that failed: {}. All of it: [{name}](../../{path}).\n\n",
        said("/command"),
        said("/date"),
        said("/machine/cores"),
        said("/machine/cpu"),
        said("/machine/system"),
        seconds / 60.0,
        said("/first_seeds/0"),
        said("/first_seeds/1"),
        said("/runs/passed"),
        said("/runs/failed"),
    );
    *text += &counts("counted", &sums.totals());
    for (noun, what) in DETAILED {
        let details = sums.details(noun);
        if !details.is_empty() {
            let _ = write!(text, "\n{what}:\n\n");
            *text += &counts(noun, &details);
        }
    }
    let mut lanes = Table::new(["lane", "counted", "runs", "seconds"], 2);
    for (name, lane) in &sums.lanes {
        let counted = lane.nouns();
        let counted = counted.iter().map(|(noun, count)| format!("{noun} {}", grouped(*count)));
        let counted = counted.collect::<Vec<_>>().join(", ");
        lanes.row([name.clone(), counted, lane.runs.to_string(), format!("{:.1}", lane.seconds)]);
    }
    let _ = write!(text, "\nBy lane:\n\n{}", lanes.markdown());
}

/// A table of these counts.
fn counts(noun: &str, counts: &BTreeMap<String, u64>) -> String {
    let mut table = Table::new([noun, "count"], 1);
    for (name, count) in counts {
        table.row([name.replace('.', " "), grouped(*count)]);
    }
    table.markdown()
}
