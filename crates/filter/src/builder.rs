//! Builds a filter from hashes.
//!
//! A filter's size depends on its number of keys, which is known only at the end, so a builder
//! keeps the hashes until then.
//!
//! 1. [`FilterBuilder::add_hash`] appends the hash to the last of a list of chunks. A hash equal to
//!    the previous one is dropped: in a sorted table, the versions of one key are adjacent. Chunks
//!    are never moved, so the memory is 8 bytes a key (a vector takes 24 while it grows).
//! 2. [`FilterBuilder::finish`] plans the number of blocks and probes and partitions the hashes
//!    into parts of [`PART`] adjacent blocks each ([`crate::partition`]), so that counting, pairing
//!    and setting bits stay in the first-level cache.
//! 3. It computes the exact expected rate (for chosen keys, the rate of the set bits:
//!    [`crate::filled`]), and encodes the filter with its checksum.
//!
//! So the memory on top of the filter itself peaks at 8 bytes a key, up to two more for partly
//! filled chunks at 64 bits a key (less at fewer bits), and some 60 KiB. Once the hashes are
//! dropped, the filter exists twice while it is encoded. (A standard filter's probes fall anywhere,
//! so its hashes are not partitioned. A ribbon takes 24 bytes more for each slot of one shard.)
//!
//! Building takes bounded time for any hashes: each bit is set once for each hash, and a ribbon has
//! a limit on its attempts ([`crate::ribbon`]), beyond which a standard filter is built from the
//! same hashes. [`FilterBuilder::peak_bytes`] predicts the peak memory; `tests/bounds/memory.rs`
//! verifies it with a counting allocator.
//!
//! A duplicate hash that is not adjacent is counted again. It makes the filter larger than
//! necessary and its rate lower than stated, but never loses a key.

use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::block::{BLOCK_BITS, BLOCK_BYTES, Block};
use crate::format::{self, HEADER_BYTES, Header};
use crate::fuse::{self, Fuse};
use crate::fuse_shape::{self, Shape};
use crate::kernel::Chosen;
use crate::kind::FilterKind;
use crate::mix::{Golden, scale};
use crate::plan::{PART, Part, Plan, blocks_for};
use crate::ribbon::{self, Needs, Ribbon};
use crate::spec::FilterSpec;
use crate::{blocked, filled, paired, partition, standard, theory};

/// Hashes in one chunk: 32 KiB. A chunk stays allocated until all its hashes are distributed, so a
/// larger one would be significant next to a small table's filter.
const CHUNK: usize = 4 * 1024;
impl Plan {
    /// The plan for a filter of `keys` keys, of a kind that has blocks. Without keys, no blocks.
    pub(crate) fn new(spec: FilterSpec, keys: u64) -> Self {
        if keys == 0 {
            return Self { blocks: 0, probes: 2 };
        }
        match spec.kind() {
            FilterKind::Standard => standard::plan(keys, spec.millibits()),
            FilterKind::Blocked => blocked::plan(keys, spec.millibits()),
            FilterKind::Paired => paired::plan(keys, spec.millibits()),
            FilterKind::Ribbon => {
                Self { blocks: ribbon::expected_blocks(keys, spec.millibits()), probes: 0 }
            }
            FilterKind::Fuse => {
                Self { blocks: fuse_shape::expected_blocks(keys, spec.millibits()), probes: 0 }
            }
            FilterKind::None => Self { blocks: 0, probes: 0 },
        }
    }
}

/// The number of keys from which the rate no longer changes in any significant digit.
const MANY_KEYS: u64 = 1 << 40;

/// Implements [`FilterSpec::expected_fpr`].
pub(crate) fn expected_fpr(spec: FilterSpec, keys: u64) -> f64 {
    // The bits of more keys might overflow.
    let keys = keys.min(MANY_KEYS);
    let plan = Plan::new(spec, keys);
    match spec.kind() {
        FilterKind::None => 1.0,
        _ if keys == 0 => 0.0,
        FilterKind::Ribbon => ribbon::expected_rate(keys, spec.millibits()),
        FilterKind::Fuse => Shape::of(keys, spec.millibits()).rate(),
        FilterKind::Standard => theory::standard_fpr(keys, plan.blocks * BLOCK_BITS, plan.probes),
        FilterKind::Blocked => theory::blocked_fpr(keys, plan.blocks, plan.probes),
        FilterKind::Paired => theory::paired_fpr(keys, plan.blocks, plan.probes),
    }
}

