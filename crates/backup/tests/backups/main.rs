//! Tests of the public API of backups.
//!
//! * [`stores`]: stores to back up, and their entries.
//! * [`targets`]: the conformance suite of targets, run for each kind.
//! * [`cycles`]: backups created, listed, verified, restored and deleted, on each kind.
//! * [`damage`]: damage to a repository.
//! * [`crashes`]: power cuts and failing disk calls.
//! * [`expiry`]: entries that expire.
//! * [`paths`]: the process changed its directory since the store was opened.
//! * [`s3`]: the same against a real server, with the feature `object-store`.
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test may")]

mod crashes;
mod cycles;
mod damage;
mod expiry;
mod paths;
#[cfg(feature = "object-store")]
mod s3;
mod stores;
mod targets;
