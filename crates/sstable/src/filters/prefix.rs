//! Prefix extractors, and the check of their contract.

use std::fmt;

/// Extracts prefixes of keys, for filters that scans query.
///
/// # Contract
/// 1. The same key always has the same prefix, in every process. An extractor with any other
///    behaviour must have another [`name`](Self::name): a filter is only queried through the
///    extractor that it was built with, and only the name is stored.
/// 2. A prefix is the first bytes of its key.
/// 3. If the prefix of one key is `p`, then `p` is the prefix of every key that begins with `p`,
///    including `p` itself. So a range of keys that all begin with `p` can be skipped if a filter
///    does not hold `p`.
///
/// A breach that is detected while a table is built is reported by [`distrust`](Self::distrust),
/// and that table gets no filter of prefixes.
pub trait PrefixExtractor: Send + Sync + fmt::Debug {
    /// Its name, stored with each table.
    fn name(&self) -> &str;

    /// The length of the key's prefix; `None` for a key without one. A length beyond the key's own
    /// is a breach of the contract.
    fn prefix_len(&self, key: &[u8]) -> Option<usize>;

    /// Called when a breach of the contract was detected, with a description.
    fn distrust(&self, _breach: &'static str) {}
}

/// The prefix of `key`, if it has one.
#[inline]
pub fn prefix_of<'k>(extractor: &dyn PrefixExtractor, key: &'k [u8]) -> Option<&'k [u8]> {
    extractor.prefix_len(key).and_then(|len| key.get(..len))
}

/// Checks, key by key in order, that an extractor keeps its contract.
///
/// Keys that begin with one prefix are adjacent, so if one of them has a different prefix, two
/// neighbours differ: comparing neighbours finds every breach among the keys of a table.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    key: Vec<u8>,
    prefix_len: Option<usize>,
    begun: bool,
}

impl Watch {
    /// The prefix of the next key, or a description of the breach.
    pub(crate) fn next<'k>(
        &mut self,
        extractor: &dyn PrefixExtractor,
        key: &'k [u8],
    ) -> Result<Option<&'k [u8]>, &'static str> {
        let len = extractor.prefix_len(key);
        if len.is_some_and(|len| len > key.len()) {
            return Err("a prefix is longer than its key");
        }
        let prefix = len.and_then(|len| key.get(..len));
        let before = self.prefix_len.and_then(|len| self.key.get(..len));
        if prefix != before || !self.begun {
            let clash = before.is_some_and(|before| key.starts_with(before))
                || (self.begun && prefix.is_some_and(|prefix| self.key.starts_with(prefix)));
            if clash {
                return Err("two keys begin with a prefix that only one of them has");
            }
            if prefix.is_some_and(|prefix| extractor.prefix_len(prefix) != Some(prefix.len())) {
                return Err("a prefix is not the prefix of itself");
            }
        }
        self.begun = true;
        self.prefix_len = len;
        self.key.clear();
        self.key.extend_from_slice(key);
        Ok(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct By(fn(&[u8]) -> Option<usize>);

    impl PrefixExtractor for By {
        fn name(&self) -> &str {
            "by"
        }

        fn prefix_len(&self, key: &[u8]) -> Option<usize> {
            self.0(key)
        }
    }

    /// The breach that is detected over these keys.
    fn breach(rule: fn(&[u8]) -> Option<usize>, keys: &[&[u8]]) -> Option<&'static str> {
        let mut watch = Watch::default();
        keys.iter().find_map(|key| watch.next(&By(rule), key).err())
    }

    #[test]
    fn a_kept_contract_is_accepted() {
        let keys: [&[u8]; 7] = [b"", b"a", b"a/", b"a/b", b"ab", b"b/", b"b/\xff"];
        assert_eq!(breach(|key| (key.len() >= 2).then_some(2), &keys), None);
        assert_eq!(breach(|key| Some(key.iter().position(|b| *b == b'/')? + 1), &keys), None);
        assert_eq!(breach(|_| Some(0), &keys), None);
        assert_eq!(breach(|_| None, &keys), None);
    }

    #[test]
    fn a_breach_is_detected() {
        let longer = breach(|key| Some(key.len() + 1), &[b"a"]);
        assert_eq!(longer, Some("a prefix is longer than its key"));
        // The extractor excludes the delimiter: "a" alone has no prefix, though "a/b" has the
        // prefix "a".
        let open = |key: &[u8]| key.iter().position(|b| *b == b'/');
        assert_eq!(breach(open, &[b"a/b"]), Some("a prefix is not the prefix of itself"));
        let whole = |key: &[u8]| Some(key.len());
        let clash = Some("two keys begin with a prefix that only one of them has");
        assert_eq!(breach(whole, &[b"a", b"ab"]), clash);
        assert_eq!(breach(|key| (key.len() == 1).then_some(1), &[b"a", b"ab"]), clash);
        assert_eq!(breach(|key| (key != b"aa").then(|| key.len().min(1)), &[b"aa", b"ab"]), clash);
    }
}