/// Implements [`FilterSpec::expected_bytes`].
pub(crate) fn expected_bytes(spec: FilterSpec, keys: u64) -> u64 {
    match spec.kind() {
        FilterKind::None => 0,
        _ => {
            let body = Plan::new(spec, keys).blocks.saturating_mul(BLOCK_BYTES as u64);
            body.saturating_add(HEADER_BYTES as u64)
        }
    }
}

/// Collects the keys of one filter, in any order, and builds it.
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

    /// Adds the key with this [`hash`](crate::hash).
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
            // The first chunk grows, so that a small filter takes little memory; the others do not
            // move.
            Some(_) => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(hash);
                self.chunks.push(chunk);
            }
            None => self.chunks.push(vec![hash]),
        }
    }

    /// Keys added, not counting a key equal to the previous one.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no key was added.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Changes the size of the filter to that of `spec`, whatever was added. Ignored if `spec` is
    /// of another kind.
    pub fn resize(&mut self, spec: FilterSpec) {
        if spec.kind() == self.spec.kind() {
            self.spec = spec;
        }
    }

    /// The spec of the filter.
    pub fn spec(&self) -> FilterSpec {
        self.spec
    }

    /// Bytes of memory held until [`finish`](Self::finish).
    pub fn memory_bytes(&self) -> usize {
        // All chunks but the first have the same capacity.
        let hashes = match &self.chunks[..] {
            [] => 0,
            [first, others @ ..] => first.capacity() + others.len() * CHUNK,
        };
        size_of::<Self>()
            + self.chunks.capacity() * size_of::<Vec<u64>>()
            + hashes * size_of::<u64>()
    }

    /// An upper bound on the memory that building takes, in bytes: the memory held now and all that
    /// [`finish`](Self::finish) allocates, including the finished filter. At most about half above
    /// the actual peak, and cheap to compute. The cached tables of the theory are not counted.
    pub fn peak_bytes(&self) -> u64 {
        let held = self.memory_bytes() as u64;
        let (keys, millibits) = (self.len, self.spec.millibits());
        // While the first chunk grows, the old half exists too.
        let growing = if self.chunks.len() == 1 { held + held / 2 } else { held };
        if keys == 0 {
            return growing + HEADER_BYTES as u64;
        }
        let blocks = blocks_for(keys, millibits);
        let (blocks, parts) = match self.spec.kind() {
            FilterKind::None => return growing + HEADER_BYTES as u64,
            FilterKind::Ribbon => return growing.max(self.peak_bytes_of_ribbon()),
            FilterKind::Fuse => return growing.max(self.peak_bytes_of_fuse()),
            FilterKind::Standard => (blocks, 1),
            FilterKind::Blocked => (blocks, blocks.div_ceil(PART as u64)),
            FilterKind::Paired => {
                let even = if blocks > 1 { blocks.next_multiple_of(2) } else { blocks };
                (even, even.div_ceil(PART as u64))
            }
        };
        let filter = blocks * BLOCK_BYTES as u64;
        let partitioned = self.partitioned_bytes(parts);
        // Counts of keys; those of a part exist twice.
        let working = paired::BlockCounts::bytes(blocks) + (PART * size_of::<u16>()) as u64;
        let computing = filter + theory::working_bytes(self.spec.kind(), blocks * BLOCK_BITS);
        let written = 2 * filter + HEADER_BYTES as u64;
        growing.max(partitioned + filter + working).max(computing).max(written)
    }

    /// [`peak_bytes`](Self::peak_bytes) of a ribbon with keys, except for the growing first chunk.
    fn peak_bytes_of_ribbon(&self) -> u64 {
        let held = self.memory_bytes() as u64;
        let (keys, millibits) = (self.len, self.spec.millibits());
        let Needs { columns, equations } = Needs::of(keys, millibits);
        let shards = ribbon::shards(keys);
        let partitioning = columns + self.partitioned_bytes(shards);
        // Solving begins when the last chunk is distributed, if there is more than one shard.
        // The hashes are kept to the end, in case the keys must be built into another kind.
        let hashes = match shards {
            1 => held,
            _ => keys * size_of::<u64>() as u64 + partition::most_kept_slack(keys, shards),
        };
        let solving = columns + hashes + equations;
        partitioning.max(solving).max(2 * columns + 1024)
    }

    /// Like [`peak_bytes_of_ribbon`](Self::peak_bytes_of_ribbon), for a fuse filter.
    fn peak_bytes_of_fuse(&self) -> u64 {
        let held = self.memory_bytes() as u64;
        let (keys, millibits) = (self.len, self.spec.millibits());
        let filter = Shape::of(keys, millibits).blocks() * BLOCK_BYTES as u64;
        let parts = fuse_shape::shards(keys) * fuse::batches(keys);
        let partitioning = filter + self.partitioned_bytes(parts);
        // The hashes are kept to the end, like a ribbon's.
        let hashes = match parts {
            1 => held,
            _ => keys * size_of::<u64>() as u64 + partition::most_kept_slack(keys, parts),
        };
        let solving = filter + hashes + fuse::working_bytes(keys, millibits);
        partitioning.max(solving).max(2 * filter + 1024)
    }

    /// The most memory that the hashes take while they are partitioned, with one of the chunks
    /// still allocated.
    fn partitioned_bytes(&self, parts: u64) -> u64 {
        let held = self.memory_bytes() as u64;
        if parts == 1 {
            return held;
        }
        let chunk = self.len.min(CHUNK as u64) * size_of::<u64>() as u64;
        held + chunk + partition::most_slack(self.len, parts)
    }

    /// Builds the filter. The bytes are self-describing: [`Filter::decode`](crate::Filter::decode)
    /// needs nothing else. A filter without keys answers no to every query. For a spec of
    /// [`FilterKind::None`] the result is empty.
    ///
    /// The time is linear in the number of keys, whatever their hashes. If they were chosen so that
    /// a [`FilterKind::Ribbon`] or [`FilterKind::Fuse`] cannot be built within its bounds, the
    /// filter is a [`FilterKind::Standard`] one of the same bits per key, and states that kind and
    /// its rate: [`Filter::peek_kind`](crate::Filter::peek_kind).
    pub fn finish(self) -> Vec<u8> {
        let (spec, keys) = (self.spec, self.len);
        let millibits = spec.millibits();
        let encode = |spec: FilterSpec, probes, expected_fpr, blocks: &[Block]| {
            let (kind, count) = (spec.kind(), blocks.len() as u64);
            let header = Header { kind, probes, millibits, blocks: count, keys, expected_fpr };
            format::encode(header, blocks)
        };
        let (built, spec) = match spec.kind() {
            FilterKind::Ribbon => {
                let mut ribbon = Ribbon::with_room(keys, millibits);
                let Err(unsolved) = self.fill_ribbon(&mut ribbon) else {
                    let (probes, rate) = (ribbon.columns(), ribbon.rate());
                    return encode(spec, probes, rate, &ribbon.finish());
                };
                (unsolved, spec.with_kind(FilterKind::Standard))
            }
            FilterKind::Fuse => {
                let mut fuse = Fuse::new(keys, millibits);
                let Err(unsolved) = self.fill_fuse(&mut fuse) else {
                    let shape = fuse.shape();
                    return encode(spec, shape.most_bits(), shape.rate(), &fuse.finish());
                };
                (unsolved, spec.with_kind(FilterKind::Standard))
            }
            _ => (self, spec),
        };
        built.finish_bloom(spec, encode)
    }

    /// Like [`finish`](Self::finish), for `spec` of a kind that sets bits.
    fn finish_bloom(
        self,
        spec: FilterSpec,
        encode: impl Fn(FilterSpec, u32, f64, &[Block]) -> Vec<u8>,
    ) -> Vec<u8> {
        let keys = self.len;
        let Plan { blocks: count, probes } = Plan::new(spec, keys);
        let count = usize::try_from(count).expect("a filter is at most 8 times its hashes' size");
        let mut blocks = vec![Block::default(); count];
        let kernel = Chosen::best();
        match spec.kind() {
            FilterKind::None | FilterKind::Ribbon | FilterKind::Fuse => return Vec::new(),
            FilterKind::Standard => {
                standard::fill(&mut blocks, probes, self.chunks.iter().flatten().copied());
                drop(self);
            }
            FilterKind::Blocked => {
                let fill = |part: &mut Part<'_>, chunks: &[Vec<u64>]| {
                    kernel.run(blocked::BlockedFill { part, probes, chunks });
                };
                self.fill_parts(&mut blocks, |_| (), fill);
            }
            FilterKind::Paired => {
                let counts = paired::BlockCounts::new(count);
                let fill = |part: &mut Part<'_>, chunks: &[Vec<u64>]| {
                    let keys = &counts.take(part);
                    let scheme = PhantomData::<Golden>;
                    kernel.run(paired::PairedFill { part, probes, keys, chunks, scheme });
                };
                self.fill_parts(&mut blocks, |block| counts.add(block), fill);
            }
        }
        let rate = filled::rate(spec.kind(), keys, probes, &blocks, spec.expected_fpr(keys));
        encode(spec, probes, rate, &blocks)
    }

    /// Calls `fill` with each part of `blocks` and its hashes. Calls `seen` first with the block of
    /// each hash.
    fn fill_parts(
        self,
        blocks: &mut [Block],
        seen: impl Fn(usize),
        fill: impl Fn(&mut Part<'_>, &[Vec<u64>]),
    ) {
        let count = blocks.len() as u64;
        let parts = count.div_ceil(PART as u64).max(1);
        let part_of = |hash| scale(hash, count) / PART as u64;
        let seen = |hash| seen(scale(hash, count) as usize);
        partition::visit_parts(self.chunks, parts, &part_of, &seen, &mut |nth, chunks| {
            let first = nth as usize * PART;
            let end = blocks.len().min(first + PART);
            let mut part = Part { count, first, blocks: &mut blocks[first..end] };
            fill(&mut part, &chunks);
        });
    }

    /// Fills `ribbon`, or returns the keys if that is impossible.
    fn fill_ribbon(mut self, ribbon: &mut Ribbon) -> Result<(), Self> {
        if self.len == 0 {
            return Ok(());
        }
        let shards = ribbon::shards(self.len);
        let shard_of = |hash| scale(hash, shards);
        let (mut is_solved, mut kept) = (true, Vec::new());
        let chunks = core::mem::take(&mut self.chunks);
        partition::visit_parts(chunks, shards, &shard_of, &|_| (), &mut |_, chunks| {
            let keys = chunks.iter().map(|chunk| chunk.len() as u64).sum();
            is_solved = is_solved && ribbon.push(keys, &chunks.iter().flatten().copied());
            kept.extend(chunks);
        });
        self.chunks = kept;
        if is_solved { Ok(()) } else { Err(self) }
    }

    /// Fills `fuse`, or returns the keys if that is impossible.
    fn fill_fuse(mut self, fuse: &mut Fuse) -> Result<(), Self> {
        if self.len == 0 {
            return Ok(());
        }
        let batches = fuse::batches(self.len);
        let parts = fuse_shape::shards(self.len) * batches;
        let part_of = |hash| scale(hash, parts);
        let (mut is_solved, mut kept, mut shard) = (true, Vec::new(), 0);
        let chunks = core::mem::take(&mut self.chunks);
        partition::visit_parts(chunks, parts, &part_of, &|_| (), &mut |nth, chunks| {
            kept.extend(chunks);
            if (nth + 1).is_multiple_of(batches) {
                is_solved = is_solved && fuse.push(&kept[shard..]);
                shard = kept.len();
            }
        });
        self.chunks = kept;
        if is_solved { Ok(()) } else { Err(self) }
    }
}
