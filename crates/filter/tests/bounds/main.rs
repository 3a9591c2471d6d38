//! Bounds that hold whatever the input: memory while filters are built, opened and asked, counted
//! by an allocator; and no panic, whatever bytes are opened.

mod allocator;
mod fuzz;
mod memory;
