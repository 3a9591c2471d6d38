//! The entries of the catalog, as text: specified in `docs/format/keyspaces.md`.
//!
//! The first has the empty key, the others the names of keyspaces. A line is `name = value`; lines
//! that a reader does not know are ignored.

use trommel_base::SeqNo;

use super::KeyspaceOptions;
use crate::space::CATALOG_ID;
use crate::space::LAST_ID;

/// The first line of the catalog's first entry.
const MAGIC: &str = "trommel keyspaces 1";

/// The first entry of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CatalogHeader {
    /// The random number that the manifest records, too.
    pub(crate) salt: u64,
    /// The largest id that any keyspace has ever had.
    pub(crate) last_id: u32,
    /// The writes up to this sequence number store the keys of the default keyspace as they are. 0
    /// if that is not recorded.
    pub(crate) plain_to: SeqNo,
}

/// The entry of a keyspace.
#[derive(Debug, Clone)]
pub(crate) struct KeyspaceRecord {
    pub(crate) id: u32,
    pub(crate) options: KeyspaceOptions,
}

/// The lines of a text that are a name and a value.
fn values(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once(" = "))
}

impl CatalogHeader {
    /// The header of a catalog without keyspaces.
    pub(crate) fn new(salt: u64) -> Self {
        Self { salt, last_id: CATALOG_ID, plain_to: 0 }
    }

    pub(crate) fn encode(self) -> String {
        let Self { salt, last_id, plain_to } = self;
        format!("{MAGIC}\nsalt = {salt:016x}\nlast_id = {last_id}\nplain_to = {plain_to}\n")
    }

    /// The header with this text; `None` if the text is not a header.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.strip_prefix(MAGIC)?;
        let value = |wanted| values(text).find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let salt = u64::from_str_radix(value("salt")?, 16).ok()?;
        let last_id = value("last_id")?.parse().ok()?;
        let plain_to = value("plain_to").and_then(|text| text.parse().ok()).unwrap_or_default();
        (CATALOG_ID..=LAST_ID).contains(&last_id).then_some(Self { salt, last_id, plain_to })
    }
}

impl KeyspaceRecord {
    pub(crate) fn encode(&self) -> String {
        format!("id = {}\n{}", self.id, self.options.lines())
    }

    /// The record with this text; `None` if the text is not a record.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut record = Self { id: 0, options: KeyspaceOptions::default() };
        for (name, value) in values(std::str::from_utf8(value).ok()?) {
            match name {
                "id" => record.id = value.parse().ok()?,
                _ => record.options.set(name, value),
            }
        }
        (CATALOG_ID < record.id && record.id <= LAST_ID).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compression, Prefix};

    const PAGE: &str = include_str!("../../../../docs/format/keyspaces.md");

    #[test]
    fn entries_come_back_and_are_as_the_page_says() {
        let header = CatalogHeader { salt: 0x00c0_ffee_0000_0001, last_id: 7, plain_to: 41 };
        assert_eq!(CatalogHeader::decode(header.encode().as_bytes()), Some(header));
        assert!(PAGE.contains(&header.encode()), "{}", header.encode());
        let options = KeyspaceOptions::new()
            .filters("L0=paired:16,L1-=paired:12".parse().unwrap())
            .prefix_extractor(Prefix::until("/"))
            .compression(Compression::None)
            .merge_operator(crate::Merge::max())
            .ttl(std::time::Duration::from_secs(86_400));
        let record = KeyspaceRecord { id: 7, options: options.clone() };
        assert!(PAGE.contains(&record.encode()), "{}", record.encode());
        let again = KeyspaceRecord::decode(record.encode().as_bytes()).unwrap();
        assert!(again.id == 7 && again.options.is(&options));
        assert!(!again.options.is(&KeyspaceOptions::new()));
        let later = format!("{}colour = green\n", record.encode());
        assert!(KeyspaceRecord::decode(later.as_bytes()).unwrap().options.is(&options));
    }

    #[test]
    fn other_bytes_are_no_entries() {
        for bytes in [&b""[..], b"\xff", b"id = 1\n", b"id = 4294967295\n", b"id = x\n", b"value"] {
            assert!(KeyspaceRecord::decode(bytes).is_none(), "{}", bytes.escape_ascii());
            assert_eq!(CatalogHeader::decode(bytes), None);
        }
        let without = CatalogHeader::new(1).encode().replace("salt", "pepper");
        assert_eq!(CatalogHeader::decode(without.as_bytes()), None);
    }
}
