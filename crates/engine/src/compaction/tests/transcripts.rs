//! Trees drawn as text, and the planner's answers: `testdata/*.txt`.
//!
//! A file is a list of cases, separated by blank lines. A case is a name, a tree, questions, and
//! after each question the answer, on lines that begin with `=`:
//!
//! ```text
//! # Comments stay as they are.
//! case: level 0 goes to the last level at first
//! options: trigger=4 base=100 ratio=10 table=10
//! L0: 9[a-m]10 8[c-z]10
//! L6: 1[a-f]20:d5
//! running: 8 1 -> L6
//! plan
//! = L0 9 + L6 1 -> L6 ...
//! ```
//!
//! A table is `number[smallest-largest]bytes`, with `:dN` for N percent of tombstones, `:hN` for N
//! percent of hidden versions and `:sN` for its lowest sequence number (default: its number, which
//! is always the highest). Level 0 is drawn newest first. `running` names the inputs of a running
//! compaction, `snapshot` the oldest snapshot; with the option `rest=1` a caller waits for the
//! store to become idle. The questions are `plan` (one plan), `plans` (all that may run
//! concurrently), `settle` (each plan done at once, as one output table, until there is none),
//! `range FROM TO THROUGH BEFORE` (the steps of a range compaction, likewise), `shape`, `debt`.
//!
//! `TROMMEL_REWRITE=1` writes the current answers into the files, to be reviewed in the diff.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use trommel_base::{MAX_SEQNO, SeqNo};

use crate::levels::LEVELS;
use crate::version::{TableFile, Version};

use super::super::in_progress::InProgress;
use super::super::key_range::{KeyBounds, total_bytes};
use super::super::plan::{Plan, Reason, plan};
use super::super::range::{RangeCompaction, RangeStep};
use super::super::shape::{Shape, debt};
use super::{install, table};
use crate::compaction_options::CompactionOptions;

#[derive(Default)]
struct Case {
    options: Option<CompactionOptions>,
    version: Version,
    busy: InProgress,
    snapshot: Option<SeqNo>,
}

/// A plan as text.
fn show(plan: &Plan) -> String {
    let numbers = |tables: &[Arc<TableFile>]| {
        tables.iter().map(|table| table.number.to_string()).collect::<Vec<_>>().join(" ")
    };
    let mut line = format!("L{} {}", plan.level, numbers(&plan.upper));
    if !plan.through.is_empty() {
        write!(line, " + L{} {}", plan.output_level - 1, numbers(&plan.through)).unwrap();
    }
    if !plan.lower.is_empty() {
        write!(line, " + L{} {}", plan.output_level, numbers(&plan.lower)).unwrap();
    }
    let how = if plan.trivial_move { "move" } else { "merge" };
    write!(line, " -> L{}, {how} for {:?}", plan.output_level, plan.reason).unwrap();
    if !plan.grandparents.is_empty() {
        let below = plan.grandparents.iter().map(|table| table.number.to_string());
        write!(line, ", over {}", below.collect::<Vec<_>>().join(" ")).unwrap();
    }
    line
}

fn options(text: &str) -> CompactionOptions {
    let mut options = CompactionOptions { table_bytes: 10, ..CompactionOptions::default() };
    for option in text.split_whitespace() {
        let (name, value) = option.split_once('=').unwrap();
        let value: u64 = value.parse().unwrap();
        match name {
            "trigger" => options.l0_trigger = value as usize,
            "base" => options.base_level_bytes = value,
            "ratio" => options.level_ratio = value,
            "slow" => options.slow_runs = value as usize,
            "rest" => options.waits_for_runs = value == 0,
            "table" => options.table_bytes = value,
            other => panic!("no such option: {other}"),
        }
    }
    options
}

/// `number[smallest-largest]bytes:dN:hN:sN`
fn parse_table(text: &str) -> Arc<TableFile> {
    let (number, rest) = text.split_once('[').unwrap();
    let (keys, rest) = rest.split_once(']').unwrap();
    let (smallest, largest) = keys.split_once('-').unwrap();
    let mut parts = rest.split(':');
    let bytes = parts.next().unwrap().parse().unwrap();
    let mut meta = table(number.parse().unwrap(), smallest.as_bytes(), largest.as_bytes(), bytes);
    (meta.entries, meta.keys) = (100, 100);
    for part in parts {
        let (name, value) = part.split_at(1);
        match name {
            "d" => meta.deletions = value.parse().unwrap(),
            "s" => meta.min_seqno = value.parse().unwrap(),
            "h" => meta.keys = 100 - value.parse::<u64>().unwrap(),
            other => panic!("no such property: {other}"),
        }
    }
    Arc::new(TableFile::new(meta))
}

impl Case {
    fn options(&self) -> CompactionOptions {
        self.options.unwrap_or_else(|| options("base=100"))
    }

    fn oldest(&self) -> SeqNo {
        self.snapshot.unwrap_or(MAX_SEQNO)
    }

    /// `8 1 -> L6`
    fn start_running(&mut self, text: &str) {
        let (inputs, output) = text.split_once("-> L").unwrap();
        let output_level = output.trim().parse().unwrap();
        let numbers: Vec<u64> =
            inputs.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let inputs: Vec<(usize, Arc<TableFile>)> = self
            .version
            .tables()
            .filter(|(_, table)| numbers.contains(&table.number))
            .map(|(level, table)| (level, Arc::clone(table)))
            .collect();
        assert_eq!(inputs.len(), numbers.len(), "running: {text}");
        let tables = || inputs.iter().map(|(_, table)| table);
        let plan = Plan {
            level: inputs[0].0,
            upper: tables().cloned().collect(),
            through: Vec::new(),
            output_level,
            lower: Vec::new(),
            trivial_move: false,
            reason: Reason::Bytes,
            grandparents: Vec::new(),
            range: KeyBounds::hull(tables()).unwrap(),
        };
        self.busy.start(&plan).unwrap();
    }

