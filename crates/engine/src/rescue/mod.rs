//! What is left of a damaged store: which manifest can be believed, which parts of which tables can
//! be read, and what nobody can know any more.
//!
//! * [`manifest`]: the manifest to go by where `CURRENT`, or what it names, is not what it was.
//! * [`table`]: everything that is wrong with one table, with the keys that it costs.
//! * [`logs`]: what the logs still give, and what stands behind their damage.
//! * [`degraded`]: an open that reads around damage.
//! * [`doubt`]: of which keys a newer version may be lost.
//! * [`sources`]: everything that is left, as one walk in order.
//! * [`watched`]: that nothing is taken for lost because the process was short of something.
//!
//! Nothing here writes, or knows the engine. `verify` lists what is found, a degraded open reads
//! around it, [`healthy`](crate::healthy) iterates over what can be had, and
//! [`repair`](crate::repair) copies what is left to a new store.

pub(crate) mod degraded;
pub(crate) mod doubt;
pub(crate) mod logs;
pub(crate) mod manifest;
pub(crate) mod sources;
pub(crate) mod table;
pub(crate) mod watched;

pub use logs::RecordBeyond;
