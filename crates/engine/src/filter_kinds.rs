//! The kinds of filters that are counted separately, and tables of a value per level and kind.

use trommel_filter::FilterKind;
use trommel_sstable::FilterLabel;

use crate::levels::LEVELS;

/// Filter kinds of keys that are counted separately: none, the built-in ones, and those of users.
pub(crate) const KINDS: [FilterLabel; FilterKind::ALL.len() + 2] = {
    let mut kinds = [FilterLabel::User; FilterKind::ALL.len() + 2];
    kinds[0] = FilterLabel::BuiltIn(FilterKind::None);
    let mut nth = 0;
    while nth < FilterKind::ALL.len() {
        kinds[nth + 1] = FilterLabel::BuiltIn(FilterKind::ALL[nth]);
        nth += 1;
    }
    kinds
};

/// The index of `kind` in [`KINDS`].
#[inline]
pub(crate) fn kind_index(kind: FilterLabel) -> usize {
    match kind {
        FilterLabel::BuiltIn(kind) => kind.index(),
        _ => KINDS.len() - 1,
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
