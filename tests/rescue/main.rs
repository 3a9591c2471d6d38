//! What users need when things went wrong: all damage listed, what is healthy still read, and what
//! can be saved saved; and never an answer that is not true.
//!
//! * [`stores`]: small stores of every shape, what was ever written to them, and ways to hurt them.
//! * [`verify`]: every damage is listed, by file, whether or not the store can be opened.
//! * [`degraded`]: an open that serves what is healthy, and errs for the rest.
//! * [`obstacles`]: what stands in the way of an open, and is no damage.
//! * [`late`]: who comes while a store is looked at, and what runs short then.
//! * [`faults`]: the same while the disk fails, at every call.
//! * [`odd`]: links, places that cannot be read, tables of newer versions.
//! * [`repair`]: whatever is hurt, each key of the new store is right or named.

#[cfg(test)]
mod degraded;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod late;
#[cfg(test)]
mod obstacles;
#[cfg(test)]
mod odd;
#[cfg(test)]
mod repair;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod verify;
