//! Runs the lanes, and writes down what they did.
//!
//! A *lane* is a test that searches: crash images, failing disks, damaged files, random histories,
//! schedules. `cargo test` runs them, the largest with a quarter of the cases that are promised.
//! This program runs them and keeps what they counted, again and again with other seeds, or with a
//! bug planted in the store.
//!
//! * [`binaries`]: the test binaries of this package, built and listed.
//! * [`job`]: one process, watched: its time, its output, its end.
//! * [`rounds`]: `ci` and `soak`: all lanes, once or until the time is over.
//! * [`sums`]: what the lanes counted, added up.
//! * [`planted`]: a bug at a time, until a test fails.
//! * [`page`], [`record`]: the pages and the JSON that are kept in `docs`.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program for the terminal")]
#![allow(clippy::disallowed_methods, reason = "it writes no file of a store")]

mod binaries;
mod job;
mod page;
mod planted;
mod record;
mod rounds;
mod sums;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs the lanes that show what the store promises, and writes down what they counted.
///
/// Run it anywhere in the repository. Words and progress go to stderr; what is kept goes to
/// docs/measurements.
#[derive(Debug, Parser)]
#[command(name = "lanes", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints the lanes and the bugs that can be planted.
    List,
    /// Runs every lane once, with all the cases that are promised.
    ///
    /// Writes benches/records/lanes-ci.json and the page docs/measurements/lanes.md. Fails where
    /// a lane fails, and where all together did less than a change must be tried with.
    Ci(rounds::CiArgs),
    /// Runs the lanes with other seeds each time, until the time is over.
    ///
    /// Writes benches/records/lanes-soak.json and the page docs/measurements/lanes.md. A lane
    /// that fails is written down with the line that plays it again, and the soak goes on.
    Soak(rounds::SoakArgs),
    /// Writes the page docs/measurements/lanes.md anew, from the records that are kept.
    Page,
    /// Plants one bug after the other, and runs the lanes until one of them fails.
    ///
    /// Builds the tests a second time, in target/planted. Writes benches/records/planted.json and
    /// the page docs/planted-bugs.md.
    Planted(planted::PlantedArgs),
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::List => planted::list(),
        Command::Ci(args) => rounds::ci(&args),
        Command::Soak(args) => rounds::soak(&args),
        Command::Page => page::write_lanes().map(|()| true),
        Command::Planted(args) => planted::run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("lanes: {what}");
            ExitCode::from(2)
        }
    }
}
