//! Checks entries that have to arrive in key order.

use trommel_base::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use crate::error::{Error, Result};

/// Entries whose keys must strictly ascend.
#[derive(Debug, Default)]
pub(crate) struct AscendingKeys {
    last: Vec<u8>,
    /// Entries so far.
    pub(crate) count: u64,
}

impl AscendingKeys {
    /// Refuses an entry that cannot be the next.
    pub(crate) fn check(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::KeyTooLong { bytes: key.len() });
        }
        if value.len() > MAX_VALUE_BYTES {
            return Err(Error::ValueTooLong { bytes: value.len() });
        }
        if self.count > 0 && *self.last >= *key {
            return Err(Error::Unsorted { position: self.count });
        }
        Ok(())
    }

    /// Records the key of the next entry.
    pub(crate) fn accept(&mut self, key: &[u8]) {
        self.last.clear();
        self.last.extend_from_slice(key);
        self.count += 1;
    }
}
