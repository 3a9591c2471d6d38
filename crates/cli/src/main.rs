//! The `trommel` program: the main job, and the bench.
//!
//! What is measured goes to standard output; messages and progress go to standard error. Exit
//! codes are listed in [`exit`].
#![forbid(unsafe_code)]

mod args;
mod bench;
mod demo;
mod exit;
mod progress;

use std::io::{self, Write};
use std::process::ExitCode;

use trommel_harness::{Control, Error, Stop};

use args::{Cli, Command};

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
        Err(error) => report(&error),
    }
}

fn run(command: Command, control: Control<'_>, out: &mut dyn Write) -> Result<(), Error> {
    match command {
        Command::Demo(args) => demo::run(args, control, out),
        Command::Bench(args) => bench::run(*args, control, out),
    }
}

/// The first signal ends the run in order; a second one ends the process at once.
fn stop_on_signals(stop: &Stop) -> Result<(), Error> {
    let stop = stop.clone();
    ctrlc::set_handler(move || {
        if stop.is_set() {
            std::process::exit(exit::INTERRUPTED.into());
        }
        stop.set();
    })
    .map_err(|error| Error::Usage(format!("signals cannot be handled: {error}")))
}

/// Says on standard error what went wrong, and gives the exit code for it.
fn report(error: &Error) -> ExitCode {
    let code = exit::code(error);
    if code != exit::OK {
        // If even standard error is gone, the exit code has to do.
        let _ = writeln!(io::stderr(), "error: {error}");
    }
    ExitCode::from(code)
}
