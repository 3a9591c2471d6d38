//! Shared pieces of the test binaries.
