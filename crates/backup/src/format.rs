//! The names and constants of a repository, tied to `docs/format/backup.md` by a test.

use std::fmt;

/// The format name in a repository's marker.
pub(crate) const FORMAT: &str = "trommel-backup";
/// The version of repositories and manifests that this crate writes, and the newest it reads.
pub(crate) const VERSION: u32 = 1;
/// The object that makes a place a repository.
pub(crate) const MARKER: &str = "REPOSITORY";
/// The folder of manifests.
pub(crate) const BACKUPS: &str = "backups";
/// The folder of contents.
pub(crate) const BLOBS: &str = "blobs";
/// The folder of unfinished files, in a directory.
pub(crate) const UNFINISHED: &str = "tmp";
/// The file that a writer locks, in a directory.
pub(crate) const LOCK: &str = "LOCK";
/// The folder of leases, in an object store.
#[cfg(any(feature = "object-store", test))]
pub(crate) const LEASES: &str = "leases";
/// The limit on the length of a marker, in bytes, exclusive.
pub(crate) const MARKER_LIMIT: u64 = 4 << 10;
/// The limit on the length of a manifest, in bytes, exclusive: room for a million files.
pub(crate) const MANIFEST_LIMIT: u64 = 256 << 20;
/// The characters of file names of a backup, in addition to ASCII letters and digits.
pub(crate) const NAME_MARKS: &str = "._-";
/// The maximum length of a file name of a backup, in bytes.
pub(crate) const NAME_LIMIT: usize = 255;

/// The name of the manifest of backup `id`.
pub(crate) fn manifest_name(id: u64) -> String {
    format!("{BACKUPS}/{id:010}.json")
}

/// The ID of the backup whose manifest has this name within its folder, if it is a valid one.
pub(crate) fn parse_manifest_name(name: &str) -> Option<u64> {
    let id = name.strip_suffix(".json")?.parse().ok()?;
    (id > 0 && manifest_name(id) == format!("{BACKUPS}/{name}")).then_some(id)
}

/// The name of an object while it is written, in the folder [`UNFINISHED`].
pub(crate) fn unfinished_name(name: &str) -> String {
    name.replace('/', "-")
}

/// Whether [`unfinished_name`] can return `name`.
pub(crate) fn is_unfinished_name(name: &str) -> bool {
    let within = |folder: &str| name.strip_prefix(folder)?.strip_prefix('-');
    name == MARKER
        || within(BLOBS).is_some_and(|blob| Blob::parse(blob).is_some())
        || within(BACKUPS).is_some_and(|manifest| parse_manifest_name(manifest).is_some())
}

/// Whether `name` is a name that only a store's files have. [`is_file_name`] decides which files a
/// backup may hold, and this which files may be removed.
pub(crate) fn is_store_file(name: &str) -> bool {
    let is_number = |digits: &str| digits.len() >= 6 && digits.bytes().all(|c| c.is_ascii_digit());
    let is_numbered = match (name.strip_prefix("MANIFEST-"), name.split_once('.')) {
        (Some(digits), _) => is_number(digits),
        (None, Some((digits, "sst" | "log" | "flt"))) => is_number(digits),
        _ => false,
    };
    is_numbered || [LOCK, "CURRENT", "CURRENT.tmp", "OPTIONS", "OPTIONS.tmp"].contains(&name)
}

/// Identifies a content by its hash and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Blob {
    pub(crate) sha256: [u8; 32],
    pub(crate) bytes: u64,
}

impl Blob {
    /// The name of its object.
    pub(crate) fn name(&self) -> String {
        format!("{BLOBS}/{self}")
    }

    /// The blob with this name within its folder, if it is a valid one.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (hash, bytes) = name.split_once('-')?;
        let blob = Self { sha256: from_hex(hash)?, bytes: bytes.parse().ok()? };
        (blob.to_string() == name).then_some(blob)
    }
}

impl fmt::Display for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", to_hex(&self.sha256), self.bytes)
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The inverse of [`to_hex`], for exactly 32 bytes in exactly that form.
pub(crate) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if !text.is_ascii() || text.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    (to_hex(&bytes) == text).then_some(bytes)
}

