//! Runs the lanes, and records their results.
//!
//! A *lane* is a test that searches: crash images, failing disks, damaged files, random histories,
//! schedules. `cargo test` runs the largest with a 32nd of the promised cases, those that
//! enumerate with a ninth, and the others with a quarter. This program runs them and keeps what
//! they counted, again and again with other seeds, or with a bug planted in the store.
//!
//! * [`binaries`]: builds and lists the test binaries of this package.
//! * [`job`]: a supervised process: its time, its output, its end.
//! * [`rounds`]: `ci` and `soak`: all lanes, once or until the time is over.
//! * [`sums`]: the sums of the lanes' counters.
//! * [`planted`]: one bug at a time, until a test fails.
//! * [`copy`]: the copy of the sources that holds these bugs.
//! * [`page`], [`record`]: the pages in `docs`, and the records in JSON.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program for the terminal")]
#![allow(clippy::disallowed_methods, reason = "it writes no file of a store")]

mod binaries;
mod copy;
mod job;
mod page;
mod planted;
mod record;
mod rounds;
mod sums;
#[cfg(test)]
#[expect(unreachable_pub, reason = "it is public in the copy")]
#[path = "../planted/switch.rs"]
mod switch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs the lanes that test the store's promises, and records their counters.
///
/// Run it anywhere in the repository. Messages and progress go to stderr; results go to
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
    /// Runs every lane once, with all promised cases.
    ///
    /// Writes benches/records/lanes-ci.json and the page docs/measurements/lanes.md. Fails if a
    /// lane fails, or if all lanes together did less than the minimum for a change.
    Ci(rounds::CiArgs),
    /// Runs the lanes with new seeds each time, until the time is over.
    ///
    /// Writes benches/records/lanes-soak.json and the page docs/measurements/lanes.md. The failure
    /// of a lane is recorded with the line that reproduces it, and the soak continues.
    Soak(rounds::SoakArgs),
    /// Rewrites the page docs/measurements/lanes.md from the existing records.
    Page,
    /// Plants one bug after another, and runs the lanes until one of them fails.
    ///
    /// Builds the tests a second time, in target/planted, from a copy of the sources that holds the
    /// bugs. Writes benches/records/planted.json and
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
