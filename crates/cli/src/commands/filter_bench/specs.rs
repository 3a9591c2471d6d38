//! The filters of a sweep: lists of kinds and of bits.
//!
//! ```text
//! filters = part { "," part }
//! part    = kind ":" bits | kind ":fpr=" rate | bits      (bits alone: of the kind before)
//! kind    = a kind of the specs, or "all": every kind
//! bits    = number | number ".." number [ "/" step ]      (both ends inclusive, a multiple of the
//!                                                         step apart; it is 4 by default, or 1 if
//!                                                         4 does not reach the end)
//! ```
//!
//! `--impl` and `--bits-per-key` are filter_bench's: every kind of the former with all bits of the
//! latter.

use trommel::filter::{FilterKind, FilterSpec};
use trommel_harness::units::parse_decimal;

/// Default steps of a range: the first that reaches its end.
const STEPS: [f64; 2] = [4.0, 1.0];
/// Maximum number of values in one range.
const LONGEST: f64 = 1000.0;

/// Numbers of bits per key, from a number or a range.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bits(pub(super) Vec<f64>);

pub(super) fn bits(text: &str) -> Result<Bits, String> {
    let number = |text: &str| {
        let number = parse_decimal(text).ok();
        number.ok_or_else(|| {
            format!(
                "`{text}` is not a number of bits per key: write 10, or a range such as 8..40/2"
            )
        })
    };
    let Some((first, rest)) = text.split_once("..") else { return Ok(Bits(vec![number(text)?])) };
    let (last, step) = rest.split_once('/').unwrap_or((rest, ""));
    let given = if step.is_empty() { None } else { Some(number(step)?) };
    let (first, last) = (number(first)?, number(last)?);
    if !(first <= last && given.is_none_or(|step| step > 0.0)) {
        return Err(format!(
            "`{text}` is an empty range: write it in ascending order, as in 8..40/2"
        ));
    }
    let comes_to_the_end = |step: &f64| {
        let steps = (last - first) / step;
        (steps - steps.round()).abs() < 1e-6
    };
    let tried = given.map_or(STEPS.to_vec(), |step| vec![step]);
    let step = tried.iter().copied().find(comes_to_the_end).ok_or_else(|| {
        let step = given.map_or("4 or 1".to_owned(), |step| step.to_string());
        format!(
            "`{text}` does not reach {last} in steps of {step}: give a step that does, as in \
                 8..11/0.5"
        )
    })?;
    let steps = ((last - first) / step).round();
    if steps >= LONGEST {
        return Err(format!("`{text}` has more than {LONGEST} numbers: give a larger step"));
    }
    // Rounded as in specs, so that 0.1 and 0.2 make 0.3.
    let nth = |nth: u32| ((first + f64::from(nth) * step) * 1000.0).round() / 1000.0;
    Ok(Bits((0..=steps as u32).map(nth).collect()))
}

/// Filters of one `--filters`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Specs(pub(super) Vec<FilterSpec>);

pub(super) fn specs(text: &str) -> Result<Specs, String> {
    let mut all = Vec::new();
    let mut kind = "";
    for part in text.split(',') {
        let size = match part.split_once(':') {
            Some((word, size)) => {
                kind = word;
                size
            }
            // Without a kind before it, it is a kind itself, or invalid: the spec's parser reports
            // the error.
            None if kind.is_empty() => {
                all.push(spec(part)?);
                continue;
            }
            None => part,
        };
        let kinds: Vec<&str> = match kind {
            "all" => FilterKind::ALL.map(FilterKind::name).to_vec(),
            one => vec![one],
        };
        for kind in kinds {
            if size.contains("..") {
                // Report an unknown kind before parsing the range.
                spec(&format!("{kind}:10"))?;
                for bits in bits(size)?.0 {
                    all.push(spec(&format!("{kind}:{bits}"))?);
                }
            } else {
                all.push(spec(&format!("{kind}:{size}"))?);
            }
        }
    }
    Ok(Specs(all))
}

fn spec(text: &str) -> Result<FilterSpec, String> {
    text.parse().map_err(|error: trommel::filter::ParseSpecError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<String, String> {
        let specs = specs(text)?.0;
        Ok(specs.iter().map(FilterSpec::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn lists_and_ranges_are_understood() {
        for (text, expected) in [
            ("paired:23.4", "paired:23.4"),
            (
                "paired:8..40",
                "paired:8 paired:12 paired:16 paired:20 paired:24 paired:28 paired:32 \
              paired:36 paired:40",
            ),
            ("ribbon:1..2/0.5", "ribbon:1 ribbon:1.5 ribbon:2"),
            ("standard:0.9..1.2/0.1", "standard:0.9 standard:1 standard:1.1 standard:1.2"),
            (
                "paired:8,10..12/2,blocked:fpr=1e-2,12",
                "paired:8 paired:10 paired:12 \
              blocked:fpr=1e-2 blocked:12",
            ),
            ("all:10", "standard:10 blocked:10 paired:10 ribbon:10 fuse:10"),
            ("bloom:9..10", "blocked:9 blocked:10"),
            // Only the first used to be measured, silently.
            ("paired:8..11", "paired:8 paired:9 paired:10 paired:11"),
            ("paired:8..11/1.5", "paired:8 paired:9.5 paired:11"),
        ] {
            assert_eq!(all(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, wants) in [
            ("paired", "needs a number of bits"),
            ("10", "`10`"),
            ("cuckoo:8..10", "cuckoo"),
            ("paired:40..8", "in ascending order"),
            ("paired:8..40/0", "in ascending order"),
            ("paired:8..40/-1", "in ascending order"),
            ("paired:8..11/2", "does not reach 11"),
            ("paired:8..11.5", "does not reach 11.5"),
            ("paired:8..x", "`x` is not a number"),
            ("paired:8..NaN", "`NaN` is not a number"),
            ("paired:1..64/0.01", "more than 1000"),
            ("paired:60..70/1", "out of range"),
            ("paired:", "neither a number"),
        ] {
            let error = all(text).unwrap_err();
            assert!(error.contains(wants), "{text}: {error}");
        }
    }
}
