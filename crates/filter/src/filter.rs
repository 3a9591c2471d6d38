//! A finished filter, ready for queries.
//!
//! A filter answers from its stored bytes, never from today's configuration: family, probes and
//! number of blocks come from its header.

use alloc::vec::Vec;
use core::mem::MaybeUninit;

use crate::block::{BLOCK_BITS, BLOCK_BYTES, Bits, Block};
use crate::format::{self, DecodeError, Header};
use crate::fuse_shape::Shape;
use crate::kernel::{Chosen, Kernel, QueryFn};
use crate::kind::FilterKind;
use crate::{blocked, fuse, paired, ribbon, standard};

/// A set of keys that never denies a key it holds, and admits few that it does not.
///
/// ```
/// use trommel_filter::{DecodeError, Filter, FilterSpec, hash};
///
/// let mut builder = "paired:16".parse::<FilterSpec>()?.builder();
/// for n in 0..10_000_u32 {
///     builder.add(&n.to_le_bytes());
/// }
/// let bytes = builder.finish();
/// let filter = Filter::decode(&bytes)?;
/// assert!((0..10_000_u32).all(|n| filter.may_contain(&n.to_le_bytes())));
///
/// // One flipped bit makes it invalid.
/// let mut damaged = bytes.clone();
/// damaged[100] ^= 1;
/// assert!(matches!(Filter::decode(damaged), Err(DecodeError::Damaged { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Filter {
    header: Header,
    kernel: Chosen,
    bits: Bits,
    /// The query function for this kind and kernel, so that a query branches on neither.
    query: QueryFn,
}

impl Filter {
    /// Validates and decodes the output of [`FilterBuilder::finish`](crate::FilterBuilder::finish).
    /// The bits are copied to memory aligned to cache lines. Allocates no more than the length of
    /// `bytes`.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`] if the bytes are not a valid filter, [`DecodeError::Unknown`] if a
    /// later version wrote them. In both cases continue without the filter: treat every key as
    /// possibly present.
    pub fn decode(bytes: impl AsRef<[u8]>) -> Result<Self, DecodeError> {
        Self::decode_into(bytes, |_| ())
    }

    /// Like [`decode`](Self::decode), but passes the memory of the filter's cache lines to
    /// `prepare` before anything is written to it, so that a program may request huge pages for it.
    /// In a filter of 50 MiB and more, most probes miss the TLB if pages are 4 KiB.
    ///
    /// # Errors
    /// Like `decode`.
    pub fn decode_into(
        bytes: impl AsRef<[u8]>,
        prepare: impl FnOnce(&mut [MaybeUninit<Block>]),
    ) -> Result<Self, DecodeError> {
        let (header, blocks) = format::decode(bytes.as_ref(), prepare)?;
        Self::of_parts(header, blocks)
    }

    /// Like [`decode_into`](Self::decode_into), but reads `bytes` bytes from `from`. Each byte is
    /// read once and copied to the filter's memory through a buffer of a few KiB, so a filter read
    /// from a file is never in memory twice.
    ///
    /// # Errors
    /// Errors of `from`. The inner result is like `decode`; if it is an error, `from` may not have
    /// been read to the end.
    #[cfg(feature = "std")]
    pub fn read(
        mut from: impl std::io::Read,
        bytes: usize,
        prepare: impl FnOnce(&mut [MaybeUninit<Block>]),
    ) -> std::io::Result<Result<Self, DecodeError>> {
        let read = format::read(|turn| from.read_exact(turn), bytes, prepare)?;
        Ok(read.and_then(|(header, blocks)| Self::of_parts(header, blocks)))
    }

    fn of_parts(header: Header, blocks: Vec<Block>) -> Result<Self, DecodeError> {
        if header.kind == FilterKind::Paired && !paired::pairs_are_valid(&blocks) {
            return Err(DecodeError::Damaged {
                what: "its blocks do not name each other as pairs",
            });
        }
        if header.kind == FilterKind::Ribbon && !ribbon::shape_is_valid(&blocks, header.keys) {
            return Err(DecodeError::Damaged { what: "its shards do not fill it" });
        }
        if header.kind == FilterKind::Fuse && !Shape::is_valid(&blocks, header.keys) {
            return Err(DecodeError::Damaged { what: "its tables do not fill it" });
        }
        let kernel = Chosen::best();
        Ok(Self {
            header,
            query: query_fn(header.kind, kernel),
            kernel,
            bits: Bits { blocks, probes: header.probes },
        })
    }

