//! `trommel rates`: what filters are expected to do, by theory alone.

use std::io::Write;

use clap::Args;
use trommel::{FilterKind, FilterSpec};

use crate::failure::Failure;
use crate::output::{OutputArgs, Value};

/// The kinds that have a size.
const KINDS: [FilterKind; 4] =
    [FilterKind::Standard, FilterKind::Blocked, FilterKind::Paired, FilterKind::Ribbon];

pub(crate) const LONG_ABOUT: &str = "\
Print the rate of false positives that a filter of so many bits per key is expected to have, for \
each kind; or, with --fpr, how many bits per key a rate takes. No store is needed: the rates are \
computed, exactly, for a table of --keys keys.";

#[derive(Debug, Args)]
pub(crate) struct RatesArgs {
    /// Bits per key, 0.5 to 64
    #[arg(default_values_t = [4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 23.4, 28.0], value_name = "BITS")]
    bits: Vec<f64>,
    /// Print the bits per key that this rate takes; may be given several times
    #[arg(long, value_name = "RATE", conflicts_with = "bits")]
    fpr: Vec<f64>,
    /// Keys of the table
    #[arg(long, value_name = "COUNT", default_value = "1M", value_parser = trommel_harness::units::parse_count)]
    keys: u64,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &RatesArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let mut output = args.output.begin("rates", out);
    if args.fpr.is_empty() {
        output.list("rates", &["bits_per_key", "standard", "blocked", "paired", "ribbon"])?;
        for &bits in &args.bits {
            let of = |kind| Ok(spec(FilterSpec::new(kind, bits))?.expected_fpr(args.keys));
            output.row(row(bits, of)?)?;
        }
    } else {
        output.list("bits_per_key", &["rate", "standard", "blocked", "paired", "ribbon"])?;
        for &rate in &args.fpr {
            let of = |kind| Ok(spec(FilterSpec::with_fpr(kind, rate))?.bits_per_key());
            output.row(row(rate, of)?)?;
        }
    }
    Ok(output.finish()?)
}

fn spec<E: ToString>(spec: Result<FilterSpec, E>) -> Result<FilterSpec, Failure> {
    spec.map_err(|error| Failure::Usage(error.to_string()))
}

/// What was asked about, and the answer for each kind.
fn row(
    asked: f64,
    answer: impl Fn(FilterKind) -> Result<f64, Failure>,
) -> Result<Vec<Value>, Failure> {
    let answers = KINDS.into_iter().map(|kind| answer(kind).map(Value::Float));
    std::iter::once(Ok(Value::Float(asked))).chain(answers).collect()
}
