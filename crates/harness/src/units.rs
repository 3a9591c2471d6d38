//! Parses and formats sizes, counts and times for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The text is not a size or a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseUnitError {
    text: String,
    wants: &'static str,
}

impl std::fmt::Display for ParseUnitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\" is not {}", self.text, self.wants)
    }
}

impl std::error::Error for ParseUnitError {}

/// A number of bytes: `4096`, `64K`, `64M`, `64MB`, `1GiB`, `1.5g`; all units are powers of 1024.
///
/// # Errors
/// If the text is something else, or does not fit in 64 bits.
///
/// ```
/// use trommel_harness::units::parse_bytes;
/// assert_eq!(parse_bytes("64M"), Ok(64 << 20));
/// assert_eq!(parse_bytes("1GiB"), Ok(1 << 30));
/// assert!(parse_bytes("64 parsecs").is_err());
/// ```
pub fn parse_bytes(text: &str) -> Result<u64, ParseUnitError> {
    let wants = "a size: write bytes, or a number with K, M, G or T, such as 64M or 1GiB";
    let (number, unit) = split(text);
    let unit = unit.to_ascii_lowercase();
    let power = match unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit) {
        "" if unit != "ib" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(ParseUnitError { text: text.into(), wants }),
    };
    scaled(number, 1 << (10 * power)).ok_or_else(|| ParseUnitError { text: text.into(), wants })
}

/// A number of things: `1000000`, `1_000_000`, `1,000,000`, `500k`, `1M`, `2.5M`, `1e9`; units are
/// powers of 1000. Commas may only separate thousands.
///
/// # Errors
/// If the text is something else, is not an integer, or does not fit in 64 bits.
pub fn parse_count(text: &str) -> Result<u64, ParseUnitError> {
    let wants = "a count: write digits, or a number with K, M or G, such as 500K or 20M";
    let (number, unit) = split(text);
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        _ => exponent(unit).ok_or_else(|| ParseUnitError { text: text.into(), wants })?,
    };
    counted(&number.replace('_', ""), factor)
        .ok_or_else(|| ParseUnitError { text: text.into(), wants })
}

/// A time: `10s`, `250ms`, `5m`, `1.5h`, `3d`, or a number of seconds.
///
/// # Errors
/// If the text is something else, or longer than 10,000 days.
///
/// ```
/// use std::time::Duration;
/// use trommel_harness::units::parse_time;
/// assert_eq!(parse_time("1.5h"), Ok(Duration::from_secs(5400)));
/// assert_eq!(parse_time("20"), Ok(Duration::from_secs(20)));
/// assert!(parse_time("soon").is_err());
/// ```
pub fn parse_time(text: &str) -> Result<Duration, ParseUnitError> {
    let wants = "a time: write seconds, or a number with ms, s, m, h or d, such as 10s or 72h";
    let failed = || ParseUnitError { text: text.into(), wants };
    let (number, unit) = split(text);
    let factor = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(failed()),
    };
    let seconds = number.parse::<f64>().map_err(|_| failed())? * factor;
    let is_sane = (0.0..=10_000.0 * 86_400.0).contains(&seconds);
    if is_sane { Ok(Duration::from_secs_f64(seconds)) } else { Err(failed()) }
}

/// A decimal number: `8`, `8.5`, `-1`, `1e-5`.
///
/// # Errors
/// If the text is something else, or too large for a number.
pub fn parse_decimal(text: &str) -> Result<f64, ParseUnitError> {
    let wants = "a number: write digits, such as 8, 8.5 or 1e-5";
    // `inf` and `nan` are numbers to Rust, but not on a command line.
    let is_plain = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    let number = text.trim().chars().all(is_plain).then(|| text.trim().parse::<f64>().ok());
    let number = number.flatten().filter(|number| number.is_finite());
    number.ok_or_else(|| ParseUnitError { text: text.into(), wants })
}

/// A fraction from 0 to 1: `0.9`, `90%` or `9/10`.
///
/// # Errors
/// If the text is something else, or not from 0 to 1.
///
/// ```
/// use trommel_harness::units::parse_part;
/// assert_eq!([parse_part("0.25"), parse_part("25%"), parse_part("1/4")], [const { Ok(0.25) }; 3]);
/// assert!(parse_part("25").is_err());
/// ```
pub fn parse_part(text: &str) -> Result<f64, ParseUnitError> {
    let wants = "a fraction from 0 to 1: write 0.9, 90% or 9/10";
    let part = match (text.split_once('/'), text.strip_suffix('%')) {
        (Some((over, under)), _) => {
            let numbers = parse_decimal(over).ok().zip(parse_decimal(under).ok());
            numbers.map(|(over, under)| over / under)
        }
        (None, Some(percent)) => parse_decimal(percent).ok().map(|percent| percent / 100.0),
        (None, None) => parse_decimal(text).ok(),
    };
    let part = part.filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| ParseUnitError { text: text.into(), wants })
}

