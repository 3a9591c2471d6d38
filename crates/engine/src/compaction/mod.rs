//! Compaction: which tables are merged when, what a merge may drop, where its outputs end, and
//! how writers are slowed while it lags behind. Pure decisions; nothing here touches a file.
//!
//! * [`plan`]: the next merge for a version; [`gather`]: which neighbours share it; [`upkeep`]:
//!   what is rewritten where no level needs one; [`range`]: the merges that compact one key range;
//! * [`in_progress`]: the running merges, which plans keep away from;
//! * [`shape`]: target sizes of the levels, scores, and the debt;
//! * [`pressure`]: the debt's price for writers;
//! * [`merge`]: which versions of a key a merge keeps; [`older`]: whether data older than a
//!   tombstone exists outside the merge; [`cut`]: where one output ends and the next begins.
//!
//! There is no merge from level 0 into level 0, and no table is ever cut between two versions of
//! one key: two kinds of misordering that other stores suffered from cannot be expressed.

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
