//! Reads every byte of a table and checks everything that can be checked.
//!
//! Nothing comes from memory or from the cache: footer, properties, index, filter and data blocks
//! are read from the file again. In addition to the checksums, this checks that blocks and leaves
//! are adjacent, entries are in order, separators separate the blocks, padding is zeros, tags and
//! properties match the entries, and the filter answers "maybe" for every key.

use std::cmp::Ordering;
use std::sync::Arc;

use trommel_base::{EntryKind, EntryRef, MAX_SEQNO, SeqNo, compare_internal};
use trommel_filter::{FilterKind, FilterSpec};

use crate::block::{Block, tag_of};
use crate::filter_host::FilterState;
use crate::filters::{Filters, PrefixExtractor, Watch};
use crate::format::{BlockKind, FEATURE_MERGES, FOOTER_BYTES, Fault, Footer, Handle};
use crate::index::{At, Index};
use crate::index_tree::IndexTree;
use crate::keys::each_stored;
use crate::{Error, Properties, Table, TableContents};

/// Result of [`Table::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Bytes of the file, all of which were read.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Distinct keys, each queried in the filter if there is one.
    pub keys: u64,
    /// Whether the filter was not queried: it is of a kind that this version does not know, or a
    /// user-defined one whose policy is missing or rejects it.
    pub foreign_filter: bool,
}

impl Table {
    /// Reads every byte of the file and checks it.
    ///
    /// # Errors
    /// The first corruption found, with file and offset.
    pub fn verify(&self) -> Result<Verified, Error> {
        self.verify_with(None)
    }

    /// Like [`Table::verify`]. Also queries each key's prefix in the prefix filter, if that was
    /// built with an extractor of the same name as `extractor`.
    ///
    /// # Errors
    /// As [`Table::verify`]; also if the extractor breaks its contract.
    pub fn verify_with(
        &self,
        extractor: Option<Arc<dyn PrefixExtractor>>,
    ) -> Result<Verified, Error> {
        self.verify_file(extractor, true, |_| Ok(()))
    }

    /// Like [`Table::verify`], and passes each entry to `take` once it was checked, in order. If an
    /// error is returned, discard everything that `take` received: some of the file is checked only
    /// at the end.
    ///
    /// # Errors
    /// As [`Table::verify`]. An error of `take` ends the verification, and is returned.
    pub fn verify_each<E: From<Error>>(
        &self,
        take: impl FnMut(EntryRef<'_>) -> Result<(), E>,
    ) -> Result<Verified, E> {
        self.verify_file(None, true, take)
    }

    /// Like [`Table::verify`], but neither reads nor queries the filters: checks the entries,
    /// whatever the state of the filters.
    ///
    /// # Errors
    /// As [`Table::verify`].
    pub fn verify_entries(&self) -> Result<Verified, Error> {
        self.verify_file(None, false, |_| Ok(()))
    }

    fn verify_file<E: From<Error>>(
        &self,
        extractor: Option<Arc<dyn PrefixExtractor>>,
        checks_filters: bool,
        mut take: impl FnMut(EntryRef<'_>) -> Result<(), E>,
    ) -> Result<Verified, E> {
        let source = &self.source;
        let file_bytes = source.file.bytes();
        let at_footer = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let mut bytes = [0; FOOTER_BYTES];
        source.read_into(at_footer, &mut bytes)?;
        let footer = Footer::decode(&bytes, file_bytes)
            .and_then(|footer| {
                let same = footer == self.footer;
                same.then_some(footer).ok_or(Fault::Damaged("the footer has changed"))
            })
            .map_err(|fault| fault.at(&source.path, at_footer))?;
        let properties = self.stored_properties(&footer)?;
        let index = self.stored_index(&footer)?;
        let filters =
            if checks_filters { Some(self.stored_filters(&footer, &properties)?) } else { None };
        let mut verifier = Verifier::new(self, filters, extractor);
        let mut end = 0;
        index.each_leaf(source, |i, leaf| {
            verifier.check_leaf(leaf, end, &index, i)?;
            end = leaf.range().1;
            verifier.leaf(&index, i, leaf, &mut take)
        })?;
        let at_properties = footer.properties_offset();
        let (entries, keys, foreign_filter) = verifier
            .finish(end == footer.data_bytes, &properties)
            .map_err(|fault| fault.at(&source.path, at_properties))?;
        Ok(Verified { bytes: file_bytes, entries, keys, foreign_filter })
    }

    fn stored_properties(&self, footer: &Footer) -> Result<Properties, Error> {
        let offset = footer.properties_offset();
        let handle = Handle { offset, bytes: footer.properties_bytes as usize };
        let payload = self.source.read_plain(handle, BlockKind::Properties)?;
        Properties::decode(&payload).map_err(|fault| fault.at(&self.source.path, offset))
    }

    fn stored_index(&self, footer: &Footer) -> Result<IndexTree, Error> {
        let offset = footer.index_offset();
        let handle = Handle { offset, bytes: footer.index_bytes as usize };
        let payload = self.source.read_plain(handle, BlockKind::IndexTop)?;
        IndexTree::decode(&payload, footer).map_err(|fault| fault.at(&self.source.path, offset))
    }

    fn stored_filters(&self, footer: &Footer, properties: &Properties) -> Result<Filters, Error> {
        let reader = self.filters().reader().cloned();
        let filters = Filters::open(&self.source, footer, properties, None, reader);
        match filters.check()? {
            FilterState::Loaded
            | FilterState::Absent
            | FilterState::Spared
            | FilterState::Unknown(_)
            | FilterState::Foreign(_) => Ok(filters),
            FilterState::Damaged(why) => Err(Error::Corruption(trommel_base::Corruption::new(
                &self.source.path,
                footer.filter_offset(),
                format!("the filter cannot be used: {why}"),
            ))),
        }
    }
}

/// State of a verification.
struct Verifier<'a> {
    table: &'a Table,
    /// Queried for every key; `None` if filters are not verified.
    filters: Option<Filters>,
    /// The extractor of the prefix filter, if it was given.
    prefixes: Option<(Arc<dyn PrefixExtractor>, Watch)>,
    facts: TableContents,
    /// Whether there was a merge operand.
    has_operands: bool,
    /// The last entry.
    last: Option<(Vec<u8>, SeqNo)>,
    /// Memory for the key of the next entry.
    spare: Vec<u8>,
    /// The separator of the last block.
    separator: Option<Vec<u8>>,
}

impl<'a> Verifier<'a> {
    fn new(
        table: &'a Table,
        filters: Option<Filters>,
        extractor: Option<Arc<dyn PrefixExtractor>>,
    ) -> Self {
        let facts = TableContents { min_seqno: MAX_SEQNO, ..TableContents::default() };
        let part = filters.as_ref().and_then(Filters::prefixes_part);
        let maker = part.map(|part| part.extractor.as_str());
        let prefixes = extractor
            .filter(|extractor| maker == Some(extractor.name()))
            .map(|extractor| (extractor, Watch::default()));
        let (has_operands, last, spare, separator) = (false, None, Vec::new(), None);
        Self { table, filters, prefixes, facts, has_operands, last, spare, separator }
    }

