//! The cost of each kind in instructions and bytes: figures that do not depend on other load of the
//! machine.
//!
//! `cargo run --release -p trommel-micro --example costs > crates/filter/COSTS.md`
//!
//! needs valgrind, and takes some minutes. The program runs itself under callgrind, which counts
//! the instructions of one step, and under dhat, which reports the peak memory. Valgrind has no
//! AVX-512; the counted vector kernel is AVX2.

#![allow(clippy::print_stdout, reason = "a measuring program")]

use std::error::Error;
use std::process::Command;

use trommel_filter::{Filter, FilterSpec, hash};

const SPECS: [&str; 12] = [
    "standard:10",
    "blocked:10",
    "paired:10",
    "ribbon:10",
    "standard:16",
    "blocked:16",
    "paired:16",
    "ribbon:16",
    "standard:23.4",
    "blocked:23.4",
    "paired:23.4",
    "ribbon:23.4",
];
const KEYS: u64 = 400_000;

type Answer<T> = Result<T, Box<dyn Error>>;

fn hashes(from: u64) -> Vec<u64> {
    (from..from + KEYS).map(|n| hash(&n.to_le_bytes())).collect()
}

#[inline(never)]
fn step_build(spec: FilterSpec, hashes: &[u64]) -> Vec<u8> {
    let mut builder = spec.builder();
    hashes.iter().for_each(|&hash| builder.add_hash(hash));
    builder.finish()
}

#[inline(never)]
fn step_query(filter: &Filter, hashes: &[u64]) -> usize {
    hashes.iter().filter(|&&hash| filter.may_contain_hash(hash)).count()
}

#[inline(never)]
fn step_many(filter: &Filter, hashes: &[u64], answers: &mut [bool]) {
    filter.may_contain_many(hashes, answers);
}

/// Runs under valgrind: `spec` and a step. Everything before the step is not counted.
fn run(spec: &str, step: &str) -> Answer<()> {
    let spec: FilterSpec = spec.parse()?;
    spec.expected_fpr(KEYS);
    let present = hashes(0);
    let bytes = step_build(spec, &present);
    if step == "build" || step == "memory" {
        return Ok(());
    }
    let filter = Filter::decode(bytes)?;
    let queried = if step == "present" { present } else { hashes(KEYS) };
    if step == "many" {
        step_many(&filter, &queried, &mut vec![false; queried.len()]);
    } else {
        println!("{}", step_query(&filter, &queried));
    }
    Ok(())
}

/// The number that follows `label` in valgrind's output.
fn valgrind(tool: &[&str], label: &str, spec: &str, step: &str) -> Answer<f64> {
    let program = std::env::current_exe()?;
    let output =
        Command::new("valgrind").args(tool).arg(program).args(["run", spec, step]).output()?;
    let output = String::from_utf8_lossy(&output.stderr);
    let number = output.split(label).nth(1).and_then(|rest| rest.split_whitespace().next());
    let number = number.ok_or_else(|| format!("valgrind says no \"{label}\": {output}"))?;
    Ok(number.replace(',', "").parse()?)
}

/// Instructions per key.
fn instructions(spec: &str, step: &str) -> Answer<f64> {
    let function = match step {
        "build" => "--toggle-collect=*step_build*",
        "many" => "--toggle-collect=*step_many*",
        _ => "--toggle-collect=*step_query*",
    };
    let tool = ["--tool=callgrind", "--callgrind-out-file=/dev/null", function];
    Ok(valgrind(&tool, "Collected : ", spec, step)? / KEYS as f64)
}

/// Peak bytes per key while the filter is built, without the list of hashes that this program keeps
/// for itself.
fn memory(spec: &str) -> Answer<f64> {
    let tool = ["--tool=dhat", "--dhat-out-file=/dev/null"];
    Ok(valgrind(&tool, "At t-gmax: ", spec, "memory")? / KEYS as f64 - 8.0)
}

fn main() -> Answer<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [run_word, spec, step] = &arguments[..]
        && run_word == "run"
    {
        return run(spec, step);
    }
    println!(
        "# What filters cost\n\n\
         Written by `cargo run --release -p trommel-micro --example costs > \
         crates/filter/COSTS.md`: {KEYS} keys, instructions per key counted by callgrind (with the \
         AVX2 kernel: valgrind has no AVX-512; hashing the key is not counted), bytes per key by \
         dhat. *Most held* is the most memory during construction, the finished bytes included.\n\n\
         | filter | rate | bytes a key | most held, bytes a key | to build | absent, one by one | \
         absent, many at once | present |\n|---|---:|---:|---:|---:|---:|---:|---:|"
    );
    for text in SPECS {
        let spec: FilterSpec = text.parse()?;
        println!(
            "| {text} | {:.2e} | {:.2} | {:.1} | {:.0} | {:.1} | {:.1} | {:.1} |",
            spec.expected_fpr(KEYS),
            spec.expected_bytes(KEYS) as f64 / KEYS as f64,
            memory(text)?,
            instructions(text, "build")?,
            instructions(text, "absent")?,
            instructions(text, "many")?,
            instructions(text, "present")?,
        );
    }
    Ok(())
}
