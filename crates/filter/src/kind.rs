//! The kinds of filters, and the range of their sizes.

use core::fmt;

/// The fewest thousandths of a bit per key: half a bit.
pub(crate) const MIN_MILLIBITS: u32 = 500;
/// The most thousandths of a bit per key: 64 bits.
pub(crate) const MAX_MILLIBITS: u32 = 64_000;

/// The one list of kinds. Most of their differences are a `match` without a `_` in this crate, so
/// that the compiler finds the places to extend for a new kind; other crates go through
/// [`FilterKind::ALL`]. The section "Filters" of `docs/architecture.md` has the rest.
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident = $name:literal,)*) => {
        /// The kind of a filter; the file format calls it a family.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum FilterKind {
            /// No filter: no bytes, no probe.
            None,
            $($(#[$about])* $kind,)*
        }

        impl FilterKind {
            /// Every kind of filter; [`FilterKind::None`] is none.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// The kind's name in a spec.
            pub fn name(self) -> &'static str {
                match self {
                    Self::None => "none",
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// One bit array; the best rate of a Bloom filter, and a cache miss per probe.
    Standard = "standard",
    /// One cache line per key; the fastest kind, and the worst rate from about 16 bits per key.
    Blocked = "blocked",
    /// Two cache lines per key, chosen so that all pairs are equally full; close to standard in
    /// rate and to blocked in speed.
    Paired = "paired",
    /// A solved system of equations; some 30% smaller than any Bloom filter of the same rate, and
    /// several times slower to build and to query.
    Ribbon = "ribbon",
    /// A table of small values, three for each key; some 20% smaller than any Bloom filter of the
    /// same rate, and three cache lines to query.
    Fuse = "fuse",
}

impl FilterKind {
    /// Whether filters of this kind can be queried with more than one instruction set
    /// ([`Kernel`](crate::Kernel)).
    pub const fn has_kernels(self) -> bool {
        match self {
            Self::None | Self::Standard | Self::Ribbon => false,
            Self::Blocked | Self::Paired | Self::Fuse => true,
        }
    }

    /// 0 for [`FilterKind::None`]; else one more than the kind's index in [`ALL`](Self::ALL). For
    /// tables by kind.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for FilterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_those_of_the_list() {
        assert_eq!(FilterKind::None.index(), 0);
        for (nth, kind) in FilterKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), nth + 1, "{kind}");
        }
    }

    #[test]
    fn kinds_that_are_compiled_for_each_instruction_set_have_kernels() {
        let with_kernels: Vec<_> =
            FilterKind::ALL.into_iter().filter(|kind| kind.has_kernels()).collect();
        assert_eq!(with_kernels, [FilterKind::Blocked, FilterKind::Paired, FilterKind::Fuse]);
    }
}
