//! The style of this project, as far as a machine can check it.
//!
//! * [`source`]: the files, and Rust source without its comments and string literals.
//! * [`arrows`]: dependencies between crates.
//! * [`knots`]: modules of a crate that reach each other.
//! * [`language`]: retired words, type names that occur twice, commit subjects.
//! * [`licenses`]: licenses of dependencies, in the project's CI.
//! * [`sizes`]: long functions and long files.
//! * [`fields`]: structs with many visible fields.
//! * [`unsafe_list`]: docs/unsafe.md against the sources.
//! * [`leavings`]: leftovers: notes to oneself, dead code, dead files, dead links.
//! * [`public_enums`]: enums that could not get another variant.
//! * [`examples`]: methods of the library without an example.
//! * [`contract`]: promises without a test, and missing tests.
//! * [`planted`]: planted bugs that no longer apply, and sources that mention them.
//!
//! Exceptions to a rule are listed by name next to it; the list may only get shorter.

#[cfg(test)]
mod arrows;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod fields;
#[cfg(test)]
mod knots;
#[cfg(test)]
mod language;
#[cfg(test)]
mod leavings;
#[cfg(test)]
mod licenses;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod public_enums;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod source;
#[cfg(test)]
mod unsafe_list;