    /// The outputs of `plan`, as one table with the next number.
    fn outputs(&self, plan: &Plan) -> Vec<Arc<TableFile>> {
        if plan.trivial_move {
            return plan.upper.clone();
        }
        let number = self.version.tables().map(|(_, table)| table.number).max().unwrap() + 1;
        let (smallest, largest) = (&plan.range.smallest, &plan.range.largest);
        let mut meta = table(number, smallest, largest, total_bytes(plan.tables()));
        meta.min_seqno = plan.tables().map(|table| table.min_seqno).min().unwrap();
        vec![Arc::new(TableFile::new(meta))]
    }

    fn run(&mut self, plan: &Plan) {
        let outputs = self.outputs(plan);
        self.version = install(&self.version, plan, true, outputs);
    }

    fn answer(&mut self, question: &str) -> Vec<String> {
        let options = self.options();
        let mut words = question.split_whitespace();
        let mut lines = Vec::new();
        match words.next().unwrap() {
            "plan" => lines
                .extend(plan(&self.version, &self.busy, &options, self.oldest()).iter().map(show)),
            "plans" => {
                while let Some(plan) = plan(&self.version, &self.busy, &options, self.oldest()) {
                    lines.push(show(&plan));
                    self.busy.start(&plan).unwrap();
                }
            }
            "settle" => {
                while let Some(plan) = plan(&self.version, &self.busy, &options, self.oldest()) {
                    lines.push(show(&plan));
                    self.run(&plan);
                    assert!(lines.len() < 100, "it never settles");
                }
            }
            "range" => self.compact_range(&mut words, &mut lines),
            "shape" => {
                let shape = Shape::of(&self.version, &self.busy, &options);
                let score = |level| shape.score(level, &self.version, &self.busy, &options);
                lines.push(format!("base L{}, L0 {:.2}", shape.base, score(0)));
                for level in (1..LEVELS - 1).filter(|level| {
                    shape.targets[*level] > 0 || !self.version.levels[*level].is_empty()
                }) {
                    let target = shape.targets[level];
                    lines.push(format!("L{level} of {target}: {:.2}", score(level)));
                }
            }
            "debt" => lines.push(debt(&self.version, &options).to_string()),
            other => panic!("no such question: {other}"),
        }
        if lines.is_empty() {
            lines.push("nothing".to_owned());
        }
        lines
    }

    fn compact_range<'a>(
        &mut self,
        words: &mut impl Iterator<Item = &'a str>,
        lines: &mut Vec<String>,
    ) {
        let options = self.options();
        let (from, to) = (words.next().unwrap(), words.next().unwrap());
        let to = (to != "end").then_some(to.as_bytes());
        let mut number = || words.next().unwrap().parse().unwrap();
        let mut range = RangeCompaction::new(from.as_bytes(), to, number(), number());
        loop {
            match range.next_step(&self.version, &self.busy, &options) {
                RangeStep::Run(plan) => {
                    lines.push(show(&plan));
                    self.run(&plan);
                }
                RangeStep::Wait => {
                    lines.push("wait".to_owned());
                    break;
                }
                RangeStep::Done => break,
            }
            assert!(lines.len() < 100, "it never ends");
        }
    }

    fn read_line(&mut self, line: &str) -> Vec<String> {
        match line.split_once(": ") {
            Some(("case", _)) => *self = Self::default(),
            Some(("options", text)) => self.options = Some(options(text)),
            Some(("running", text)) => self.start_running(text),
            Some(("snapshot", text)) => self.snapshot = text.parse().ok(),
            Some((level, tables)) if level.starts_with('L') => {
                let level: usize = level[1..].parse().unwrap();
                self.version.levels[level] = tables.split_whitespace().map(parse_table).collect();
            }
            _ => return self.answer(line),
        }
        Vec::new()
    }
}

/// `transcript` with the current answers.
fn replay(transcript: &str) -> String {
    let mut case = Case::default();
    let mut out = String::new();
    for line in transcript.lines().filter(|line| !line.starts_with('=')) {
        writeln!(out, "{line}").unwrap();
        if !line.is_empty() && !line.starts_with('#') {
            for answer in case.read_line(line) {
                writeln!(out, "= {answer}").unwrap();
            }
        }
    }
    out
}

#[test]
fn the_planner_answers_as_its_transcripts_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/compaction/testdata");
    let rewrite = std::env::var_os("TROMMEL_REWRITE").is_some();
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let transcript = std::fs::read_to_string(&path).unwrap();
        let replayed = replay(&transcript);
        if rewrite {
            std::fs::write(&path, replayed).unwrap();
        } else {
            let lines = transcript.lines().zip(replayed.lines());
            for (number, (expected, found)) in lines.enumerate() {
                assert_eq!(found, expected, "{} line {}", path.display(), number + 1);
            }
            assert_eq!(replayed, transcript, "{}", path.display());
        }
        files += 1;
    }
    assert!(files >= 4, "only {files} transcripts found");
}
