//! A real system that runs out: of room on the disk, of file handles, of what a file may be large,
//! of address space; and directories that may not be written.
//!
//! Each scenario runs in a process of its own, so that its limits do not reach the others:
//! [`stage`] starts it and judges what it says. In each, nothing that was acknowledged is lost,
//! every refusal is an error with words (no panic, no abort, no signal, no hang), reads go on, and
//! when the limit is lifted the store goes on, or does so once it is opened again.
//!
//! * [`room`]: file systems of a few MiB that fill up.
//! * [`handles`]: no file handle left.
//! * [`sizes`]: `RLIMIT_FSIZE` and `RLIMIT_AS`.
//! * [`places`]: directories and mounts that refuse writes, users without rights.
//!
//! Small file systems are mounted in a namespace of the scenario's own (`unshare`), which the
//! system may refuse: the scenario then says so on stderr, and counts as skipped. Those of
//! [`sizes`] stand in for it. With `TROMMEL_DEMAND=limits,users` it fails instead (`users`: what
//! another user must run).

#![cfg(target_os = "linux")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "all of it is tests, and what they open are no files of a store"
)]

/// Tests, each of which is a scenario: its name, where it takes place, and what it does there.
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
