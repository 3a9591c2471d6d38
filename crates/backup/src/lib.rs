//! Incremental backups of Trommel stores.
#![forbid(unsafe_code)]
