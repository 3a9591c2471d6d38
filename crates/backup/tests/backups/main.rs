//! Backups as their users meet them.
//!
//! * [`stores`]: stores to back up, and what is in them.
//! * [`targets`]: what every place of a repository promises, asked of each kind.
//! * [`cycles`]: backups made, listed, verified, restored and deleted, on each kind.
//! * [`damage`]: what damage to a repository leads to.
//! * [`crashes`]: the power is cut, and calls to the disk fail.
//! * [`paths`]: the process has gone elsewhere since the store was opened.
//! * [`s3`]: the same against a real server, with the feature `object-store`.
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test may")]

mod crashes;
mod cycles;
mod damage;
mod paths;
#[cfg(feature = "object-store")]
mod s3;
mod stores;
mod targets;
