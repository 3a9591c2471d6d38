//! What a range filter would state of a table that has none.

use trommel_filter::{BlockEnds, RangeFilter, RangeFilterBuilder, RangeSpec};

use crate::format::Fault;
use crate::index::{At, Index};
use crate::source::ReadStats;
use crate::{Error, Table};

/// Most data blocks that are read.
const BLOCKS: usize = 64;
/// Most leaves of the index that are read.
const LEAVES: usize = 16;

/// At most `most` of `all` positions, spread evenly.
fn spread(most: usize, all: usize) -> impl Iterator<Item = usize> {
    let count = most.min(all);
    (0..count).map(move |i| i * all / count)
}

impl Table {
    /// The rate that a range filter of this spec would state, by a sample of the table: at most 64
    /// data blocks of at most 16 leaves of the index, spread evenly, which are read. 1 for a table
    /// without entries.
    ///
    /// # Errors
    /// The first corruption found, or a failed read.
    pub fn range_rate(&self, spec: RangeSpec) -> Result<f64, Error> {
        let mut builder = spec.builder();
        let leaves = self.index.leaf_count();
        for number in spread(LEAVES, leaves) {
            let read;
            let leaf = match self.index.loaded_leaf(number) {
                Some(leaf) => leaf,
                None => {
                    read = self.index.read_leaf(number, &self.source)?;
                    &read
                }
            };
            for slot in spread(BLOCKS / leaves.min(LEAVES), leaf.len()) {
                self.add_block(leaf, At { leaf: number, slot }, &mut builder)?;
            }
        }
        Ok(if builder.blocks() == 0 {
            1.0
        } else {
            RangeFilter::peek_expected_fpr(&builder.finish())
        })
    }

    /// Adds the keys of one block, each once.
    fn add_block(
        &self,
        leaf: &Index,
        at: At,
        builder: &mut RangeFilterBuilder,
    ) -> Result<(), Error> {
        let Some(handle) = leaf.handle(at.slot) else { return Ok(()) };
        let shared = self.source.read_block(handle, &mut ReadStats::default())?;
        let block = shared.view();
        let mut last = None;
        for i in 0..block.count() {
            let (prefix, suffix) =
                block.key(i).map_err(|fault: Fault| fault.at(&self.source.path, handle.offset))?;
            let key = [prefix, suffix].concat();
            if last.as_ref() != Some(&key) {
                builder.add(&key);
                last = Some(key);
            }
        }
        let mut first = self.properties().contents.smallest.clone();
        self.index.separator_before(leaf, at, &mut first);
        builder.end_block(BlockEnds { first: &first, last: &leaf.separator(at.slot) });
        Ok(())
    }
}
