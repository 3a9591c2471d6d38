//! The names of files in a store's directory: `LOCK`, `CURRENT`, `OPTIONS`, `MANIFEST-n`, `n.log`,
//! `n.archive`, `n.sst`, `n.flt`, `n.spare`, with numbers of at least six digits.
//!
//! A file is the store's own only if its name is spelled exactly as the store writes it: `7.sst`,
//! `0000007.sst` and `._000007.sst` are foreign, and foreign files are never read or deleted.

use std::ffi::OsStr;

/// The largest file number, far below any overflow. Names with larger ones are foreign; 0 means
/// "none".
pub(crate) const MAX_FILE_NUMBER: u64 = (1 << 62) - 1;

/// The file that names the current manifest.
pub(crate) const CURRENT: &str = "CURRENT";
/// Renamed to `CURRENT` when complete.
pub(crate) const CURRENT_TMP: &str = "CURRENT.tmp";

/// The options that shape the store.
pub(crate) const OPTIONS: &str = "OPTIONS";
/// Renamed to `OPTIONS` when complete.
pub(crate) const OPTIONS_TMP: &str = "OPTIONS.tmp";

/// The name of manifest `number`.
pub(crate) fn manifest(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

/// The name of log `number`.
pub(crate) fn log(number: u64) -> String {
    format!("{number:06}.log")
}

/// The name of the archived log `number`.
pub(crate) fn archived_log(number: u64) -> String {
    format!("{number:06}.archive")
}

/// The name of table `number`.
pub(crate) fn table(number: u64) -> String {
    format!("{number:06}.sst")
}

/// The name of filter sidecar `number`.
pub(crate) fn filter_sidecar(number: u64) -> String {
    format!("{number:06}.flt")
}

/// The name of the former log or table `number`, kept to be recycled.
pub(crate) fn spare(number: u64) -> String {
    format!("{number:06}.spare")
}

/// A numbered file of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Numbered {
    /// `MANIFEST-n`
    Manifest(u64),
    /// `n.log`
    Log(u64),
    /// `n.archive`
    ArchivedLog(u64),
    /// `n.sst`
    Table(u64),
    /// `n.flt`
    FilterSidecar(u64),
    /// `n.spare`
    Spare(u64),
}

impl Numbered {
    /// Parses `name`, if it is that of a numbered file of a store.
    pub(crate) fn parse(name: &OsStr) -> Option<Self> {
        let name = name.to_str()?;
        let parsed = if let Some(digits) = name.strip_prefix("MANIFEST-") {
            Self::Manifest(number(digits)?)
        } else {
            let (digits, extension) = name.split_once('.')?;
            match extension {
                "log" => Self::Log(number(digits)?),
                "archive" => Self::ArchivedLog(number(digits)?),
                "sst" => Self::Table(number(digits)?),
                "flt" => Self::FilterSidecar(number(digits)?),
                "spare" => Self::Spare(number(digits)?),
                _ => return None,
            }
        };
        (parsed.name() == name).then_some(parsed)
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Manifest(number) => manifest(number),
            Self::Log(number) => log(number),
            Self::ArchivedLog(number) => archived_log(number),
            Self::Table(number) => table(number),
            Self::FilterSidecar(number) => filter_sidecar(number),
            Self::Spare(number) => spare(number),
        }
    }

    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Manifest(n)
            | Self::Log(n)
            | Self::ArchivedLog(n)
            | Self::Table(n)
            | Self::FilterSidecar(n)
            | Self::Spare(n) => n,
        }
    }
}

fn number(digits: &str) -> Option<u64> {
    digits.parse().ok().filter(|number| (1..=MAX_FILE_NUMBER).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_as_we_write_them_are_ours() {
        for number in [1, 999_999, 1_000_000, MAX_FILE_NUMBER] {
            for file in [
                Numbered::Manifest(number),
                Numbered::Log(number),
                Numbered::ArchivedLog(number),
                Numbered::Table(number),
                Numbered::FilterSidecar(number),
                Numbered::Spare(number),
            ] {
                assert_eq!(Numbered::parse(OsStr::new(&file.name())), Some(file));
            }
        }
        let foreign = [
            "7.sst",
            "000000.sst",
            "0000007.sst",
            "._000007.sst",
            "000007.sst.bak",
            "000007.SST",
            "+00007.sst",
            "MANIFEST-7",
            "MANIFEST-",
            "MANIFEST",
            ".sst",
            "CURRENT",
            "OPTIONS",
            "9223372036854775807.log",
            "99999999999999999999.log",
        ];
        for name in foreign {
            assert_eq!(Numbered::parse(OsStr::new(name)), None, "{name}");
        }
    }
}
