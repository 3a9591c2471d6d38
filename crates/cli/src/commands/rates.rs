//! `trommel rates`: what filters are expected to do, by theory alone.

use std::io::Write;

use clap::Args;
use trommel::{FilterKind, FilterSpec};

use crate::failure::Failure;
use crate::output::{OutputArgs, Value};

/// The kinds that have a size.
const KINDS: [FilterKind; 4] =
    [FilterKind::Standard, FilterKind::Blocked, FilterKind::Paired, FilterKind::Ribbon];

/// The least and the most thousandths of a bit per key that a filter may have.
const MILLIBITS: (u32, u32) = (500, 64_000);

pub(crate) const LONG_ABOUT: &str = "\
Print the rate of false positives that a filter of so many bits per key is expected to have, for \
each kind; or, with --fpr, how many bits per key a rate takes. No store is needed: the rates are \
computed, exactly, for a table of --keys keys. (A filter that is asked for by its rate, as in \
paired:fpr=1e-5, has the bits that it takes in a large table.)";

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
    // All that is asked for before anything is said: what is wrong with the last is no half of an answer.
    let of_rate = |rate: &f64| row(*rate, |kind| bits_for(kind, *rate, args.keys));
    let rows: Vec<_> = args.fpr.iter().map(of_rate).collect::<Result<_, _>>()?;
    let mut output = args.output.begin("rates", out);
    if args.fpr.is_empty() {
        output.list("rates", &["bits_per_key", "standard", "blocked", "paired", "ribbon"])?;
        for &bits in &args.bits {
            let of = |kind| Ok(Some(spec(FilterSpec::new(kind, bits))?.expected_fpr(args.keys)));
            output.row(row(bits, of)?)?;
        }
    } else {
        output.list("bits_per_key", &["rate", "standard", "blocked", "paired", "ribbon"])?;
        for row in rows {
            output.row(row)?;
        }
    }
    Ok(output.finish()?)
}

/// The bits per key, to a thousandth, that a filter of so many keys takes to err as rarely as `rate`; none where no
/// filter of that kind does, of up to 64 bits a key.
///
/// # Errors
/// What is asked for is no rate.
fn bits_for(kind: FilterKind, rate: f64, keys: u64) -> Result<Option<f64>, Failure> {
    let is_rate = rate > 0.0 && rate < 1.0;
    if let (Err(error), false) = (FilterSpec::with_fpr(kind, rate), is_rate) {
        return Err(Failure::Usage(error.to_string()));
    }
    let errs_too_often = |millibits: u32| {
        let spec = spec(FilterSpec::new(kind, f64::from(millibits) / 1000.0))?;
        Ok::<_, Failure>(spec.expected_fpr(keys) > rate)
    };
    let (mut low, mut high) = MILLIBITS;
    if errs_too_often(high)? {
        return Ok(None);
    }
    while low < high {
        let middle = low.midpoint(high);
        if errs_too_often(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(Some(f64::from(high) / 1000.0))
}

fn spec<E: ToString>(spec: Result<FilterSpec, E>) -> Result<FilterSpec, Failure> {
    spec.map_err(|error| Failure::Usage(error.to_string()))
}

/// What was asked about, and the answer for each kind that has one.
fn row(
    asked: f64,
    answer: impl Fn(FilterKind) -> Result<Option<f64>, Failure>,
) -> Result<Vec<Value>, Failure> {
    let answers =
        KINDS.into_iter().map(|kind| answer(kind).map(|it| it.map_or(Value::Null, Value::Float)));
    std::iter::once(Ok(Value::Float(asked))).chain(answers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{ColorChoice, Format};

    fn bits_for(rate: f64, keys: u64) -> Vec<f64> {
        let output = OutputArgs { format: Format::Json, color: ColorChoice::Never };
        let mut text = Vec::new();
        run(&RatesArgs { bits: Vec::new(), fpr: vec![rate], keys, output }, &mut text).unwrap();
        let found: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let row = &found["bits_per_key"][0];
        KINDS.iter().map(|kind| row[kind.name()].as_f64().unwrap()).collect()
    }

    /// `--keys` had no effect where `--fpr` was given.
    #[test]
    fn a_rate_takes_what_it_takes_for_so_many_keys() {
        for (rate, keys) in [(0.01, 100), (1e-4, 1000), (1e-5, 1_000_000)] {
            for (kind, bits) in KINDS.into_iter().zip(bits_for(rate, keys)) {
                let rate_at = |bits| FilterSpec::new(kind, bits).unwrap().expected_fpr(keys);
                assert!(rate_at(bits) <= rate, "{kind} {keys}: {bits}");
                assert!(rate_at(bits - 0.001) > rate, "{kind} {keys}: {bits}");
            }
        }
        assert_ne!(bits_for(1e-4, 1000), bits_for(1e-4, 1_000_000));
    }

    /// One kind that could not be as good left the others without an answer, and a document half written.
    #[test]
    fn a_rate_that_some_kinds_cannot_reach_is_answered_for_the_others() {
        let rates = |fpr: Vec<f64>, text: &mut Vec<u8>| {
            let output = OutputArgs { format: Format::Json, color: ColorChoice::Never };
            run(&RatesArgs { bits: Vec::new(), fpr, keys: 1_000_000, output }, text)
        };
        let mut text = Vec::new();
        rates(vec![1e-2, 1e-9], &mut text).unwrap();
        let found: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let rows = found["bits_per_key"].as_array().unwrap();
        assert!(rows[0]["blocked"].is_f64() && rows[1]["blocked"].is_null(), "{found}");
        assert!(rows[1]["standard"].is_f64() && rows[1]["ribbon"].is_f64(), "{found}");
        for wrong in [0.0, 1.0, -1.0, f64::NAN] {
            let mut text = Vec::new();
            assert!(rates(vec![1e-2, wrong], &mut text).is_err(), "{wrong}");
            assert!(text.is_empty(), "half of a document");
        }
    }
}
