//! The kinds of filters that are counted separately, and tables of a value per level and kind.

use trommel_filter::FilterKind;
use trommel_sstable::FilterLabel;

use crate::levels::LEVELS;

/// Filter kinds that are counted separately.
pub(crate) const KINDS: [FilterLabel; 6] = [
    FilterLabel::BuiltIn(FilterKind::None),
    FilterLabel::BuiltIn(FilterKind::Standard),
    FilterLabel::BuiltIn(FilterKind::Blocked),
    FilterLabel::BuiltIn(FilterKind::Paired),
    FilterLabel::BuiltIn(FilterKind::Ribbon),
    FilterLabel::User,
];

/// The index of `kind` in [`KINDS`].
#[inline]
pub(crate) fn kind_index(kind: FilterLabel) -> usize {
    match kind {
        FilterLabel::BuiltIn(FilterKind::Standard) => 1,
        FilterLabel::BuiltIn(FilterKind::Blocked) => 2,
        FilterLabel::BuiltIn(FilterKind::Paired) => 3,
        FilterLabel::BuiltIn(FilterKind::Ribbon) => 4,
        FilterLabel::User => 5,
        _ => 0,
    }
}

/// A value for each level and kind.
pub(crate) type ByKind<T> = [[T; KINDS.len()]; LEVELS];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_distinct_indexes() {
        for (place, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind_index(kind), place);
        }
    }
}
