//! `trommel tune`: experiments with filters.
//!
//! Each subcommand has a module: [`run`](mod@run) measures what a plan says, [`report`] makes a page of
//! the results.

mod report;
mod run;

use std::io::Write;

use clap::{Args, Subcommand};
use trommel_harness::Control;

use crate::failure::Failure;

pub(crate) const LONG_ABOUT: &str = "\
Experiments with filters. A plan names filters, trees and workloads; each combination is measured on \
stores of its own, beside what the model of the tree predicts, and the results become a page.";

#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    command: TuneCommand,
}

#[derive(Debug, Subcommand)]
enum TuneCommand {
    /// Measure what a plan says, or what is still missing of it
    #[command(long_about = run::LONG_ABOUT, after_help = run::AFTER_HELP)]
    Run(run::RunArgs),
    /// Make one HTML page, and CSV, of results
    #[command(long_about = report::LONG_ABOUT, after_help = report::AFTER_HELP)]
    Report(report::ReportArgs),
}

pub(crate) fn run(
    args: &TuneArgs,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match &args.command {
        TuneCommand::Run(args) => run::run(args, control, out),
        TuneCommand::Report(args) => report::run(args, control, out),
    }
}
