//! `trommel rates`: the expected false-positive rates of filters, by theory alone.

use std::io::Write;

use clap::Args;
use trommel::filter::FilterSize;
use trommel::{FilterKind, FilterSpec};
use trommel_harness::units::{parse_count, parse_decimal, parse_part};

use crate::failure::Failure;
use crate::output::{OutputArgs, Value};

/// A size, and a column for each kind.
type Columns = [&'static str; 1 + FilterKind::ALL.len()];

pub(crate) const LONG_ABOUT: &str = "\
Prints the expected false-positive rate of each kind of filter for a number of bits per key; or, \
with --fpr, the bits per key for a rate, and the filter of each kind with that rate: its bits m, \
its probes k (the columns of a ribbon), its bytes including the header, and its actual rate. No \
store is needed: everything is computed, exactly, for a table of --keys keys. (A filter that is \
specified by its rate, as in paired:fpr=1e-5, gets the bits for that rate in a large table.)

A filter consists of whole cache lines of 64 bytes, so one of few keys has more bits than \
requested, and the rate of its actual bits. If that makes a difference of more than a twentieth, \
the stored bits per key are printed as well.";

#[derive(Debug, Args)]
pub(crate) struct RatesArgs {
    /// Bits per key, 0.5 to 64
    #[arg(default_values_t = [4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 23.4, 28.0], value_name = "BITS")]
    #[arg(value_parser = parse_decimal)]
    bits: Vec<f64>,
    /// Print the bits per key that this rate takes; may be given several times
    #[arg(long, value_name = "RATE", conflicts_with = "bits", value_parser = parse_part)]
    fpr: Vec<f64>,
    /// Keys of the table
    #[arg(long, value_name = "COUNT", default_value = "1M", value_parser = parse_count)]
    keys: u64,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &RatesArgs, out: &mut dyn Write) -> Result<(), Failure> {
    match args.fpr.is_empty() {
        true => of_bits(args, out),
        false => of_rates(args, out),
    }
}

/// Relative difference between requested and stored bits that needs no note.
const SLACK: f64 = 0.05;

/// Prints the rates of these numbers of bits.
fn of_bits(args: &RatesArgs, out: &mut dyn Write) -> Result<(), Failure> {
    // Compute everything before printing anything, so that an error in the last leaves no partial
    // answer.
    let mut rows = Vec::new();
    for &bits in &args.bits {
        let size = |kind| Ok::<_, Failure>(spec(FilterSpec::new(kind, bits))?.size(args.keys));
        let sizes: Vec<FilterSize> =
            FilterKind::ALL.into_iter().map(size).collect::<Result<_, Failure>>()?;
        rows.push((bits, sizes));
    }
    let mut output = args.output.begin("rates", out);
    let columns: Columns = ["bits_per_key", "standard", "blocked", "paired", "ribbon", "fuse"];
    let row = |bits: f64, sizes: &[FilterSize], of: fn(&FilterSize) -> f64| {
        let values = sizes.iter().map(|size| Value::Float(of(size)));
        std::iter::once(Value::Float(bits)).chain(values).collect::<Vec<Value>>()
    };
    output.list("rates", &columns)?;
    for (bits, sizes) in &rows {
        output.row(row(*bits, sizes, |size| size.expected_fpr))?;
    }
    let is_larger = |(bits, sizes): &(f64, Vec<FilterSize>)| {
        args.keys > 0 && sizes.iter().any(|size| size.bits_per_key > bits * (1.0 + SLACK))
    };
    if rows.iter().any(is_larger) {
        let columns: Columns = [
            "bits_requested",
            "standard_bits",
            "blocked_bits",
            "paired_bits",
            "ribbon_bits",
            "fuse_bits",
        ];
        output.list("stored_bits_per_key", &columns)?;
        for (bits, sizes) in &rows {
            output.row(row(*bits, sizes, |size| size.bits_per_key))?;
        }
    }
    Ok(output.finish()?)
}

/// Prints the filters with these rates.
fn of_rates(args: &RatesArgs, out: &mut dyn Write) -> Result<(), Failure> {
    // As above.
    let mut rows = Vec::new();
    for &rate in &args.fpr {
        let size = |kind| size_for(kind, rate, args.keys);
        let sizes: Vec<_> =
            FilterKind::ALL.into_iter().map(size).collect::<Result<_, Failure>>()?;
        rows.push((rate, sizes));
    }
    let mut output = args.output.begin("rates", out);
    let columns: Columns = ["rate", "standard", "blocked", "paired", "ribbon", "fuse"];
    output.list("bits_per_key", &columns)?;
    for (rate, sizes) in &rows {
        let values = sizes.iter().map(|size| size.map(|size| size.bits_per_key).into());
        output.row(std::iter::once(Value::Float(*rate)).chain(values).collect())?;
    }
    let columns = ["rate", "filter", "bits", "probes", "bytes", "bits_per_key", "expected_rate"];
    output.list("filters", &columns)?;
    for (rate, sizes) in &rows {
        for (kind, size) in FilterKind::ALL.into_iter().zip(sizes) {
            let Some(size) = size else { continue };
            output.row(vec![
                Value::Float(*rate),
                kind.name().into(),
                Value::Count(size.bits),
                Value::Count(size.probes.into()),
                Value::Count(size.bytes),
                size.bits_per_key.into(),
                size.expected_fpr.into(),
            ])?;
        }
    }
    Ok(output.finish()?)
}

/// The smallest filter of `keys` keys whose rate is at most `rate`; none if no filter of that kind
/// up to 64 bits per key has such a rate.
///
/// # Errors
/// If `rate` is invalid.
fn size_for(kind: FilterKind, rate: f64, keys: u64) -> Result<Option<FilterSize>, Failure> {
    match FilterSpec::for_keys(kind, keys, rate) {
        Ok(spec) => Ok(Some(spec.size(keys))),
        Err(_) if rate > 0.0 && rate < 1.0 => Ok(None),
        Err(error) => Err(Failure::Usage(error.to_string())),
    }
}

fn spec<E: ToString>(spec: Result<FilterSpec, E>) -> Result<FilterSpec, Failure> {
    spec.map_err(|error| Failure::Usage(error.to_string()))
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
        FilterKind::ALL.iter().map(|kind| row[kind.name()].as_f64().unwrap()).collect()
    }

    /// `--keys` used to have no effect with `--fpr`.
    #[test]
    fn the_bits_for_a_rate_depend_on_the_number_of_keys() {
        for (rate, keys) in [(0.01, 100), (1e-4, 1000), (1e-5, 1_000_000)] {
            for (kind, bits) in FilterKind::ALL.into_iter().zip(bits_for(rate, keys)) {
                let spec = FilterSpec::for_keys(kind, keys, rate).unwrap();
                assert_eq!(spec.size(keys).bits_per_key, bits, "{kind} {keys}");
                assert!(spec.expected_fpr(keys) <= rate, "{kind} {keys}: {bits}");
            }
        }
        assert_ne!(bits_for(1e-4, 1000), bits_for(1e-4, 1_000_000));
    }

    fn text_of(bits: Vec<f64>, fpr: Vec<f64>, keys: u64) -> String {
        let output = OutputArgs { format: Format::Table, color: ColorChoice::Never };
        let mut text = Vec::new();
        run(&RatesArgs { bits, fpr, keys, output }, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// For ten keys the output used to be 0.5 bits for 1%, and 4 bits per key, where they have
    /// 51.2.
    #[test]
    fn the_filter_of_few_keys_is_shown() {
        assert_eq!(bits_for(0.01, 10)[..3], [51.2; 3]);
        let text = text_of(vec![10.0], Vec::new(), 10);
        assert!(text.contains("51.20") && text.contains("153.6"), "{text}");
        // For many keys there is no note.
        assert!(!text_of(vec![10.0], Vec::new(), 1_000_000).contains("bits requested"));
        let text = text_of(Vec::new(), vec![0.01], 1_000_000);
        assert!(text.contains("9,593,344") && text.contains("1,199,232"), "{text}");
        for keys in [0, 1] {
            text_of(vec![0.5, 64.0], Vec::new(), keys);
            text_of(Vec::new(), vec![0.5, 1e-6], keys);
        }
    }

    /// One kind that cannot reach the rate used to suppress the answer for the others, and leave a
    /// partial document.
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
