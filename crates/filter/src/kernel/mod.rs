//! The instruction sets with which filters are queried and built.
//!
//! 1. A [`Kernel`] is an instruction set; [`Kernel::best`] is the best that this processor
//!    supports, detected once. All kernels give the same answers, bit for bit.
//! 2. A [`Query`] is the code of one query. A [`QueryFn`] is that code for one instruction set,
//!    chosen when the filter is opened, so that a query is one call through a pointer.
//! 3. A [`Task`] builds a filter or queries it many times. Its whole loop, not the single probe, is
//!    compiled once for each instruction set ([`Chosen::run`]).
//! 4. Both use a [`Probe`], which tests the bits of a probe chain in one block.
//!
//! Scalar code tests one bit at a time, four per branch; AVX2 tests eight at once, AVX-512 sixteen.
//! Vectors look up the words of a block by permuting registers (a block is one or two registers),
//! so a probe costs no memory access beyond the one load of its cache line. There is no kernel for
//! NEON: it could not be tested on the machines of this project.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vector;

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::block::{Bits, Block};
#[cfg(target_arch = "x86_64")]
use crate::mix::POWERS;
use crate::mix::{Golden, Scheme};
use crate::once::OnceLock;
pub(crate) use scalar::Scalar;
#[cfg(test)]
pub(crate) use scalar::{hits, set};

/// An instruction set with which filters are queried. All give the same answers.
///
/// ```
/// use trommel_filter::{Filter, FilterSpec, Kernel};
///
/// let mut builder = "paired:16".parse::<FilterSpec>()?.builder();
/// builder.add(b"amber");
/// let filter = Filter::decode(builder.finish())?;
/// for kernel in Kernel::available() {
///     assert!(filter.clone().with_kernel(kernel).may_contain(b"amber"));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// Portable code, for every processor.
    Scalar,
    /// 256-bit vectors (x86-64 with AVX2 and BMI2).
    Avx2,
    /// 512-bit vectors (x86-64 with AVX-512 F and VL, and BMI2).
    Avx512,
}

impl Kernel {
    const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The best that this processor supports.
    pub fn best() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Self::available().last().unwrap_or(Self::Scalar))
    }

    /// All that this processor supports, the simplest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kernel| Chosen::new(*kernel).is_some())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No kernel has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKernel(String);

impl fmt::Display for UnknownKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no kernel \"{}\": there are scalar, avx2 and avx512", self.0)
    }
}

impl core::error::Error for UnknownKernel {}

impl FromStr for Kernel {
    type Err = UnknownKernel;

    fn from_str(text: &str) -> Result<Self, UnknownKernel> {
        let named = Self::ALL.into_iter().find(|kernel| kernel.name() == text);
        named.ok_or_else(|| UnknownKernel(text.into()))
    }
}

/// Tests and sets the bits of probe chains.
pub(crate) trait Probe: Copy {
    /// Positions of one chain that [`hits_few`](Self::hits_few) can test.
    const FEW: usize;

    /// [`hits`](Self::hits) for a `count` of at most [`FEW`](Self::FEW), without a branch.
    fn hits_few<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool;

    /// Whether the first `count` positions (at most 32) of the chain from `seed` are all set in
    /// `block`. Positions are in `RESERVED..512`.
    fn hits<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool;

    /// Whether the first `count` positions (at most 64) of the two chains from the halves of
    /// `folded` are all set, in all 512 bits of `block`. The chains alternate, the low half's
    /// first.
    #[inline(always)]
    fn hits_both(self, block: &Block, folded: u64, count: usize) -> bool {
        let (low, high) = Golden::seeds(folded);
        self.hits::<0>(block, low, count.div_ceil(2)) && self.hits::<0>(block, high, count / 2)
    }

    /// Sets the first `count` positions (at most 32) of the chain from `seed` in `block`.
    fn set<const RESERVED: u32>(self, block: &mut Block, seed: u32, count: usize);

    /// Sets the positions that [`hits_both`](Self::hits_both) tests.
    #[inline(always)]
    fn set_both(self, block: &mut Block, folded: u64, count: usize) {
        let (low, high) = Golden::seeds(folded);
        self.set::<0>(block, low, count.div_ceil(2));
        self.set::<0>(block, high, count / 2);
    }
}

/// The powers for the states of a chain, sixteen at a time.
#[cfg(target_arch = "x86_64")]
static LANES_OF_POWERS: [Block; 2] = lanes_of_powers(1);

/// The same for two alternating chains.
#[cfg(target_arch = "x86_64")]
static LANES_IN_TURN: [Block; 4] = lanes_of_powers(2);

/// Each power repeated `chains` times.
#[cfg(target_arch = "x86_64")]
const fn lanes_of_powers<const BLOCKS: usize>(chains: usize) -> [Block; BLOCKS] {
    let mut blocks = [Block([0; 8]); BLOCKS];
    let mut i = 0;
    while i < 16 * BLOCKS {
        blocks[i / 16].0[i % 16 / 2] |= (POWERS[i / chains] as u64) << (i % 2 * 32);
        i += 1;
    }
    blocks
}

/// Code that tests or sets bits. Its `run` must be inlined, so that it is compiled for the
/// instructions of its probe.
pub(crate) trait Task {
    /// The result.
    type Answer;