    /// Whether `key` may have been added: always true if it was.
    #[inline]
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.may_contain_hash(crate::hash(key))
    }

    /// Whether the key with this [`hash`](crate::hash) may have been added: always true if it was.
    /// Allocates nothing and writes only to the stack. Costs a cache miss or two in a large filter,
    /// which [`prefetch`](Self::prefetch) overlaps with other work.
    #[inline]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.query.query(&self.bits, hash)
    }

    /// Prefetches the first cache line that [`may_contain_hash`](Self::may_contain_hash) of this
    /// hash would read (the first two for a standard filter), without waiting for it. To query many
    /// filters for one key, prefetch from all of them first and then query one after the other, so
    /// that the cache misses overlap.
    ///
    /// A hint: it changes no answer, and does nothing for a filter without keys.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let blocks = &*self.bits.blocks;
        match self.header.kind {
            FilterKind::Blocked | FilterKind::Paired => blocked::prefetch_block(blocks, hash),
            FilterKind::Standard => standard::prefetch_first(blocks, hash),
            FilterKind::Ribbon => ribbon::prefetch_first(blocks, self.header.keys, hash),
            FilterKind::Fuse => fuse::prefetch_first(blocks, hash),
            FilterKind::None => (),
        }
    }

    /// Queries many keys at once: sets `answers[i]` to the result of
    /// [`may_contain_hash`](Self::may_contain_hash) for `hashes[i]`. The queries are pipelined, so
    /// that their cache misses overlap.
    ///
    /// # Panics
    /// If the two slices differ in length.
    pub fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        assert_eq!(hashes.len(), answers.len(), "one answer for each hash");
        let bits = &self.bits;
        match self.header.kind {
            FilterKind::Paired => {
                self.kernel.run(paired::PairedContainsMany { bits, hashes, answers });
            }
            FilterKind::Blocked => {
                self.kernel.run(blocked::BlockedContainsMany { bits, hashes, answers });
            }
            FilterKind::Standard => standard::contains_many(bits, hashes, answers),
            FilterKind::Ribbon => ribbon::contains_many(&bits.blocks, hashes, answers),
            FilterKind::Fuse => {
                self.kernel.run(fuse::FuseContainsMany { bits, hashes, answers });
            }
            FilterKind::None => answers.fill(true),
        }
    }

    /// The filter's cache lines.
    #[inline]
    pub(crate) fn blocks(&self) -> &[Block] {
        &self.bits.blocks
    }

    #[cfg(test)]
    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        &mut self.bits.blocks
    }

    /// The same filter, queried with the instructions of `kernel` if this processor supports them.
    /// For measurements and comparisons: [`decode`](Self::decode) chooses the best kernel.
    #[must_use]
    pub fn with_kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = Chosen::new(kernel).unwrap_or(self.kernel);
        self.query = query_fn(self.header.kind, self.kernel);
        self
    }

    /// The instruction set that queries use.
    pub fn kernel(&self) -> Kernel {
        self.kernel.kernel()
    }

    /// The expected false positive rate in the header of a filter that was just
    /// [finished](crate::FilterBuilder::finish), without the checks of [`decode`](Self::decode); 1
    /// if the bytes are not a filter.
    pub fn peek_expected_fpr(finished: &[u8]) -> f64 {
        format::peek_expected_fpr(finished).unwrap_or(1.0)
    }

    /// The kind of a filter that was just [finished](crate::FilterBuilder::finish), without the
    /// checks of [`decode`](Self::decode): [`FilterKind::Standard`] if the requested ribbon or
    /// fuse filter could not be built from the keys, [`FilterKind::None`] if the bytes are not a
    /// filter.
    ///
    /// ```
    /// use trommel_filter::{Filter, FilterKind, FilterSpec};
    ///
    /// let mut builder = "ribbon:10".parse::<FilterSpec>()?.builder();
    /// builder.add(b"amber");
    /// assert_eq!(Filter::peek_kind(&builder.finish()), FilterKind::Ribbon);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peek_kind(finished: &[u8]) -> FilterKind {
        format::peek_kind(finished).unwrap_or(FilterKind::None)
    }

    /// The exact expected false positive rate of a filter of this kind, size and number of keys. It
    /// is stored when the filter is built, so reading it is free.
    pub fn expected_fpr(&self) -> f64 {
        self.header.expected_fpr
    }

    /// Bits per key as stored: the blocks' bits divided by the keys; 0 without keys.
    pub fn bits_per_key(&self) -> f64 {
        if self.header.keys == 0 {
            return 0.0;
        }
        (self.header.blocks * BLOCK_BITS) as f64 / self.header.keys as f64
    }

    /// Bits per key requested when the filter was built.
    pub fn requested_bits_per_key(&self) -> f64 {
        f64::from(self.header.millibits) / 1000.0
    }

    /// Bits that a positive query tests (for a ribbon and a fuse filter, at most).
    pub fn probes(&self) -> u32 {
        self.header.probes
    }

    /// Keys that were added, as [`FilterBuilder::len`](crate::FilterBuilder::len) counts them.
    pub fn keys(&self) -> u64 {
        self.header.keys
    }

    /// The family.
    pub fn kind(&self) -> FilterKind {
        self.header.kind
    }

    /// Bytes of memory held by the filter.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bits.blocks.capacity() * BLOCK_BYTES
    }
}

/// The query function of a filter of `kind`.
fn query_fn(kind: FilterKind, kernel: Chosen) -> QueryFn {
    match kind {
        FilterKind::Paired => QueryFn::with::<paired::PairedContains>(kernel),
        FilterKind::Blocked => QueryFn::with::<blocked::BlockedContains>(kernel),
        FilterKind::Standard => QueryFn::portable(standard::contains),
        FilterKind::Ribbon => QueryFn::portable(|bits, hash| ribbon::contains(&bits.blocks, hash)),
        FilterKind::Fuse => QueryFn::with::<fuse::FuseContains>(kernel),
        FilterKind::None => QueryFn::portable(|_, _| true),
    }
}