/// Whether `name` is a valid file name of a backup: one that cannot leave its directory on any
/// system.
pub(crate) fn is_file_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || NAME_MARKS.contains(c);
    (1..=NAME_LIMIT).contains(&name.len()) && !name.starts_with('.') && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_only_as_they_are_written() {
        assert_eq!(manifest_name(7), "backups/0000000007.json");
        assert_eq!(parse_manifest_name("0000000007.json"), Some(7));
        for name in ["7.json", "0000000000.json", "00000000007.json", "+000000007.json", "x"] {
            assert_eq!(parse_manifest_name(name), None, "{name}");
        }
        let blob = Blob { sha256: [0xab; 32], bytes: 12 };
        assert_eq!(Blob::parse(&blob.to_string()), Some(blob));
        assert_eq!(Blob::parse(&blob.to_string().to_uppercase()), None);
        for suffix in ["", "-", "-012", "-+12", "-12 ", "-x"] {
            assert_eq!(Blob::parse(&format!("{}{suffix}", "ab".repeat(32))), None, "{suffix}");
        }
        assert_eq!(from_hex(&"é".repeat(32)), None);
        assert_eq!(from_hex(&"+1".repeat(32)), None);
    }

    const PAGE: &str = include_str!("../../../docs/format/backup.md");

    #[test]
    fn the_page_says_what_the_constants_say() {
        for what in [
            format!("format version **{VERSION}**"),
            format!("{{\"format\":\"{FORMAT}\",\"version\":{VERSION}}}"),
            format!("\n{MARKER} "),
            format!("\n{} ", manifest_name(1)),
            format!("\n{BLOBS}/SHA256-LENGTH "),
            format!("\n{LOCK} "),
            format!("\n{UNFINISHED}/ "),
            format!("\n{LEASES}/PURPOSE-NUMBER "),
            format!("shorter than {MARKER_LIMIT} bytes"),
            format!("shorter than {MANIFEST_LIMIT} bytes"),
            format!("1 to {NAME_LIMIT} bytes of ASCII letters, digits and `{NAME_MARKS}`"),
            format!("`{}`", crate::scratch::PREFIX),
        ] {
            assert!(PAGE.contains(&what), "docs/format/backup.md does not say \"{what}\"");
        }
    }

    /// The fields of a written manifest are those of the page's tables.
    #[test]
    fn the_page_has_the_fields_of_a_manifest() {
        let mut backup = crate::Backup::new(1, crate::clock::now(), None);
        let blob = Blob { sha256: [0; 32], bytes: 0 };
        backup.files = vec![crate::BackupFile::new("a".into(), blob, Some(String::new()))];
        let json = serde_json::to_value(&backup).unwrap();
        let fields = json.as_object().unwrap().keys();
        let fields: Vec<&str> = fields
            .chain(json["files"][0].as_object().unwrap().keys())
            .map(String::as_str)
            .collect();
        let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<Vec<_>>(), fields);
    }

    #[test]
    fn only_our_own_names_are_removed() {
        let blob = Blob { sha256: [1; 32], bytes: 5 };
        for name in [MARKER, &manifest_name(3), &blob.name()] {
            assert!(is_unfinished_name(&unfinished_name(name)), "{name}");
        }
        for name in ["", "letter.txt", "blobs", "blobs-", "backups-3.json", "LOCK", ".bashrc"] {
            assert!(!is_unfinished_name(name), "{name}");
        }
        for name in
            ["LOCK", "CURRENT", "CURRENT.tmp", "MANIFEST-000007", "000012.sst", "1000000.log"]
        {
            assert!(is_store_file(name), "{name}");
        }
        for name in ["", "a.sst", "12.sst", "letter.txt", "MANIFEST-", "000012.txt", ".sst"] {
            assert!(!is_store_file(name), "{name}");
        }
    }

    #[test]
    fn a_file_name_stays_in_its_directory() {
        for name in ["CURRENT", "MANIFEST-000007", "000012.sst"] {
            assert!(is_file_name(name), "{name}");
        }
        let long = "a".repeat(256);
        for name in ["", ".", "..", "../x", "a/b", "a\\b", "/x", ".hidden", "é", "a b", &long] {
            assert!(!is_file_name(name), "{name}");
        }
    }
}
