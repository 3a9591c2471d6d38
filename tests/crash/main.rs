//! The store after a crash, a failing disk, a killed process, a second owner.
//!
//! * [`oracle`]: what was written and acknowledged, and which states that allows.
//! * [`workload`]: seeded histories on a simulated disk, every acknowledgement noted in its
//!   operation log.
//! * [`process`]: a process that can be killed between two calls to its disk.
//! * [`inspect`]: a store is opened and compared with the oracle.
//! * [`walk`]: a life of a store, crashed at every boundary between two operations.
//! * [`minimise`]: what a failure does not take is left out.
//! * [`images`]: what a power cut may leave at every boundary between two operations.
//! * [`recovering`]: the same while a store recovers from the last one.
//! * [`faults`]: calls to the disk that fail.
//! * [`groups`]: writers that share a sync.
//! * [`killed`]: processes killed at random on the real disk.
//! * [`opening`]: locks, readers, leftovers, and directories that are no stores.
//!
//! A failure prints one line that runs its case again. `TROMMEL_SCALE=20` makes the lanes twenty
//! times as large, `TROMMEL_FIRST_SEED=n` starts them from another seed.

#[cfg(test)]
mod faults;
#[cfg(test)]
mod groups;
#[cfg(test)]
mod images;
#[cfg(test)]
mod inspect;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod minimise;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod process;
#[cfg(test)]
mod recovering;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod walk;
#[cfg(test)]
mod watchdog;
#[cfg(test)]
mod workload;
