//! What users need when things went wrong: all damage listed, what is healthy still read, and what can
//! be saved saved; and never an answer that is not true.
//!
//! * [`stores`]: small stores of every shape, what was ever written to them, and ways to hurt them.
//! * [`verify`]: every damage is listed, by file, whether or not the store can be opened.
//! * [`repair`]: whatever is hurt, each key of the new store is right or named.

#[cfg(test)]
mod repair;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod verify;
