//! The store after a crash, with a failing disk, after a killed process, and with a second owner.
//!
//! * [`oracle`]: the written and acknowledged batches, and the states that they permit.
//! * [`workload`]: seeded histories on a simulated disk, with every acknowledgement recorded in its
//!   operation log.
//! * [`process`]: a process that can be killed between two calls to its disk.
//! * [`inspect`]: opens a store and compares it with the oracle.
//! * [`boundaries`]: a life of a store, crashed at every boundary between two operations.
//! * [`minimise`]: reduces a failing workload; [`trouble`]: and the behaviour of its disk.
//! * [`images`]: the possible results of a power failure at every boundary between two operations.
//! * [`recovering`]: the same while a store recovers from the last one.
//! * [`faults`]: calls to the disk that fail; [`sites`]: every one of them, in every way; [`full`]:
//!   a full disk; [`lies`]: a lying disk.
//! * [`feeds`]: consumers of change feeds, which go on after a power failure.
//! * [`expiry`]: entries that expire; [`keyspaces`]: batches over keyspaces, and drops.
//! * [`groups`]: writers that share a sync.
//! * [`killed`]: processes killed at random on the real disk; [`killed_at`]: at every call.
//! * [`following`]: a follower beside processes that are killed.
//! * [`black_box`]: the system calls of all that.
//! * [`opening`]: locks, readers, leftovers, and directories that are not stores.
//! * [`history`]: bugs of other stores, and the tests that would catch them here.
//!
//! A failure prints one line that runs its case again. The largest lanes run a 32nd of the
//! promised cases, those that enumerate a ninth, and the others a quarter; with `TROMMEL_LANES=ci`
//! the largest run a quarter, and the others all. `TROMMEL_SCALE=1` runs all, `TROMMEL_SCALE=20`
//! twenty times as many, and `TROMMEL_FIRST_SEED=n` starts from another seed.

#[cfg(test)]
mod black_box;
mod boundaries;
#[cfg(test)]
mod expiry;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod feeds;
#[cfg(test)]
mod following;
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
#[cfg(test)]
mod keyspaces;
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
#[cfg(test)]
mod workload;

/// Stores in memory allocate and free a lot, which is faster than with the C library's allocator.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
