//! The current block of a cursor: shared with the cache or the read-ahead buffer, or mapped.

use trommel_vfs::SharedMap;

use crate::block::{Block, Layout, SharedBlock};

/// A block that a cursor has entered.
#[derive(Debug)]
pub(super) enum EnteredBlock {
    Shared(SharedBlock),
    /// A block in the map.
    Mapped(MappedBlock),
}

/// A block in a map: where its payload starts, and its length.
#[derive(Debug)]
pub(super) struct MappedBlock {
    pub(super) start: usize,
    pub(super) len: u32,
    pub(super) layout: Layout,
}

impl EnteredBlock {
    /// The block; `map` is the map of its table.
    #[inline]
    pub(super) fn view<'a>(&'a self, map: Option<&'a SharedMap>) -> Block<'a> {
        match self {
            Self::Shared(block) => block.view(),
            Self::Mapped(MappedBlock { start, len, layout }) => {
                let payload = map.and_then(|map| map.get(*start..*start + *len as usize));
                Block { payload: payload.unwrap_or_default(), layout }
            }
        }
    }

    /// The number of entries.
    #[inline]
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Shared(block) => block.count(),
            Self::Mapped(block) => block.layout.count(),
        }
    }
}
