//! The manifest of a backup: its files and their contents. The page is `docs/format/backup.md`.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::content::sha256;
use crate::format::{Blob, FORMAT, VERSION, from_hex, is_file_name, to_hex};

/// The parts around the body of a manifest, with its hash, so that the whole is JSON.
const ENVELOPE: [&str; 3] = ["{\"sha256\":\"", "\",\"backup\":", "}\n"];

/// A backup, as described by its manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Backup {
    /// Always `trommel-backup`.
    format: String,
    /// The version of this format.
    version: u32,
    /// Its ID: backups of a repository are numbered.
    pub id: u64,
    /// The time at which it was begun, in UTC, such as `2026-11-21T09:30:00Z`.
    pub created: String,
    /// The ID of the store, in 16 hexadecimal digits.
    pub store: String,
    /// The backup of the same store with which this one was compared, if there was one. This one
    /// does not depend on it: any other backup may be deleted.
    pub parent: Option<u64>,
    /// The files of the store, sorted by name.
    pub files: Vec<BackupFile>,
}

/// One file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackupFile {
    /// Its path within the store.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// Identifies a table without reading it, if it has an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

/// The reason why the bytes of a manifest are refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Damaged(String),
    Unsupported(String),
}

fn damaged(what: impl Into<String>) -> Refused {
    Refused::Damaged(what.into())
}

impl BackupFile {
    pub(crate) fn new(path: String, blob: Blob, identity: Option<String>) -> Self {
        Self { path, bytes: blob.bytes, sha256: to_hex(&blob.sha256), identity }
    }

    /// The content. `None` only before [`Backup::decode`] has checked it.
    fn parse_blob(&self) -> Option<Blob> {
        Some(Blob { sha256: from_hex(&self.sha256)?, bytes: self.bytes })
    }

    /// The content.
    pub(crate) fn blob(&self) -> Blob {
        self.parse_blob().expect("made from a hash, or checked when it was decoded")
    }
}

impl Backup {
    pub(crate) fn new(store: u64, created: String, parent: Option<u64>) -> Self {
        let (format, store, files) = (FORMAT.into(), format!("{store:016x}"), Vec::new());
        Self { format, version: VERSION, id: 0, created, store, parent, files }
    }

    /// The bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The bytes of its manifest.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let body = serde_json::to_string_pretty(self).expect("plain texts and numbers");
        let [before, between, after] = ENVELOPE;
        let hash = to_hex(&sha256(body.as_bytes()));
        format!("{before}{hash}{between}{body}{after}").into_bytes()
    }

    /// The backup `id` whose manifest has these bytes.
    pub(crate) fn decode(id: u64, bytes: &[u8]) -> Result<Self, Refused> {
        let body = open_envelope(bytes)
            .ok_or_else(|| damaged("its contents do not match the SHA-256 at its beginning"))?;
        let broken = |error: serde_json::Error| damaged(format!("it is not a manifest: {error}"));
        let head: Head = serde_json::from_slice(body).map_err(broken)?;
        if head.format != FORMAT {
            return Err(damaged(format!("its format is {}", head.format)));
        }
        if head.version != VERSION {
            let version = head.version;
            return Err(Refused::Unsupported(format!("it has the format version {version}")));
        }
        let backup: Self = serde_json::from_slice(body).map_err(broken)?;
        backup.check(id).map_err(Refused::Damaged)?;
        Ok(backup)
    }

    fn check(&self, id: u64) -> Result<(), String> {
        if self.id != id {
            return Err(format!("it is the manifest of backup {}", self.id));
        }
        let is_id = self.store.len() == 16 && u64::from_str_radix(&self.store, 16).is_ok();
        if !is_id {
            return Err(format!("{:?} is not the ID of a store", self.store));
        }
        let mut names = HashSet::new();
        for file in &self.files {
            if !is_file_name(&file.path) || !names.insert(&file.path) {
                return Err(format!(
                    "{:?} is not a valid file name, or is listed twice",
                    file.path
                ));
            }
            if file.parse_blob().is_none() {
                return Err(format!("{:?} is not a SHA-256", file.sha256));
            }
        }
        let total = self.files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.bytes));
        total.map(drop).ok_or_else(|| "the total length of its files is too large".into())
    }
}

/// The fields common to all versions.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

/// The body, if the hash before it matches and there is nothing else.
fn open_envelope(bytes: &[u8]) -> Option<&[u8]> {
    let [before, between, after] = ENVELOPE;
    let rest = bytes.strip_prefix(before.as_bytes())?;
    let (hash, rest) = rest.split_at_checked(64)?;
    let rest = rest.strip_prefix(between.as_bytes())?;
    let body = rest.strip_suffix(after.as_bytes())?;
    let hash = from_hex(std::str::from_utf8(hash).ok()?)?;
    (hash == sha256(body)).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Backup {
        let blob = Blob { sha256: sha256(b"abc"), bytes: 3 };
        let files = vec![
            BackupFile::new("000007.sst".into(), blob, Some("0123".into())),
            BackupFile::new("CURRENT".into(), blob, None),
        ];
        Backup { id: 3, files, ..Backup::new(0x1234, crate::clock::now(), Some(2)) }
    }

    /// The bytes of `backup` after `change`, with a valid hash.
    fn forged(change: impl FnOnce(&mut Backup)) -> Vec<u8> {
        let mut backup = example();
        change(&mut backup);
        backup.encode()
    }

    #[test]
    fn a_manifest_is_json_and_reads_back() {
        let backup = example();
        let bytes = backup.encode();
        assert_eq!(Backup::decode(3, &bytes), Ok(backup));
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(json["backup"]["files"][0]["path"], "000007.sst");
        assert_eq!(json["sha256"].as_str().unwrap().len(), 64);
    }

    #[test]
    fn flips_and_cuts_are_detected() {
        let bytes = example().encode();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                let refused = Backup::decode(3, &bytes);
                assert!(matches!(refused, Err(Refused::Damaged(_))), "byte {at}, bit {bit}");
            }
            assert!(Backup::decode(3, &bytes[..at]).is_err(), "cut at {at}");
        }
        assert!(Backup::decode(3, &[&bytes[..], b"\n"].concat()).is_err());
    }

    #[test]
    fn a_valid_hash_does_not_validate_a_manifest() {
        assert!(matches!(Backup::decode(4, &example().encode()), Err(Refused::Damaged(_))));
        let version = Backup::decode(3, &forged(|backup| backup.version = 2));
        assert!(matches!(version, Err(Refused::Unsupported(_))), "{version:?}");
        let wrong: [fn(&mut Backup); 7] = [
            |backup| backup.format = "tar".into(),
            |backup| backup.store = "12".into(),
            |backup| backup.files[0].path = "../000007.sst".into(),
            |backup| backup.files[0].path = "CURRENT".into(),
            |backup| backup.files[0].path = String::new(),
            |backup| backup.files[0].sha256 = "AB".repeat(32),
            |backup| backup.files[0].bytes = u64::MAX,
        ];
        for (number, change) in wrong.into_iter().enumerate() {
            let refused = Backup::decode(3, &forged(change));
            assert!(matches!(refused, Err(Refused::Damaged(_))), "{number}: {refused:?}");
        }
    }
}
