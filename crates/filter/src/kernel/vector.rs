//! The code that the vector kernels share.
//!
//! A kernel's module provides `LANES`, `hits_few`, and the functions `hits_in_lanes` and
//! `set_in_lanes`, which test and set bits of a chain whose state in each lane is that lane's seed
//! times a power.
//!
//! `unsafe` is needed because instructions that a processor lacks must not be executed: a kernel's
//! type exists only if the processor reports them.

/// Implements `$kernel`, a proof that this processor has the instructions `$features`. A seed is
/// copied to all lanes by `$one`, the two seeds of a folded hash by `$both`.
macro_rules! vector_kernel {
    ($kernel:ident, $features:literal, [$($feature:tt),+], $one:ident, $both:ident) => {
        impl $kernel {
            pub(super) fn detect() -> Option<Self> {
                #[cfg(feature = "std")]
                let has = $(is_x86_feature_detected!($feature))&&+;
                #[cfg(not(feature = "std"))]
                let has = $(cfg!(target_feature = $feature))&&+;
                has.then_some(Self(()))
            }

            /// The code of `Q`, compiled for these instructions.
            pub(super) fn query_fn<Q: Query>(self) -> unsafe fn(&Bits, u64) -> bool {
                #[target_feature(enable = $features)]
                fn query<Q: Query>(bits: &Bits, hash: u64) -> bool {
                    Q::query($kernel(()), bits, hash)
                }
                query::<Q>
            }

            /// Runs `task`, compiled for these instructions.
            #[inline]
            pub(super) fn run<T: Task>(self, task: T) -> T::Answer {
                #[target_feature(enable = $features)]
                fn with_vectors<T: Task>(probe: $kernel, task: T) -> T::Answer {
                    task.run(probe)
                }
                // SAFETY: `self` exists only if the processor has these instructions.
                unsafe { with_vectors(self, task) }
            }
        }

        impl Probe for $kernel {
            const FEW: usize = LANES;

            #[inline(always)]
            fn hits_few<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool {
                // SAFETY: `self` exists only if the processor has these instructions.
                unsafe { hits_few::<RESERVED>(block, seed, count) }
            }

            #[inline(always)]
            fn hits<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool {
                #[inline]
                #[target_feature(enable = $features)]
                fn hits<const RESERVED: u32>(block: &Block, seed: u32, count: usize) -> bool {
                    let seeds = $one(seed.cast_signed());
                    hits_in_lanes::<RESERVED>(block, seeds, &LANES_OF_POWERS, count)
                }
                // SAFETY: `self` exists only if the processor has these instructions.
                unsafe { hits::<RESERVED>(block, seed, count) }
            }

            #[inline(always)]
            fn hits_both(self, block: &Block, folded: u64, count: usize) -> bool {
                #[inline]
                #[target_feature(enable = $features)]
                fn hits_both(block: &Block, folded: u64, count: usize) -> bool {
                    let seeds = $both(folded.cast_signed());
                    hits_in_lanes::<0>(block, seeds, &LANES_IN_TURN, count)
                }
                // SAFETY: `self` exists only if the processor has these instructions.
                unsafe { hits_both(block, folded, count) }
            }

            #[inline(always)]
            fn set<const RESERVED: u32>(self, block: &mut Block, seed: u32, count: usize) {
                #[inline]
                #[target_feature(enable = $features)]
                fn set<const RESERVED: u32>(block: &mut Block, seed: u32, count: usize) {
                    let seeds = $one(seed.cast_signed());
                    set_in_lanes::<RESERVED>(block, seeds, &LANES_OF_POWERS, count);
                }
                // SAFETY: `self` exists only if the processor has these instructions.
                unsafe { set::<RESERVED>(block, seed, count) }
            }

            #[inline(always)]
            fn set_both(self, block: &mut Block, folded: u64, count: usize) {
                #[inline]
                #[target_feature(enable = $features)]
                fn set_both(block: &mut Block, folded: u64, count: usize) {
                    let seeds = $both(folded.cast_signed());
                    set_in_lanes::<0>(block, seeds, &LANES_IN_TURN, count);
                }
                // SAFETY: `self` exists only if the processor has these instructions.
                unsafe { set_both(block, folded, count) }
            }
        }
    };
}

pub(super) use vector_kernel;
