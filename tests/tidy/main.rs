//! The style of this project, as far as a machine can see it.
//!
//! * [`source`]: the files, and Rust source without its comments and texts.
//! * [`arrows`]: which crate may know which.
//! * [`knots`]: modules of a crate that reach each other.
//! * [`sizes`]: long functions and long files.
//! * [`unsafe_list`]: docs/unsafe.md beside the sources.
//! * [`leavings`]: what was left lying about: notes to oneself, dead code, dead files, dead links.
//! * [`public_enums`]: enums that could not get another variant.
//! * [`examples`]: methods of the library that nobody shows in use.
//! * [`contract`]: promises without a test, and tests that are not there.
//!
//! A rule that must give way is listed by name beside it; the list may only get shorter.

#[cfg(test)]
mod arrows;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod knots;
#[cfg(test)]
mod leavings;
#[cfg(test)]
mod public_enums;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod source;
#[cfg(test)]
mod unsafe_list;
