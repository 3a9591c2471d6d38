//! Bounds that hold for any input: the memory of building, decoding and querying filters, measured
//! by a counting allocator; and no panic, whatever bytes are decoded.

mod allocator;
mod fuzz;
mod memory;
mod ranges;
