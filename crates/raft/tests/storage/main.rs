//! The storage of a node: openraft's suite, power failures, snapshots, and errors.

#[cfg(test)]
mod faults;
#[cfg(test)]
mod node;
#[cfg(test)]
mod power;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod suite;
