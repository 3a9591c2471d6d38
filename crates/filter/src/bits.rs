//! What a query reads of a filter.

use crate::block::Block;
use crate::fuse_shape::Tables;

/// The part of a filter that a query reads: its blocks, the number of probes, and the shape of a
/// fuse filter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bits {
    pub(crate) blocks: Vec<Block>,
    pub(crate) probes: u32,
    pub(crate) fuse: Tables,
}
