//! The store after a crash, a failing disk, a killed process, a second owner.
//!
//! * [`oracle`]: what was written and acknowledged, and which states that allows.
//! * [`workload`]: seeded histories on a simulated disk, every acknowledgement noted in its
//!   operation log.
//! * [`process`]: a process that can be killed between two calls to its disk.
//! * [`inspect`]: a store is opened and compared with the oracle.
//! * [`walk`]: a life of a store, crashed at every boundary between two operations.
//! * [`minimise`]: what a failure does not take is left out; [`trouble`]: of what a disk does, too.
//! * [`images`]: what a power cut may leave at every boundary between two operations.
//! * [`recovering`]: the same while a store recovers from the last one.
//! * [`faults`]: calls to the disk that fail; [`sites`]: every one of them, in every way;
//!   [`full`]: a disk that is full; [`lies`]: one that lies.
//! * [`groups`]: writers that share a sync.
//! * [`killed`]: processes killed at random on the real disk; [`killed_at`]: at every call.
//! * [`black_box`]: what the system sees of all that.
//! * [`opening`]: locks, readers, leftovers, and directories that are no stores.
//! * [`history`]: bugs that other stores have had, and what would catch them here.
//!
//! A failure prints one line that runs its case again. The largest lanes take a quarter of the
//! cases that are promised; `TROMMEL_SCALE=1` takes all, `TROMMEL_SCALE=20` twenty times as many,
//! and `TROMMEL_FIRST_SEED=n` starts from another seed.

#[cfg(test)]
mod black_box;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod full;
#[cfg(test)]
mod groups;
#[cfg(test)]
mod history;
#[cfg(test)]
mod images;
#[cfg(test)]
mod inspect;
#[cfg(test)]
mod kept;
mod killed;
#[cfg(test)]
mod killed_at;
#[cfg(test)]
mod lies;
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
mod sites;
#[cfg(test)]
mod trouble;
mod walk;
#[cfg(test)]
mod workload;

/// Stores in memory take and give back much of it, which this does in less time than the C library.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
