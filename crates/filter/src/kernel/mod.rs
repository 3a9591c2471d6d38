//! Which instructions a filter's bits are tested with.
//!
//! 1. A [`Kernel`] is a set of instructions; [`Kernel::best`] is the best that this processor has,
//!    found out once. All kernels give the same answers, bit for bit.
//! 2. What asks one question is a [`Question`]. [`Ask`] is its code for one set of instructions,
//!    chosen when the filter is opened, so that asking is one call through a pointer.
//! 3. What builds or asks many is a [`Task`]. Its whole loop, not the single probe, is compiled
//!    once for each set of instructions ([`Chosen::run`]).
//! 4. Both are handed a [`Probe`], which tests the bits of a probe chain in one block.
//!
//! Scalar code tests bit after bit, four between two branches; AVX2 tests eight at once, AVX-512
//! sixteen. Vectors look up the words of a block with a permutation of registers (the block is one
//! or two of them), so a probe costs no memory access beyond the one load of its cache line. There
//! is no kernel for NEON: none that could be tested where this was written.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use crate::block::{Bits, Block};
#[cfg(target_arch = "x86_64")]
use crate::mix::POWERS;
use crate::mix::{Golden, Scheme};
pub(crate) use scalar::Scalar;
#[cfg(test)]
pub(crate) use scalar::{hits, set};

/// A set of instructions with which filters are asked. All give the same answers.
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
    /// Plain code, for every processor.
    Scalar,
    /// 256-bit vectors (x86-64 with AVX2 and BMI2).
    Avx2,
    /// 512-bit vectors (x86-64 with AVX-512 F and VL, and BMI2).
    Avx512,
}

impl Kernel {
    const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The best that this processor has.
    pub fn best() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Self::available().last().unwrap_or(Self::Scalar))
    }

    /// All that this processor has, from the plainest on.
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

impl std::error::Error for UnknownKernel {}

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
    /// `block`. Positions lie in `RESERVED..512`.
    fn hits<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool;

    /// Whether the first `count` positions (at most 64) of the two chains from the halves of
    /// `folded` are all set, in all 512 bits of `block`. The chains take turns, that of the low
    /// half first.
    #[inline(always)]
    fn hits_both(self, block: &Block, folded: u64, count: usize) -> bool {
        let (low, high) = Golden::seeds(folded);
        self.hits::<0>(block, low, count.div_ceil(2)) && self.hits::<0>(block, high, count / 2)
    }

    /// Sets the first `count` positions (at most 32) of the chain from `seed` in `block`.
    fn set<const RESERVED: u32>(self, block: &mut Block, seed: u32, count: usize);

    /// Sets the positions that [`hits_both`](Self::hits_both) looks at.
    #[inline(always)]
    fn set_both(self, block: &mut Block, folded: u64, count: usize) {
        let (low, high) = Golden::seeds(folded);
        self.set::<0>(block, low, count.div_ceil(2));
        self.set::<0>(block, high, count / 2);
    }
}

/// The powers that make the states of a chain, sixteen at a time.
#[cfg(target_arch = "x86_64")]
static LANES_OF_POWERS: [Block; 2] = lanes_of_powers(1);

/// The same for two chains that take turns.
#[cfg(target_arch = "x86_64")]
static LANES_IN_TURN: [Block; 4] = lanes_of_powers(2);

/// Each power `chains` times, one after the other.
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

/// Something that tests or sets bits. Its `run` must be inlined, so that it is compiled for the
/// instructions of the probe it is given.
pub(crate) trait Task {
    /// What it finds out.
    type Answer;

    /// Does it with `probe`.
    fn run<P: Probe>(self, probe: P) -> Self::Answer;
}

/// A kernel that this processor is known to have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Chosen {
    Scalar(Scalar),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
}

impl Chosen {
    /// `kernel`, if this processor has it.
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

    /// The best that this processor has.
    pub(crate) fn best() -> Self {
        Self::new(Kernel::best()).unwrap_or(Self::Scalar(Scalar))
    }

    /// Its name.
    pub(crate) fn kernel(self) -> Kernel {
        match self {
            Self::Scalar(_) => Kernel::Scalar,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Kernel::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Kernel::Avx512,
        }
    }

    /// Does `task` with these instructions.
    #[inline]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Answer {
        match self {
            Self::Scalar(scalar) => plainly(scalar, task),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.run(task),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.run(task),
        }
    }
}

/// The code that answers a filter's questions, compiled for one set of instructions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask(unsafe fn(&Bits, u64) -> bool);

impl Ask {
    /// Plain code.
    pub(crate) fn plainly(ask: fn(&Bits, u64) -> bool) -> Self {
        Self(ask)
    }

    /// `Q`, for the instructions of `chosen`.
    pub(crate) fn with<Q: Question>(chosen: Chosen) -> Self {
        Self(match chosen {
            Chosen::Scalar(_) => |bits, hash| Q::ask(Scalar, bits, hash),
            #[cfg(target_arch = "x86_64")]
            Chosen::Avx2(avx2) => avx2.asker::<Q>(),
            #[cfg(target_arch = "x86_64")]
            Chosen::Avx512(avx512) => avx512.asker::<Q>(),
        })
    }

    /// Asks `bits`.
    #[inline(always)]
    #[allow(unsafe_code, reason = "the code may be for instructions that not all processors have")]
    pub(crate) fn ask(self, bits: &Bits, hash: u64) -> bool {
        // SAFETY: such code comes only from `with`, and a `Chosen` that has it exists only if this
        // processor has the instructions.
        unsafe { self.0(bits, hash) }
    }
}

/// A question to a filter. Its `ask` must be inlined, so that it is compiled for the instructions
/// of the probe it is given.
pub(crate) trait Question {
    /// What the filter `bits` says of `hash`.
    fn ask<P: Probe>(probe: P, bits: &Bits, hash: u64) -> bool;
}

/// Does `task` with plain code. Apart, so that nobody saves registers for it who does without.
#[inline(never)]
fn plainly<T: Task>(scalar: Scalar, task: T) -> T::Answer {
    task.run(scalar)
}

/// Asks for the cache line of `block` without waiting for it.
#[inline(always)]
pub(crate) fn prefetch(block: &Block) {
    prefetch_at(std::ptr::from_ref(block).addr());
}

/// Asks the processor for the cache line at `address`, where there may be anything or nothing,
/// without waiting for it. Elsewhere than on x86-64 it does nothing.
#[inline(always)]
pub fn prefetch_at(address: usize) {
    ask_for::<INTO_FIRST>(address);
}

/// As [`prefetch_at`], but has the line come no nearer than the second cache: so more lines can be
/// on their way at once, and more of them find room.
#[inline(always)]
pub fn prefetch_into_second(address: usize) {
    ask_for::<INTO_SECOND>(address);
}

/// The hints of the instruction: T0 and T1.
const INTO_FIRST: i32 = 3;
const INTO_SECOND: i32 = 2;

#[inline(always)]
#[allow(unsafe_code, reason = "the intrinsic takes a pointer")]
fn ask_for<const HINT: i32>(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::_mm_prefetch;
        // SAFETY: a prefetch reads nothing that a program can see and never faults, whatever the
        // address. Every x86-64 processor has the instruction.
        unsafe { _mm_prefetch::<HINT>(std::ptr::without_provenance(address)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
