//! Builds one part of the filter region, in one piece or cut.
//!
//! 1. Keys (or prefixes) come in order. A part that is cut is told where each data block ends.
//! 2. *Partitioned*: where the keys since the last cut would make a filter of about the wanted
//!    bytes, the filter is built, and its separator noted: that of the data block. So only the
//!    hashes of one piece are held, and the filters that are finished.
//! 3. *Per block*: at each block's end its small filter is built; a group of about the wanted bytes
//!    is a piece.
//! 4. A prefix that goes on behind a cut is added anew to the next piece, since a builder only
//!    drops what it was given last.

use trommel_base::planted::{Bug, planted};
use trommel_filter::{Filter, FilterBuilder, FilterKind, FilterSpec, SmallFiltersBuilder};

use super::directory::{FilterPart, FilterRole, FilterShape};
use crate::format::FRAME_BYTES;
use crate::index::IndexBuilder;

/// Most bytes that a list of hashes grows by, between two questions what it takes.
const GROWTH_BYTES: u64 = 32 << 10;

/// A part and its bytes, still without frames.
pub(crate) struct BuiltPart {
    /// All is said but the bytes.
    pub(crate) part: FilterPart,
    pub(crate) pieces: Vec<Vec<u8>>,
    /// Where each piece ends; none for a whole filter.
    pub(crate) top: Option<IndexBuilder>,
    /// Pieces that are filters of another kind than was asked for, as their keys could not be built
    /// into that.
    pub(crate) fallbacks: u64,
}

#[derive(Debug)]
pub(super) struct PartBuilder {
    spec: FilterSpec,
    shape: FilterShape,
    piece_bytes: usize,
    open: Open,
    /// Pieces that are finished, and where each ends.
    pieces: Vec<Vec<u8>>,
    top: IndexBuilder,
    /// Keys in them, and the sum of their rates, each weighed by its keys.
    keys: u64,
    passes: f64,
    bytes: u64,
    /// The separator of the last data block.
    separator: Vec<u8>,
}

/// The piece that is being filled.
#[derive(Debug)]
enum Open {
    Filter(FilterBuilder),
    Small(SmallFiltersBuilder),
}