    fn check_leaf(&self, leaf: &Index, end: u64, tree: &IndexTree, i: usize) -> Result<(), Error> {
        let two_levels = self.table.footer.has_two_levels();
        let last = leaf.len().checked_sub(1).map(|last| leaf.separator(last));
        let agrees = !two_levels || last == Some(tree.top().separator(i));
        if leaf.range().0 != end || !agrees {
            let offset = self.table.footer.leaves_offset();
            let what = "an index leaf disagrees with the top index or its neighbour";
            return Err(Fault::Damaged(what).at(&self.table.source.path, offset));
        }
        Ok(())
    }

    /// Checks the blocks of one leaf, read many at a time, and passes their entries to `take`.
    fn leaf<E: From<Error>>(
        &mut self,
        tree: &IndexTree,
        i: usize,
        leaf: &Index,
        take: &mut impl FnMut(EntryRef<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let source = &self.table.source;
        each_stored(source, leaf, |slot, handle, buffer, start| {
            let shared = source.open_block(buffer, start, handle)?;
            let block = shared.view();
            let at = |fault: Fault| fault.at(&source.path, handle.offset);
            self.begin_block(&block).map_err(at)?;
            let place = (tree, leaf, At { leaf: i, slot });
            for i in 0..block.count() {
                let entry = self.entry(&block, i).map_err(at)?;
                take(entry)?;
                self.check_range(place).map_err(at)?;
            }
            self.end_block(leaf.separator(slot)).map_err(at)?;
            Ok(())
        })
    }

    fn begin_block(&self, block: &Block<'_>) -> Result<(), Fault> {
        if block.value(0)?.start != 0 {
            return Err(Fault::Damaged("the first value does not start its block"));
        }
        if block.padding()?.iter().any(|byte| *byte != 0) {
            return Err(Fault::Damaged("a block's padding is not zeros"));
        }
        // A separator is smaller than the next block's first key, unless that key's versions
        // straddle the two blocks.
        let (prefix, suffix) = block.key(0)?;
        let first = [prefix, suffix].concat();
        if let Some(before) = &self.separator {
            let straddles = self.last.as_ref().is_some_and(|(key, _)| *key == first);
            let parted = if straddles { *before == first } else { *before < first };
            if !parted {
                return Err(Fault::Damaged("a separator does not part two blocks"));
            }
        }
        Ok(())
    }

    fn end_block(&mut self, separator: Vec<u8>) -> Result<(), Fault> {
        if self.last.as_ref().is_some_and(|(key, _)| *key > separator) {
            return Err(Fault::Damaged("a separator is smaller than a key of its block"));
        }
        self.separator = Some(separator);
        self.facts.blocks += 1;
        Ok(())
    }

    /// Checks the entry at `i` of `block`, and returns it.
    fn entry<'b>(&'b mut self, block: &'b Block<'_>, i: usize) -> Result<EntryRef<'b>, Fault> {
        const OUTSIDE: Fault = Fault::Damaged("a value lies outside its block");
        let (prefix, suffix) = block.key(i)?;
        let (seqno, kind) = block.trailer(i)?;
        let value = block.payload.get(block.value(i)?).ok_or(OUTSIDE)?;
        let mut key = std::mem::take(&mut self.spare);
        key.clear();
        key.extend_from_slice(prefix);
        key.extend_from_slice(suffix);
        let new_key = match &self.last {
            None => true,
            Some((last, last_seqno)) => {
                if compare_internal(last, *last_seqno, &key, seqno) != Ordering::Less {
                    return Err(Fault::Damaged("entries are out of order"));
                }
                *last != key
            }
        };
        let hash = self.table.hash_seed().hash(&key);
        if block.tag(i) != Some(tag_of(hash)) {
            return Err(Fault::Damaged("a tag is not that of its key"));
        }
        if self.filters.as_ref().is_some_and(|filters| !filters.query(&key, hash).maybe) {
            return Err(Fault::Damaged("the filter denies a key that the table holds"));
        }
        if new_key {
            self.prefix(&key)?;
        }
        if self.facts.entries == 0 {
            self.facts.smallest.clone_from(&key);
        }
        self.facts.entries += 1;
        self.facts.keys += u64::from(new_key);
        self.facts.deletions += u64::from(kind == EntryKind::Delete);
        self.has_operands |= kind == EntryKind::Merge;
        self.facts.raw_bytes += (key.len() + value.len()) as u64;
        self.facts.min_seqno = self.facts.min_seqno.min(seqno);
        self.facts.max_seqno = self.facts.max_seqno.max(seqno);
        if let Some((before, _)) = self.last.replace((key, seqno)) {
            self.spare = before;
        }
        let key = self.last.as_ref().map_or(&[][..], |(key, _)| key);
        Ok(EntryRef { key, seqno, kind, value })
    }

