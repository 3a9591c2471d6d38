//! `trommel tune`: computes filters for a store, and measures them in experiments.
//!
//! Each subcommand has a module: [`simulate`] is for a hypothetical store, [`advise`] for an
//! existing one; [`run`](mod@run) measures a plan, [`report`] makes a page of the results;
//! [`replay`] replays a store's lookups against other filters.

mod advise;
mod cost;
mod replay;
mod report;
mod run;
mod simulate;

use std::io::Write;

use clap::{Args, Subcommand};

use crate::commands::store_args::Session;
use crate::failure::Failure;

pub(crate) const LONG_ABOUT: &str = "\
Chooses filters by computation: how many reads a byte of filter saves, on a given tree and for \
given lookups. Experiments test this: a plan names filters, trees and workloads, each combination \
is measured on stores of its own and compared with the model's prediction, and the results become \
a page.";

#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    command: TuneCommand,
}

#[derive(Debug, Subcommand)]
enum TuneCommand {
    /// Recommend a filter for each level of a store, with the reason
    #[command(long_about = advise::LONG_ABOUT, after_help = advise::AFTER_HELP)]
    Advise(advise::AdviseArgs),
    /// Compute the tree of a hypothetical store, and the cost and savings of filters in it
    #[command(long_about = simulate::LONG_ABOUT, after_help = simulate::AFTER_HELP)]
    Simulate(simulate::SimulateArgs),
    /// Measure the cells of a plan that have no result yet
    #[command(long_about = run::LONG_ABOUT, after_help = run::AFTER_HELP)]
    Run(run::RunArgs),
    /// Make an HTML page, and CSV, of results
    #[command(long_about = report::LONG_ABOUT, after_help = report::AFTER_HELP)]
    Report(report::TuneReportArgs),
    /// Replay the lookups of a trace against other filters, built from a store's own keys
    #[command(long_about = replay::LONG_ABOUT, after_help = replay::AFTER_HELP)]
    Replay(replay::ReplayArgs),
}

pub(crate) fn run(
    args: &TuneArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match &args.command {
        TuneCommand::Advise(args) => advise::run(args, session, out),
        TuneCommand::Simulate(args) => simulate::run(args, out),
        TuneCommand::Run(args) => run::run(args, session.control, out),
        TuneCommand::Report(args) => report::run(args, session.control, out),
        TuneCommand::Replay(args) => replay::run(args, session, out),
    }
}
