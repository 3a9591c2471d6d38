//! From hashes to a finished filter.
//!
//! A filter's size depends on its number of keys, which is known only at the end, so a builder
//! keeps the hashes until then.
//!
//! 1. [`FilterBuilder::add_hash`] appends the hash to the last of a list of chunks. A hash equal to
//!    the one before it is dropped: in a sorted table, the versions of one key follow each other.
//!    Chunks are never moved, so the memory is 8 bytes a key and no more (a growing vector takes 24
//!    while it grows).
//! 2. [`FilterBuilder::finish`] plans the number of blocks and probes, sets the bits, computes the
//!    exact expected rate, and writes everything as one checksummed block of bytes.
//!
//! So the memory beyond the filter itself peaks at 8 bytes a key, and for the paired kind 4 bytes a
//! block more; once the hashes are dropped, the filter is there twice while it is written out.
//!
//! A hash that comes back later, not adjacent, is counted again. It makes the filter larger than it
//! need be and its rate better than announced; it never loses a key.

use crate::block::{BLOCK_BITS, BLOCK_BYTES, Block};
use crate::format::{self, HEADER_BYTES, Header};
use crate::mix::Golden;
use crate::spec::{FilterKind, FilterSpec};
use crate::{blocked, paired, standard, theory};

/// Hashes in one chunk: 256 KiB.
const CHUNK: usize = 32 * 1024;

/// The size of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) blocks: u64,
    pub(crate) probes: u32,
}

impl Plan {
    /// The plan for a filter of `keys` keys, of a kind that has blocks. Without keys it has none.
    pub(crate) fn new(spec: FilterSpec, keys: u64) -> Self {
        if keys == 0 {
            return Self { blocks: 0, probes: 2 };
        }
        match spec.kind() {
            FilterKind::Standard => standard::plan(keys, spec.millibits()),
            FilterKind::Blocked => blocked::plan(keys, spec.millibits()),
            FilterKind::Paired => paired::plan(keys, spec.millibits()),
            FilterKind::None | FilterKind::Ribbon => Self { blocks: 0, probes: 0 },
        }
    }
}

/// Blocks for `keys` keys of `millibits` thousandths of a bit each, rounded up; at least one.
pub(crate) fn blocks_for(keys: u64, millibits: u32) -> u64 {
    let millibits = u128::from(keys) * u128::from(millibits);
    let blocks = millibits.div_ceil(1000 * u128::from(BLOCK_BITS));
    u64::try_from(blocks).unwrap_or(u64::MAX).max(1)
}

/// What [`FilterSpec::expected_fpr`] says.
pub(crate) fn expected_fpr(spec: FilterSpec, keys: u64) -> f64 {
    let plan = Plan::new(spec, keys);
    match spec.kind() {
        FilterKind::None | FilterKind::Ribbon => 1.0,
        _ if keys == 0 => 0.0,
        FilterKind::Standard => theory::standard_fpr(keys, plan.blocks * BLOCK_BITS, plan.probes),
        FilterKind::Blocked => theory::blocked_fpr(keys, plan.blocks, plan.probes),
        FilterKind::Paired => theory::paired_fpr(keys, plan.blocks, plan.probes),
    }
}

/// What [`FilterSpec::expected_bytes`] says.
pub(crate) fn expected_bytes(spec: FilterSpec, keys: u64) -> u64 {
    match spec.kind() {
        FilterKind::None | FilterKind::Ribbon => 0,
        _ => {
            let body = Plan::new(spec, keys).blocks.saturating_mul(BLOCK_BYTES as u64);
            body.saturating_add(HEADER_BYTES as u64)
        }
    }
}

/// Takes the keys of one filter, in any order, and builds it.
///
/// ```
/// use trommel_filter::{Filter, FilterSpec};
///
/// let mut builder = "blocked:10".parse::<FilterSpec>()?.builder();
/// for key in ["age", "city", "email"] {
///     builder.add(key.as_bytes());
/// }
/// let filter = Filter::decode(builder.finish())?;
/// assert!(filter.may_contain(b"city"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FilterBuilder {
    spec: FilterSpec,
    chunks: Vec<Vec<u64>>,
    len: u64,
    last: Option<u64>,
}

impl FilterBuilder {
    pub(crate) fn new(spec: FilterSpec) -> Self {
        Self { spec, chunks: Vec::new(), len: 0, last: None }
    }

    /// Adds a key.
    #[inline]
    pub fn add(&mut self, key: &[u8]) {
        self.add_hash(crate::hash(key));
    }

    /// Adds the key whose [`hash`](crate::hash) this is.
    #[inline]
    pub fn add_hash(&mut self, hash: u64) {
        if self.last == Some(hash) {
            return;
        }
        self.last = Some(hash);
        self.len += 1;
        if self.spec.kind() == FilterKind::None {
            return;
        }
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(hash),
            // The first chunk grows, so that a small filter takes little; the others do not move.
            Some(_) => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(hash);
                self.chunks.push(chunk);
            }
            None => self.chunks.push(vec![hash]),
        }
    }

    /// Keys added, a key equal to the one before it not counted.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no key was added.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The spec that the filter is built for.
    pub fn spec(&self) -> FilterSpec {
        self.spec
    }

    /// Bytes of memory held until [`finish`](Self::finish).
    pub fn memory_bytes(&self) -> usize {
        let hashes: usize = self.chunks.iter().map(Vec::capacity).sum();
        size_of::<Self>()
            + self.chunks.capacity() * size_of::<Vec<u64>>()
            + hashes * size_of::<u64>()
    }

    /// Builds the filter. The bytes describe themselves: [`Filter::decode`](crate::Filter::decode)
    /// needs nothing else. A filter without keys answers no to every question. For a spec of
    /// [`FilterKind::None`] there is no filter, and no bytes.
    pub fn finish(self) -> Vec<u8> {
        let kind = self.spec.kind();
        let Plan { blocks: count, probes } = Plan::new(self.spec, self.len);
        let count = usize::try_from(count).expect("a filter is at most 8 times its hashes' size");
        let mut blocks = vec![Block::default(); count];
        let hashes = self.chunks.iter().flatten().copied();
        match kind {
            FilterKind::None | FilterKind::Ribbon => return Vec::new(),
            FilterKind::Standard => standard::fill(&mut blocks, probes, hashes),
            FilterKind::Blocked => blocked::fill(&mut blocks, probes, hashes),
            FilterKind::Paired => paired::fill::<Golden>(&mut blocks, probes, hashes),
        }
        let header = Header {
            kind,
            probes,
            millibits: self.spec.millibits(),
            blocks: count as u64,
            keys: self.len,
            expected_fpr: self.spec.expected_fpr(self.len),
        };
        drop(self);
        format::encode(header, &blocks)
    }
}
