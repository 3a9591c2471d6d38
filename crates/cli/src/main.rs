//! The `trommel` program: the demo, the benchmarks, and tools to inspect a store.
//!
//! Data goes to standard output; messages and progress go to standard error. Exit codes are listed
//! in [`failure`].
#![forbid(unsafe_code)]

mod args;
mod commands;
mod entries;
mod escape;
mod failure;
mod families;
mod output;
mod progress;
mod shared_args;
mod text;

use std::io::{self, Write};
use std::process::ExitCode;

use trommel_harness::{Control, Stop};

use args::{Cli, Command};
use commands::store_args::Session;
use commands::*;
use failure::Failure;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = Cli::read(std::env::args_os()).command;
    let stop = Stop::new();
    let result = stop_on_signals(&stop).and_then(|()| {
        let progress = progress::on_terminal();
        let control = Control { stop: &stop, progress: &*progress };
        run(command, control, &mut io::stdout().lock())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

fn run(command: Command, control: Control<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let session = Session { control, open: None };
    match command {
        Command::Demo(args) => demo::run(args, control, out),
        Command::Bench(args) => bench::run(&args, control, out),
        Command::Compare(args) => compare::run(&args, out),
        Command::Report(args) => report::run(&args, out),
        Command::FilterBench(args) => filter_bench::run(&args, control, out),
        Command::Tune(args) => tune::run(&args, session, out),
        Command::Stress(args) => stress::run(&args, control, out),
        Command::StressWorker(args) => stress::run_worker(&args),
        Command::Store(command) => command.run(session, out),
        Command::Shell(args) => shell::run(&args, session, out),
        Command::Repair(args) => repair::run(&args, session, out),
        Command::Destroy(args) => admin::run_destroy(&args, out),
        Command::Completions(args) => generated::run_completions(&args, Cli::definition(), out),
        Command::Man(args) => generated::run_man(&args, Cli::definition(), out),
        Command::Rates(args) => rates::run(&args, out),
    }
}

/// The first signal stops the run in order; a second one kills the process at once.
fn stop_on_signals(stop: &Stop) -> Result<(), Failure> {
    let stop = stop.clone();
    ctrlc::set_handler(move || {
        if stop.is_set() {
            std::process::exit(failure::INTERRUPTED.into());
        }
        stop.set();
    })
    .map_err(|error| Failure::Other(format!("signals cannot be handled: {error}")))
}

/// Prints the failure to standard error, and returns its exit code.
fn report(failure: &Failure) -> ExitCode {
    failure.say();
    ExitCode::from(failure.code())
}
