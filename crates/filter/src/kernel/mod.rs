//! Which instructions a filter's bits are tested with.
//!
//! 1. A [`Kernel`] is a set of instructions; [`Kernel::best`] is the best that this processor has,
//!    found out once. All kernels give the same answers, bit for bit.
//! 2. A question to a filter is a [`Task`]. [`Chosen::run`] hands it a [`Probe`], which tests the
//!    bits of one probe chain in one block. The task's whole loop, not the single probe, is
//!    compiled once for each set of instructions, so that nothing is called inside it.
//!
//! Scalar code tests bit after bit, four between two branches; AVX2 tests eight at once, AVX-512
//! sixteen. Vectors look up the words of a block with a permutation of registers (the block is one
//! or two of them), so a probe costs no memory access beyond the one load of its cache line. There is
//! no kernel for NEON: none that could be tested where this was written.

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

use crate::block::Block;
#[cfg(target_arch = "x86_64")]
use crate::mix::POWERS;
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
    /// Whether the first `count` positions (at most 32) of the chain from `seed` are all set in
    /// `block`. Positions lie in `RESERVED..512`.
    fn hits<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool;

    /// Whether the first `counts.0` positions of the chain from `seeds.0` and the first `counts.1`
    /// of that from `seeds.1` are all set, in all 512 bits of `block`.
    #[inline(always)]
    fn hits_both(self, block: &Block, seeds: (u32, u32), counts: (usize, usize)) -> bool {
        self.hits::<0>(block, seeds.0, counts.0) && self.hits::<0>(block, seeds.1, counts.1)
    }

    /// Sets the first `count` positions (at most 32) of the chain from `seed` in `block`.
    fn set<const RESERVED: u32>(self, block: &mut Block, seed: u32, count: usize);
}

/// Sixteen 32-bit numbers as they lie in a vector register.
#[cfg(target_arch = "x86_64")]
const fn lanes(numbers: [u32; 16]) -> Block {
    let mut words = [0; 8];
    let mut i = 0;
    while i < 16 {
        words[i / 2] |= (numbers[i] as u64) << (i % 2 * 32);
        i += 1;
    }
    Block(words)
}

/// The powers that make the states of a chain.
#[cfg(target_arch = "x86_64")]
static LANES_OF_POWERS: [Block; 2] = {
    let (mut low, mut high) = ([0; 16], [0; 16]);
    let mut i = 0;
    while i < 16 {
        low[i] = POWERS[i];
        high[i] = POWERS[16 + i];
        i += 1;
    }
    [lanes(low), lanes(high)]
};

/// For each length of a first chain, the powers of both chains, lane by lane: the second chain
/// begins in the lane behind the first one's end.
#[cfg(target_arch = "x86_64")]
static BOTH: [Block; 17] = {
    let mut both = [Block([0; 8]); 17];
    let mut first = 0;
    while first < both.len() {
        let mut powers = [0; 16];
        let mut lane = 0;
        while lane < powers.len() {
            powers[lane] = POWERS[if lane < first { lane } else { lane - first }];
            lane += 1;
        }
        both[first] = lanes(powers);
        first += 1;
    }
    both
};

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

/// Asks for the cache line at `address`, where there may be anything or nothing, without waiting for
/// it. Elsewhere than on x86-64 it does nothing.
#[inline(always)]
#[allow(unsafe_code, reason = "the intrinsic takes a pointer")]
pub(crate) fn prefetch_at(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that a program can see and never faults, whatever the
        // address. Every x86-64 processor has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