    /// Queries the range filter for that of the last key only, in the block of `place`.
    fn check_range(&self, (tree, leaf, at): (&IndexTree, &Index, At)) -> Result<(), Fault> {
        let Some((filters, (key, _))) = self.filters.as_ref().zip(self.last.as_ref()) else {
            return Ok(());
        };
        if filters.may_hold_at(tree, leaf, at, key) {
            return Ok(());
        }
        Err(Fault::Damaged("the range filter denies a key that the table holds"))
    }

    /// Queries the prefix filter for the prefix of the next key.
    fn prefix(&mut self, key: &[u8]) -> Result<(), Fault> {
        let (Some((extractor, watch)), Some(filters)) = (&mut self.prefixes, &self.filters) else {
            return Ok(());
        };
        let prefix = watch.next(&**extractor, key).map_err(|_| {
            Fault::Damaged("the extractor that made its prefix filter breaks its contract")
        })?;
        let Some(prefix) = prefix else { return Ok(()) };
        let hash = self.table.hash_seed().hash(prefix);
        if filters.query_prefix(prefix, hash, extractor.name()).maybe {
            return Ok(());
        }
        Err(Fault::Damaged("the prefix filter denies the prefix of a key that the table holds"))
    }

    /// Compares the observed facts with the table's properties. Returns entries, keys, and whether
    /// there is a filter that could not be queried because its policy or kind is unknown here.
    fn finish(mut self, whole: bool, stored: &Properties) -> Result<(u64, u64, bool), Fault> {
        if !whole {
            return Err(Fault::Damaged("the index does not cover all data blocks"));
        }
        self.facts.largest = self.last.map(|(key, _)| key).unwrap_or_default();
        self.facts.min_seqno = self.facts.min_seqno.min(self.facts.max_seqno);
        let filters = self.filters.take();
        let facts = self.facts;
        if facts != stored.contents {
            return Err(Fault::Damaged("the properties are not true of the entries"));
        }
        let states_operands = self.table.footer.features & FEATURE_MERGES != 0;
        if self.has_operands != states_operands {
            return Err(Fault::Damaged("the footer is wrong about merge operands"));
        }
        let Some(filters) = filters else { return Ok((facts.entries, facts.keys, false)) };
        let requests_none = stored.filter == FilterSpec::NONE.to_string();
        let filter = filters.keys_part();
        let is_foreign =
            matches!(filters.state(), FilterState::Foreign(_) | FilterState::Unknown(_));
        if filter.is_none() && !requests_none && !is_foreign && stored.contents.keys > 0 {
            return Err(Fault::Damaged("the filter that the properties name is missing"));
        }
        // A plain filter has no directory and records its number of keys itself. A filter that
        // could not be queried has no kind.
        let facts_of_filter = filters.facts();
        let is_of_others = facts_of_filter.kind != FilterKind::None
            && facts_of_filter.keys != stored.contents.keys;
        if filter.is_some_and(|filter| filter.keys != stored.contents.keys || is_of_others) {
            return Err(Fault::Damaged("the filter was built for another number of keys"));
        }
        Ok((facts.entries, facts.keys, is_foreign))
    }
}
