//! What a filter for ranges would state of a table that has none.

use trommel_filter::{BlockEnds, RangeFilter, RangeFilterBuilder, RangeSpec};

use crate::format::Fault;
use crate::index::Index;
use crate::source::ReadStats;
use crate::{Error, Table};

/// About as many blocks are read.
const BLOCKS: usize = 64;

impl Table {
    /// The rate that a filter for ranges of this spec would state, by a sample of the table's
    /// blocks, which are read.
    ///
    /// # Errors
    /// The first corruption found, or a failed read.
    pub fn range_rate(&self, spec: RangeSpec) -> Result<f64, Error> {
        let mut builder = spec.builder();
        let most = (BLOCKS / self.index.leaf_count().max(1)).max(1);
        let mut before = self.properties().contents.smallest.clone();
        self.index.each_leaf(&self.source, |_, leaf| {
            let step = leaf.len().div_ceil(most).max(1);
            for slot in 0..leaf.len() {
                let separator = leaf.separator(slot);
                if slot % step == 0 {
                    self.add_keys(leaf, slot, &mut builder)?;
                    builder.end_block(BlockEnds { first: &before, last: &separator });
                }
                before = separator;
            }
            Ok::<_, Error>(())
        })?;
        Ok(if builder.blocks() == 0 {
            1.0
        } else {
            RangeFilter::peek_expected_fpr(&builder.finish())
        })
    }

    /// Adds the keys of one block, each once.
    fn add_keys(
        &self,
        leaf: &Index,
        slot: usize,
        builder: &mut RangeFilterBuilder,
    ) -> Result<(), Error> {
        let Some(handle) = leaf.handle(slot) else { return Ok(()) };
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
        Ok(())
    }
}
