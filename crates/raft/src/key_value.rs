//! A key-value store as an application: what many clusters replicate, and an example for others.

use serde::{Deserialize, Serialize};
use trommel::{Error, KeyspaceTransaction};

use crate::snapshot_file::SnapshotFile;
use crate::state_machine::Application;

openraft::declare_raft_types!(
    /// The types of a cluster that replicates a [`KeyValue`] store. Nodes have a number, and a
    /// string as their address.
    pub KeyValueConfig:
        D = KeyValueRequest,
        R = KeyValueResponse,
        SnapshotData = SnapshotFile,
);

/// A change of a replicated key-value store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum KeyValueRequest {
    /// Sets the value of a key.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its new value.
        value: Vec<u8>,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
    /// Sets or removes the value of a key, if it has the expected one.
    CompareAndSet {
        /// The key.
        key: Vec<u8>,
        /// The value that it must have; `None` if it must have none.
        expected: Option<Vec<u8>>,
        /// Its new value; `None` removes it.
        value: Option<Vec<u8>>,
    },
}

/// The response to a [`KeyValueRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyValueResponse {
    /// Whether the change was made: always, unless it was conditional or refused.
    pub is_applied: bool,
    /// Why the request was refused, if it was: its key or its value is too long for a store.
    #[serde(default)]
    pub refusal: Option<String>,
}

/// A replicated key-value store.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyValue;

/// Makes a change, and returns whether its condition held.
fn change(state: &KeyspaceTransaction<'_>, request: KeyValueRequest) -> trommel::Result<bool> {
    match request {
        KeyValueRequest::Put { key, value } => state.put(key, value)?,
        KeyValueRequest::Delete { key } => state.delete(key)?,
        KeyValueRequest::CompareAndSet { key, expected, value } => {
            if state.get(&key)?.as_deref() != expected.as_deref() {
                return Ok(false);
            }
            match value {
                Some(value) => state.put(key, value)?,
                None => state.delete(key)?,
            }
        }
    }
    Ok(true)
}

impl Application<KeyValueConfig> for KeyValue {
    fn apply(
        &self,
        state: &KeyspaceTransaction<'_>,
        request: KeyValueRequest,
    ) -> trommel::Result<KeyValueResponse> {
        match change(state, request) {
            Ok(is_applied) => Ok(KeyValueResponse { is_applied, refusal: None }),
            // Every node refuses it: an error would stop the cluster.
            Err(error @ (Error::KeyTooLong { .. } | Error::ValueTooLong { .. })) => {
                Ok(KeyValueResponse { is_applied: false, refusal: Some(error.to_string()) })
            }
            Err(error) => Err(error),
        }
    }
}