    /// Runs the task with `probe`.
    fn run<P: Probe>(self, probe: P) -> Self::Answer;
}

/// A kernel that this processor is known to support.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Chosen {
    Scalar(Scalar),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
}

impl Chosen {
    /// `kernel`, if this processor supports it.
    pub(crate) fn new(kernel: Kernel) -> Option<Self> {
        match kernel {
            Kernel::Scalar => Some(Self::Scalar(Scalar)),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => avx2::Avx2::detect().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => avx512::Avx512::detect().map(Self::Avx512),
            #[cfg(not(target_arch = "x86_64"))]
            _ => None,
        }
    }

    /// The best that this processor supports.
    pub(crate) fn best() -> Self {
        Self::new(Kernel::best()).unwrap_or(Self::Scalar(Scalar))
    }

    /// The kernel's public identifier.
    pub(crate) fn kernel(self) -> Kernel {
        match self {
            Self::Scalar(_) => Kernel::Scalar,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Kernel::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Kernel::Avx512,
        }
    }

    /// Runs `task` with these instructions.
    #[inline]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Answer {
        match self {
            Self::Scalar(scalar) => run_portable(scalar, task),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.run(task),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.run(task),
        }
    }
}

/// The query function of a filter, compiled for one instruction set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueryFn(unsafe fn(&Bits, u64) -> bool);

impl QueryFn {
    /// Portable code.
    pub(crate) fn portable(query: fn(&Bits, u64) -> bool) -> Self {
        Self(query)
    }

    /// `Q`, for the instructions of `chosen`.
    pub(crate) fn with<Q: Query>(chosen: Chosen) -> Self {
        Self(match chosen {
            Chosen::Scalar(_) => |bits, hash| Q::query(Scalar, bits, hash),
            #[cfg(target_arch = "x86_64")]
            Chosen::Avx2(avx2) => avx2.query_fn::<Q>(),
            #[cfg(target_arch = "x86_64")]
            Chosen::Avx512(avx512) => avx512.query_fn::<Q>(),
        })
    }

    /// Queries `bits`.
    #[inline(always)]
    #[allow(unsafe_code, reason = "the code may be for instructions that not all processors have")]
    pub(crate) fn query(self, bits: &Bits, hash: u64) -> bool {
        // SAFETY: code for special instructions comes only from `with`, and its `Chosen` exists
        // only if this processor supports them.
        unsafe { self.0(bits, hash) }
    }
}

/// The code of a query. Its `query` must be inlined, so that it is compiled for the instructions of
/// its probe.
pub(crate) trait Query {
    /// Whether the filter `bits` may contain `hash`.
    fn query<P: Probe>(probe: P, bits: &Bits, hash: u64) -> bool;
}

/// Runs `task` with portable code. Not inlined, so that other paths do not save registers for it.
#[inline(never)]
fn run_portable<T: Task>(scalar: Scalar, task: T) -> T::Answer {
    task.run(scalar)
}

/// The eight bytes of the encoding of `blocks` from `byte` on; 0 if there are fewer.
#[inline(always)]
#[cfg_attr(
    target_endian = "little",
    allow(unsafe_code, reason = "an unaligned read takes a pointer")
)]
pub(crate) fn load(blocks: &[Block], byte: usize) -> u64 {
    if byte.saturating_add(8) > size_of_val(blocks) {
        return 0;
    }
    #[cfg(target_endian = "little")]
    {
        // SAFETY: the eight bytes are within the blocks, as was just checked, and a block is 64
        // initialized bytes.
        unsafe { blocks.as_ptr().byte_add(byte).cast::<u64>().read_unaligned() }
    }
    #[cfg(not(target_endian = "little"))]
    {
        let word = |at: usize| blocks.get(at / 8).map_or(0, |block| block.0[at % 8]);
        let shift = byte % 8 * 8;
        word(byte / 8) >> shift | word(byte / 8 + 1) << 1 << (63 - shift)
    }
}

/// Prefetches the cache line of `block`.
#[inline(always)]
pub(crate) fn prefetch(block: &Block) {
    prefetch_at(core::ptr::from_ref(block).addr());
}

/// Prefetches the cache line at `address`, which need not be valid. Does nothing on processors
/// other than x86-64.
#[inline(always)]
pub fn prefetch_at(address: usize) {
    prefetch_with_hint::<INTO_FIRST>(address);
}

/// Like [`prefetch_at`], but brings the line only into the second-level cache, so that more lines
/// can be in flight and more of them fit.
#[inline(always)]
pub fn prefetch_into_second(address: usize) {
    prefetch_with_hint::<INTO_SECOND>(address);
}

/// The hints of the instruction: T0 and T1.
const INTO_FIRST: i32 = 3;
const INTO_SECOND: i32 = 2;

#[inline(always)]
#[allow(unsafe_code, reason = "the intrinsic takes a pointer")]
fn prefetch_with_hint<const HINT: i32>(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::_mm_prefetch;
        // SAFETY: a prefetch has no visible effect and never faults, whatever the address. Every
        // x86-64 processor has the instruction.
        unsafe { _mm_prefetch::<HINT>(core::ptr::without_provenance(address)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
