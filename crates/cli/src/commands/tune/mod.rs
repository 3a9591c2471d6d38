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
Choose filters by figures: which bytes of filter save which reads, on which tree and for which \
lookups. Experiments measure what the figures say: a plan names filters, trees and workloads; each \
combination is measured on stores of its own, beside what the model of the tree predicts, and the \
results become a page.";

#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    command: TuneCommand,
}

#[derive(Debug, Subcommand)]
enum TuneCommand {
    /// Say which filter each level of a store should have, and why
    #[command(long_about = advise::LONG_ABOUT, after_help = advise::AFTER_HELP)]
    Advise(advise::AdviseArgs),
    /// Compute the tree of a store that is not there, and what filters cost and save in it
    #[command(long_about = simulate::LONG_ABOUT, after_help = simulate::AFTER_HELP)]
    Simulate(simulate::SimulateArgs),
    /// Measure what a plan says, or what is still missing of it
    #[command(long_about = run::LONG_ABOUT, after_help = run::AFTER_HELP)]
    Run(run::RunArgs),
    /// Make one HTML page, and CSV, of results
    #[command(long_about = report::LONG_ABOUT, after_help = report::AFTER_HELP)]
    Report(report::TuneReportArgs),
    /// What other filters would have done with the lookups of a trace, on a store's own keys
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
