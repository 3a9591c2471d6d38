//! Doubt: which keys lost data may contain, so that their newest version is unknown.
//!
//! A remaining version is *certain* if every lost part whose key range contains its key holds only
//! older versions: the highest sequence number of the part, if known, is below that of the version.
//! Otherwise it is *doubtful*: a newer value or a deletion may be lost.

use crate::damage::{Damage, KeySpan};

/// A lost part of a store.
#[derive(Debug, Clone)]
pub(crate) struct Lost {
    /// The corruption. It concerns all keys if it names none.
    pub(crate) damage: Damage,
    /// No version in the part is newer than this.
    pub(crate) max_seqno: u64,
}

/// All lost parts, queried for ascending keys.
#[derive(Debug)]
pub(crate) struct Doubt {
    /// Parts that begin after the last key queried, the next one last.
    ahead: Vec<(KeySpan, u64)>,
    /// Parts that contain the last key queried.
    here: Vec<(KeySpan, u64)>,
    /// The highest sequence number of parts with unknown keys.
    everywhere: Option<u64>,
}

impl Doubt {
    pub(crate) fn new(lost: &[Lost]) -> Self {
        let mut everywhere = None;
        let mut ahead = Vec::new();
        for Lost { damage, max_seqno } in lost {
            match &damage.keys {
                Some(keys) => ahead.push((keys.clone(), *max_seqno)),
                None => everywhere = everywhere.max(Some(*max_seqno)),
            }
        }
        ahead.sort_by(|a, b| b.0.first.cmp(&a.0.first));
        Self { ahead, here: Vec::new(), everywhere }
    }

    /// Whether a newer version of `key` than the one with `seqno` may be lost. Keys must not
    /// descend between calls.
    pub(crate) fn is_doubtful(&mut self, key: &[u8], seqno: u64) -> bool {
        while let Some(next) = self.ahead.pop_if(|(keys, _)| *keys.first <= *key) {
            self.here.push(next);
        }
        self.here.retain(|(keys, _)| *key <= *keys.last);
        let highest = self.here.iter().map(|(_, max)| *max).max().max(self.everywhere);
        highest.is_some_and(|highest| highest > seqno)
    }
}

/// The union of all key ranges: disjoint, ascending.
pub(crate) fn spans<'a>(keys: impl Iterator<Item = &'a KeySpan>) -> Vec<KeySpan> {
    let mut keys: Vec<&KeySpan> = keys.collect();
    keys.sort();
    let mut joined: Vec<KeySpan> = Vec::new();
    for span in keys {
        match joined.last_mut() {
            Some(last) if span.first <= last.last => {
                if span.last > last.last {
                    last.last.clone_from(&span.last);
                }
            }
            _ => joined.push(span.clone()),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::damage::Remedy;

    fn lost(keys: Option<(&str, &str)>, max_seqno: u64) -> Lost {
        let mut damage = Damage::at(Path::new("f"), 0, "lost", Remedy::RestoreOrRepair);
        damage.keys = keys.map(|(first, last)| KeySpan::new(first.as_bytes(), last.as_bytes()));
        Lost { damage, max_seqno }
    }

    #[test]
    fn versions_newer_than_the_lost_part_are_certain() {
        let pieces = [lost(Some(("b", "d")), 10), lost(Some(("c", "f")), 20)];
        let mut doubt = Doubt::new(&pieces);
        for (key, seqno, doubtful) in [
            ("a", 1, false),
            ("b", 9, true),
            ("b", 10, false),
            ("c", 15, true),
            ("d", 21, false),
            ("e", 15, true),
            ("f", 19, true),
            ("g", 1, false),
        ] {
            assert_eq!(doubt.is_doubtful(key.as_bytes(), seqno), doubtful, "{key} {seqno}");
        }
        let mut doubt = Doubt::new(&[lost(None, 5)]);
        assert!(doubt.is_doubtful(b"x", 4) && !doubt.is_doubtful(b"y", 5));
        let keys: Vec<KeySpan> =
            pieces.iter().filter_map(|lost| lost.damage.keys.clone()).collect();
        assert_eq!(spans(keys.iter()), [KeySpan::new(b"b", b"f")]);
    }
}
