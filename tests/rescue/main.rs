//! Recovery from corruption: all corruption is listed, intact entries are still readable,
//! everything recoverable is saved; and no answer is ever wrong.
//!
//! * [`stores`]: small stores of every shape, their history, and ways to corrupt them.
//! * [`verify`]: all corruption is listed, by file, whether or not the store can be opened.
//! * [`degraded`]: an open that serves what is intact, and returns errors for the rest.
//! * [`obstacles`]: obstacles to an open that are not corruption.
//! * [`late`]: other processes, and shortages, during a verification.
//! * [`faults`]: the same while the disk fails, at every call.
//! * [`odd`]: links, unreadable sectors, tables of newer versions.
//! * [`ranges`]: deleted ranges, wherever their tombstones are.
//! * [`repair`]: after any corruption, each key of the new store is right or named.

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
mod ranges;
#[cfg(test)]
mod repair;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod verify;