/// A percentage: `5`, `5%` or `0.5%`, as the number before the sign.
///
/// # Errors
/// If the text is something else, or negative.
pub fn parse_percent(text: &str) -> Result<f64, ParseUnitError> {
    let wants = "a percentage: write 5 or 5%";
    let number = parse_decimal(text.strip_suffix('%').unwrap_or(text)).ok();
    let number = number.filter(|number| *number >= 0.0);
    number.ok_or_else(|| ParseUnitError { text: text.into(), wants })
}

/// The number at the start of a text, and the rest.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_' | ','))
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// The power of ten in `e9`.
fn exponent(unit: &str) -> Option<u64> {
    let digits = unit.strip_prefix(['e', 'E'])?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    10_u64.checked_pow(digits.parse().ok().filter(|_| is_plain)?)
}

/// `number` times `factor`, a power of ten, if that is an integer.
fn counted(number: &str, factor: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok() };
    let part = part.trim_end_matches('0');
    let scale = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let parts = factor.is_multiple_of(scale).then_some(factor / scale)?;
    let whole = digits(&ungrouped(whole)?)?;
    whole.checked_mul(factor)?.checked_add(digits(part)?.checked_mul(parts)?)
}

/// The digits without their commas, if these separate groups of three.
fn ungrouped(digits: &str) -> Option<String> {
    let groups: Vec<&str> = digits.split(',').collect();
    let are_thousands =
        (1..=3).contains(&groups[0].len()) && groups[1..].iter().all(|group| group.len() == 3);
    (groups.len() == 1 || are_thousands).then(|| groups.concat())
}

/// `number` times `factor`; exact for integers.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let value = number.parse::<f64>().ok()? * factor as f64;
    (value < u64::MAX as f64).then_some(value.round() as u64)
}

/// An integer with commas between thousands.
///
/// ```
/// assert_eq!(trommel_harness::units::grouped(1_234_567), "1,234,567");
/// ```
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in a suitable unit, to a tenth.
///
/// ```
/// assert_eq!(trommel_harness::units::bytes(3 << 19), "1.5 MiB");
/// assert_eq!(trommel_harness::units::bytes(4 << 20), "4 MiB");
/// ```
pub fn bytes(number: u64) -> String {
    let mut value = number as f64;
    if number < 1024 {
        return format!("{number} B");
    }
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        // A value that would display as 1024.0 is displayed as 1.0 of the next unit.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    let text = format!("{value:.1}");
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

/// A duration in seconds, or in minutes and seconds.
pub fn duration(time: Duration) -> String {
    match time.as_secs() {
        whole @ 60.. => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// A time in UTC to the second, such as `2026-11-21T09:30:00Z`. Times before 1970 are clamped to
/// its beginning.
pub fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_every_usual_form() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("64k", 64 << 10),
            ("64KB", 64 << 10),
            ("64KiB", 64 << 10),
            ("64M", 64 << 20),
            ("64 MiB", 64 << 20),
            ("1g", 1 << 30),
            ("1.5GiB", 3 << 29),
            ("2T", 2 << 40),
            ("16777215T", 16_777_215 << 40),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1e6", "64X", "1.2.3M", "ib", "4ib", "16777216T", "1,5M"] {
            let error = parse_bytes(text).unwrap_err().to_string();
            assert!(error.contains("such as 64M"), "{text}: {error}");
        }
    }

    #[test]
    fn counts_are_decimal() {
        for (text, count) in [
            ("1000000", 1_000_000),
            ("1_000_000", 1_000_000),
            ("1,000,000", 1_000_000),
            ("500k", 500_000),
            ("20M", 20_000_000),
            ("2.5M", 2_500_000),
            ("1e9", 1_000_000_000),
            ("2.5E3", 2500),
            ("1,500K", 1_500_000),
            ("12,345.6k", 12_345_600),
            (".5M", 500_000),
            ("1.0", 1),
            ("1.005K", 1005),
            ("0.123456789g", 123_456_789),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for text in ["", "k", "-1", "1MiB", "20000000000G", "x1", "1e", "1e+9", "1e30", "e9"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
        // Commas used to be ignored anywhere, and fractions were rounded.
        for text in ["1,5M", ",100", "1,", "1,00", "1,0000", "1234,567", "1,,000", "1.000,000"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
        for text in ["1.5", "1.5e0", "1.0005K", ".", "_", "1.2.3M", "18446744073709551616"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_shown_readably() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (20_000_000, "20,000,000")]
        {
            assert_eq!(grouped(number), text);
        }
        for (number, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), ((1 << 20) - 1, "1 MiB")]
        {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(duration(Duration::from_millis(1234)), "1.2 s");
        assert_eq!(duration(Duration::from_secs(83)), "1 min 23 s");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_253_400, "2026-11-21T09:30:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
