//! A real system whose resources run out: disk space, file handles, file sizes, address space; and
//! read-only directories.
//!
//! Each scenario runs in a process of its own, so that its limits do not affect the others:
//! [`stage`] starts it and checks its output. In each, no acknowledged write is lost, every failure
//! is an error (no panic, no abort, no signal, no hang), reads still work, and when the limit is
//! lifted the store continues, or does so after a reopen.
//!
//! * [`room`]: file systems of a few MiB that fill up.
//! * [`handles`]: no file handles left.
//! * [`sizes`]: `RLIMIT_FSIZE` and `RLIMIT_AS`.
//! * [`places`]: directories and mounts that reject writes, users without permissions.
//!
//! Small file systems are mounted in a namespace of the scenario's own (`unshare`), which the
//! system may not permit: the scenario then prints so to stderr, and counts as skipped. Those of
//! [`sizes`] are a substitute. With `TROMMEL_DEMAND=limits,users` it fails instead (`users`:
//! scenarios that another user must run).

#![cfg(target_os = "linux")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "all of it is tests, and what they open are no files of a store"
)]

/// Defines tests that are scenarios: the name, the place, and the body.
macro_rules! scenarios {
    ($($(#[$doc:meta])* $name:ident in $place:ident: $body:expr;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            let name = concat!(module_path!(), "::", stringify!($name));
            crate::stage::run(name, crate::stage::Place::$place, $body);
        }
    )*};
}

mod handles;
mod places;
mod room;
mod sizes;
mod stage;
mod store;
mod stores;
