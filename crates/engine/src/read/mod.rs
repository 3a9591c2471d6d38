//! The read path: pin a view, ask its sources newest first, and gate every table by its filter.

mod get;
mod many;
mod probe;
mod scan;
