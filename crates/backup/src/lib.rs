//! Incremental backups of Trommel stores, to directories and object stores.
//!
//! A [`Repository`] holds backups. Their contents, the immutable files of a checkpoint, are stored
//! once under a name made of SHA-256 and length; a backup is a manifest that lists them, written
//! last. So a backup costs the space of its new contents, each can be deleted without affecting the
//! others, and an interrupted one leaves only unreferenced contents.
//!
//! ```
//! use trommel::{Db, Options};
//! use trommel_backup::{Repository, target_at};
//! # let scratch = tempfile::tempdir().unwrap();
//! # let (store, backups) = (scratch.path().join("store"), scratch.path().join("backups"));
//! # let restored = scratch.path().join("restored");
//! # let backups = backups.to_str().unwrap();
//! let db = Db::open(&store, Options::default())?;
//! db.put("apple", "red")?;
//!
//! // `backups` is a path, or with the feature `object-store` also `s3://bucket/prefix`.
//! let repository = Repository::open_or_create(target_at(backups)?)?;
//! let first = repository.create(&db, &())?;
//! db.put("pear", "green")?;
//! let second = repository.create(&db, &())?;
//! assert_eq!((first.backup.id, second.backup.id), (1, 2));
//! assert!(second.backup.bytes() > second.new_bytes, "what was there is not stored again");
//!
//! assert!(repository.verify(None, &())?.damages.is_empty());
//! repository.restore(1, &restored, &())?;
//! let old = Db::open(&restored, Options::default())?;
//! assert_eq!(old.get("apple")?.unwrap(), b"red"[..]);
//! assert_eq!(old.get("pear")?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//! * A backup that [`Repository::create`] has returned is durable and complete: every content that
//!   it needs was durable before its manifest was written. A crash at any moment leaves the
//!   existing backups, and possibly unreferenced contents, which [`Repository::purge`] removes.
//! * [`Repository::verify`] reads every byte back. [`Repository::restore`] checks every content
//!   against its hash while it writes it, then verifies the store, and removes everything if either
//!   fails.
//! * A content that is already stored is not read again for a backup: a table is identified by the
//!   random ID that it got when it was written (see [`Db::table_ids`](trommel::Db::table_ids)). So
//!   a backup does not detect corruption of a table that is already stored;
//!   [`Db::verify`](trommel::Db::verify) does, and the backup has the intact copy.
//! * In a directory one writer works at a time, under a lock that the system releases when the
//!   writer dies; network file systems may not honour it. In an object store several backups may be
//!   created at once, and leases exclude deletions; see [`Target`] and `docs/format/backup.md`,
//!   which has the layout of a repository and the result of each failure.
//!
//! # Features
//! `object-store`: S3 and compatible services, through the crate `object_store` with a private
//! runtime; all calls block. It is tested against a real server with
//! `cargo test -p trommel-backup --features object-store`, which starts moto (from the `PATH`, or
//! from PyPI in an environment below `target`), and prints a note if that is not possible.
#![forbid(unsafe_code)]

mod clock;
mod collect;
mod content;
mod create;
mod directory;
mod error;
mod format;
mod location;
mod manifest;
#[cfg(feature = "object-store")]
mod objects;
mod progress;
mod repository;
mod restore;
mod scratch;
mod target;
mod verify;

pub use collect::Deleted;
pub use create::Created;
pub use directory::Directory;
pub use error::{Damage, Error, Result};
pub use location::{refuse_nested, target_at};
pub use manifest::{Backup, BackupFile};
#[cfg(feature = "object-store")]
pub use objects::Objects;
pub use progress::Progress;
pub use repository::{Listed, Repository};
pub use restore::Restored;
pub use target::{Hold, Purpose, Target};
pub use verify::Verified;
