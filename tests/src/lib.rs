//! Shared code of the test binaries, and the Rust examples of the book, compiled and run as doc
//! tests.

pub mod counters;
pub mod planted;
pub mod scratch;
pub mod settings;
pub mod watchdog;

/// The pages with Rust code; a test of the program compares this list with the book.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../docs/book/quick-start.md")]
    struct QuickStart;
    #[doc = include_str!("../../docs/book/configuration.md")]
    struct Configuration;
    #[doc = include_str!("../../docs/book/deleting.md")]
    struct Deleting;
    #[doc = include_str!("../../docs/book/keyspaces.md")]
    struct Keyspaces;
    #[doc = include_str!("../../docs/book/errors.md")]
    struct Errors;
    #[doc = include_str!("../../docs/book/following.md")]
    struct Following;
    #[doc = include_str!("../../docs/book/changes.md")]
    struct Changing;
    #[doc = include_str!("../../docs/book/isolation.md")]
    struct Isolation;
    #[doc = include_str!("../../docs/book/merge.md")]
    struct Merging;
    #[doc = include_str!("../../docs/book/operations.md")]
    struct Operations;
    #[doc = include_str!("../../docs/book/watching.md")]
    struct Watching;
    #[doc = include_str!("../../docs/book/program/replay.md")]
    struct Replay;
}