impl PartBuilder {
    pub(super) fn new(spec: FilterSpec, shape: FilterShape, piece_bytes: usize) -> Self {
        let open = match shape {
            FilterShape::PerBlock if spec != FilterSpec::NONE => {
                Open::Small(SmallFiltersBuilder::new(spec))
            }
            _ => Open::Filter(spec.builder()),
        };
        Self {
            spec,
            shape,
            piece_bytes,
            open,
            pieces: Vec::new(),
            top: IndexBuilder::default(),
            keys: 0,
            passes: 0.0,
            bytes: 0,
            separator: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn add_hash(&mut self, hash: u64) {
        if planted(Bug::FilterMissesKeyAtCut)
            && (!self.pieces.is_empty() && self.open_bytes() == 0 && hash.is_multiple_of(2))
        {
            return;
        }
        match &mut self.open {
            Open::Filter(filter) => filter.add_hash(hash),
            Open::Small(filters) => filters.add_hash(hash),
        }
    }

    /// Notes that the data block at `offset` is full, where the next one lies, and what parts the
    /// two.
    pub(super) fn end_block(&mut self, offset: u64, next: u64, separator: &[u8]) {
        if self.shape == FilterShape::Whole || self.spec == FilterSpec::NONE {
            return;
        }
        if let Open::Small(filters) = &mut self.open {
            filters.end(offset);
        }
        self.separator.clear();
        self.separator.extend_from_slice(separator);
        let full = self.open_bytes() >= self.piece_bytes as u64;
        let far = match &self.open {
            Open::Small(filters) => !filters.has_room(next),
            Open::Filter(_) => false,
        };
        if full || far {
            self.cut();
        }
    }

    /// About how many bytes the open piece would take.
    #[inline]
    fn open_bytes(&self) -> u64 {
        match &self.open {
            Open::Filter(filter) => self.spec.bits_bytes(filter.len()),
            Open::Small(filters) => filters.bytes() as u64,
        }
    }

    /// About how many bytes the part would take if it were finished now.
    #[inline]
    pub(super) fn estimated_bytes(&self) -> u64 {
        self.bytes + self.open_bytes()
    }

    /// Bytes of memory that building takes from here to its end, at most, were few keys to follow.
    ///
    /// 1. The pieces that are finished.
    /// 2. What the open filter's builder says: hashes, and the filter, at the worst moment.
    /// 3. By how much the list of hashes may be about to grow.
    pub(super) fn memory_bytes(&self) -> u64 {
        if self.spec == FilterSpec::NONE {
            return 0;
        }
        let filter = match &self.open {
            Open::Filter(filter) => filter,
            // The group's bits and its copy; the hashes of one block are few.
            Open::Small(filters) => return self.bytes + 4 * filters.bytes() as u64 + (4 << 10),
        };
        let hashes = filter.memory_bytes() as u64;
        self.bytes + filter.peak_bytes() + hashes.min(GROWTH_BYTES)
    }

    /// Finishes the open piece, whose last block's separator was noted.
    fn cut(&mut self) {
        let (keys, rate, payload) = match &mut self.open {
            Open::Filter(filter) => {
                let full = std::mem::replace(filter, self.spec.builder());
                let keys = full.len();
                let payload = full.finish();
                (keys, Filter::peek_expected_fpr(&payload), payload)
            }
            Open::Small(filters) => {
                let full = std::mem::replace(filters, SmallFiltersBuilder::new(self.spec));
                (full.keys(), full.expected_fpr(), full.finish())
            }
        };
        self.keys += keys;
        self.passes += keys as f64 * rate;
        self.bytes += payload.len() as u64;
        // A block is at most one large entry, a piece at most some keys more than wanted: both are
        // far below 4 GiB.
        self.top.push(&self.separator, (payload.len() + FRAME_BYTES) as u32);
        self.pieces.push(payload);
    }

    /// What the directory says that was asked for, where this was.
    pub(super) fn stored_spec(spec: FilterSpec, shape: FilterShape) -> String {
        match shape {
            // Its small filters are of one kind, whatever was asked for.
            FilterShape::PerBlock => {
                let small = FilterSpec::new(FilterKind::Standard, spec.bits_per_key());
                small.unwrap_or(spec).to_string()
            }
            _ => spec.to_string(),
        }
    }

    /// Builds what is not built yet; nothing where no filter was asked for.
    pub(super) fn finish(mut self, role: FilterRole, extractor: String) -> Option<BuiltPart> {
        if self.spec == FilterSpec::NONE {
            return None;
        }
        let open = match &self.open {
            Open::Filter(filter) => !filter.is_empty(),
            Open::Small(filters) => !filters.is_empty(),
        };
        if open || self.pieces.is_empty() {
            self.cut();
        }
        let shape = self.shape;
        let spec = Self::stored_spec(self.spec, shape);
        let expected_fpr = if self.keys == 0 { 0.0 } else { self.passes / self.keys as f64 };
        let part = FilterPart {
            role,
            shape,
            expected_fpr: expected_fpr.min(1.0),
            keys: self.keys,
            bytes: 0,
            top_bytes: 0,
            spec,
            policy: String::new(),
            extractor,
        };
        let top = (shape != FilterShape::Whole).then_some(self.top);
        let is_other = |piece: &&Vec<u8>| Filter::peek_kind(piece) != self.spec.kind();
        let fallbacks = match shape {
            FilterShape::PerBlock => 0,
            _ => self.pieces.iter().filter(is_other).count() as u64,
        };
        Some(BuiltPart { part, pieces: self.pieces, top, fallbacks })
    }
}
