//! Compaction policy: which tables are compacted when, what may be dropped, where outputs end, and
//! how writers are slowed while compactions lag. Pure decisions; nothing here touches a file.
//!
//! * [`plan`]: the next compaction of a version; [`gather`]: which neighbours share it; [`upkeep`]:
//!   what is rewritten when no level needs a compaction; [`range`]: manual compaction of a key
//!   range;
//! * [`in_progress`]: the running compactions, which plans avoid;
//! * [`shape`]: target sizes of the levels, scores, and the debt;
//! * [`pressure`]: how the debt slows writers;
//! * [`merge`]: which versions of a key are kept; [`older`]: whether data older than a tombstone
//!   exists outside the inputs; [`cut`]: where one output ends and the next begins.
//!
//! There is no compaction from level 0 into level 0, and no table is ever cut between two versions
//! of one key: two kinds of misordering that other stores suffered from cannot be expressed.

pub(crate) mod cut;
pub(crate) mod gather;
pub(crate) mod in_progress;
pub(crate) mod key_range;
pub(crate) mod merge;
pub(crate) mod older;
pub(crate) mod plan;
pub(crate) mod pressure;
pub(crate) mod range;
pub(crate) mod shape;
pub(crate) mod upkeep;

#[cfg(test)]
mod tests;
