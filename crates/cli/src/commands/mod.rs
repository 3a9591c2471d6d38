//! One module a command, or a family of commands: its arguments, and what it does.

pub(crate) mod bench;
pub(crate) mod demo;
