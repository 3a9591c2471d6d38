//! A finished filter, ready to be asked.
//!
//! A filter answers by what is stored in it, never by what is configured today: family, probes and
//! number of blocks come from its header.

use std::io;
use std::mem::MaybeUninit;

use crate::block::{BLOCK_BITS, BLOCK_BYTES, Bits, Block};
use crate::format::{self, DecodeError, Header};
use crate::kernel::{Ask, Chosen, Kernel};
use crate::kind::FilterKind;
use crate::{blocked, paired, ribbon, standard};

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
/// // One wrong bit, and it is no filter.
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
    /// What kind and kernel come to, so that a question branches on neither.
    ask: Ask,
}

impl Filter {
    /// Checks and reads what [`FilterBuilder::finish`](crate::FilterBuilder::finish) wrote. The
    /// bits are copied to memory aligned to cache lines; no more is ever allocated than there are
    /// bytes.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`] if the bytes are not those of a filter, [`DecodeError::Unknown`] if
    /// they are those of one that a later version wrote. Either way, do without the filter: treat
    /// every key as possibly there.
    pub fn decode(bytes: impl AsRef<[u8]>) -> Result<Self, DecodeError> {
        Self::decode_into(bytes, |_| ())
    }

    /// [`decode`](Self::decode), with a word about the memory: `prepare` is shown the memory of the
    /// filter's cache lines before anything is written to it, so that a program may ask its system
    /// for large pages there. In a filter of 50 MiB and more, most probes miss the processor's
    /// table of 4 KiB pages.
    ///
    /// # Errors
    /// As for `decode`.
    pub fn decode_into(
        bytes: impl AsRef<[u8]>,
        prepare: impl FnOnce(&mut [MaybeUninit<Block>]),
    ) -> Result<Self, DecodeError> {
        let (header, blocks) = format::decode(bytes.as_ref(), prepare)?;
        Self::of_parts(header, blocks)
    }

    /// [`decode_into`](Self::decode_into) from where `bytes` bytes are still to be read: each is
    /// read once, and goes to the memory of the filter by way of a few KiB. What lies in a file is
    /// never in memory twice.
    ///
    /// # Errors
    /// What `from` says; the inner result is as for `decode`, and then perhaps not all was read.
    pub fn read(
        from: impl io::Read,
        bytes: usize,
        prepare: impl FnOnce(&mut [MaybeUninit<Block>]),
    ) -> io::Result<Result<Self, DecodeError>> {
        let read = format::read(from, bytes, prepare)?;
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
        let kernel = Chosen::best();
        Ok(Self {
            header,
            ask: ask_for(header.kind, kernel),
            kernel,
            bits: Bits { blocks, probes: header.probes },
        })
    }

    /// Whether `key` may have been added: always true if it was.
    #[inline]
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.may_contain_hash(crate::hash(key))
    }

    /// Whether the key whose [`hash`](crate::hash) this is may have been added: always true if it
    /// was. Allocates nothing and writes nothing but the stack. Costs a cache miss or two in a
    /// large filter, which [`prefetch`](Self::prefetch) hides behind other work.
    #[inline]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.ask.ask(&self.bits, hash)
    }

    /// Asks the processor for the first cache line that
    /// [`may_contain_hash`](Self::may_contain_hash) of this hash would read (of a standard filter,
    /// the first two), without waiting for it. Who has one key and many filters asks all of them
    /// for their lines first and then one after the other, so that the cache misses overlap.
    ///
    /// A hint: no answer depends on it, and for a filter without keys it does nothing.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let blocks = &*self.bits.blocks;
        match self.header.kind {
            FilterKind::Blocked | FilterKind::Paired => blocked::prefetch_block(blocks, hash),
            FilterKind::Standard => standard::prefetch_first(blocks, hash),
            FilterKind::Ribbon => ribbon::prefetch_first(blocks, self.header.keys, hash),
            FilterKind::None => (),
        }
    }

    /// Asks for many keys at once: `answers[i]` becomes what
    /// [`may_contain_hash`](Self::may_contain_hash) says of `hashes[i]`. The questions are taken in
    /// stages, so that their cache misses overlap.
    ///
    /// # Panics
    /// If the two slices differ in length.
    pub fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        assert_eq!(hashes.len(), answers.len(), "one answer for each hash");
        let bits = &self.bits;
        match self.header.kind {
            FilterKind::Paired => {
                self.kernel.run(paired::ContainsMany { bits, hashes, answers });
            }
            FilterKind::Blocked => {
                self.kernel.run(blocked::ContainsMany { bits, hashes, answers });
            }
            FilterKind::Standard => standard::contains_many(bits, hashes, answers),
            FilterKind::Ribbon => ribbon::contains_many(&bits.blocks, hashes, answers),
            FilterKind::None => answers.fill(true),
        }
    }

    /// Its cache lines.
    #[inline]
    pub(crate) fn blocks(&self) -> &[Block] {
        &self.bits.blocks
    }

    #[cfg(test)]
    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        &mut self.bits.blocks
    }

    /// The same filter, asked with the instructions of `kernel` from now on, if this processor has
    /// them. To measure and to compare: [`decode`](Self::decode) chooses the best.
    #[must_use]
    pub fn with_kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = Chosen::new(kernel).unwrap_or(self.kernel);
        self.ask = ask_for(self.header.kind, self.kernel);
        self
    }

    /// The instructions with which this filter is asked.
    pub fn kernel(&self) -> Kernel {
        self.kernel.kernel()
    }

    /// The expected rate of false positives that stands in the header of a filter that was just
    /// [finished](crate::FilterBuilder::finish), without the checks of [`decode`](Self::decode); 1
    /// for what is no filter.
    pub fn peek_expected_fpr(finished: &[u8]) -> f64 {
        format::peek_expected_fpr(finished).unwrap_or(1.0)
    }

    /// The kind of a filter that was just [finished](crate::FilterBuilder::finish), without the
    /// checks of [`decode`](Self::decode): [`FilterKind::Standard`] where the keys could not be
    /// built into the ribbon that was asked for. [`FilterKind::None`] for what is no filter.
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

    /// The exact expected rate of false positives of a filter of this kind, size and number of
    /// keys. Stored when the filter was built; costs nothing to read.
    pub fn expected_fpr(&self) -> f64 {
        self.header.expected_fpr
    }

    /// Bits per key as stored: the blocks' bits over the keys. 0 without keys.
    pub fn bits_per_key(&self) -> f64 {
        if self.header.keys == 0 {
            return 0.0;
        }
        (self.header.blocks * BLOCK_BITS) as f64 / self.header.keys as f64
    }

    /// Bits per key as asked for when the filter was built.
    pub fn requested_bits_per_key(&self) -> f64 {
        f64::from(self.header.millibits) / 1000.0
    }

    /// Bits that a positive answer looks at (a ribbon's columns, at most).
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

    /// Bytes of memory that the filter takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bits.blocks.capacity() * BLOCK_BYTES
    }
}

/// The code that answers the questions to a filter of `kind`.
fn ask_for(kind: FilterKind, kernel: Chosen) -> Ask {
    match kind {
        FilterKind::Paired => Ask::with::<paired::Contains>(kernel),
        FilterKind::Blocked => Ask::with::<blocked::Contains>(kernel),
        FilterKind::Standard => Ask::plainly(standard::contains),
        FilterKind::Ribbon => Ask::plainly(|bits, hash| ribbon::contains(&bits.blocks, hash)),
        FilterKind::None => Ask::plainly(|_, _| true),
    }
}
