//! How the keys of keyspaces share the one key space of the tree.
//!
//! A key of a named keyspace is stored with a header before it: four bytes of `FF` and the id of
//! the keyspace, big-endian. So the keys of a keyspace are one range of the tree, in their own
//! order, and all keyspaces follow the default one.
//!
//! | physical key              | holds |
//! |---------------------------|-------|
//! | any that does not begin with `FF FF FF FF` | the same key of the default keyspace |
//! | `FF FF FF FF`, id 0, key  | a key of the default keyspace that begins with `FF FF FF FF` |
//! | `FF FF FF FF`, id 1, name | the catalog: see [`keyspaces`](crate::keyspaces) |
//! | `FF FF FF FF`, id, key    | a key of the keyspace with this id, from 2 on |
//!
//! The keys of the default keyspace stay in their order: those with id 0 are larger than all others
//! and smaller than those of any other id. Until a store has its first named keyspace, all of its
//! keys are stored as they are ([`Space::Plain`]).

use std::borrow::Cow;

use crate::bounds::Bounds;

/// The first bytes of every physical key that has a header.
pub(crate) const MARKER: [u8; 4] = [0xff; 4];

/// Bytes before the key of a named keyspace.
pub(crate) const HEADER_BYTES: usize = 8;

/// The id of the default keyspace's keys that begin with [`MARKER`].
pub(crate) const DEFAULT_ID: u32 = 0;
/// The id of the catalog.
pub(crate) const CATALOG_ID: u32 = 1;
/// The largest id of a keyspace: it has a successor, at whose header its range ends.
pub(crate) const LAST_ID: u32 = u32::MAX - 1;

/// Whether `key` begins with the marker: as a key of the default keyspace it may have to be stored
/// under a header, as a physical key it may have one.
#[inline(always)]
pub(crate) fn is_marked(key: &[u8]) -> bool {
    key.first_chunk() == Some(&MARKER)
}

/// The id in the header of a physical key, in a store with keyspaces; `None` if it has no header.
pub(crate) fn id_of(physical: &[u8]) -> Option<u32> {
    let (marker, id) = physical.get(..HEADER_BYTES)?.split_at(MARKER.len());
    (marker == MARKER).then(|| id.iter().fold(0, |id, byte| id << 8 | u32::from(*byte)))
}

/// The user key of a physical key in a store with keyspaces.
pub(crate) fn user_key(physical: &[u8]) -> &[u8] {
    match id_of(physical) {
        Some(_) => &physical[HEADER_BYTES..],
        None => physical,
    }
}

/// The header of this id: the smallest physical key that has it.
#[expect(clippy::big_endian_bytes, reason = "keyspaces in the order of their ids")]
pub(crate) const fn header(id: u32) -> [u8; HEADER_BYTES] {
    let [a, b, c, d] = id.to_be_bytes();
    [0xff, 0xff, 0xff, 0xff, a, b, c, d]
}

/// How the keys of one keyspace are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// As they are: physical keys, and those of the default keyspace in a store that has never had
    /// another.
    Plain,
    /// The default keyspace of a store that has, or had, others.
    Default,
    /// With the header of this id.
    Named(u32),
}

/// Memory for the physical key of a short key.
#[derive(Debug)]
pub(crate) struct KeyBuffer {
    short: [u8; 64],
    long: Vec<u8>,
}

impl Default for KeyBuffer {
    fn default() -> Self {
        Self { short: [0; 64], long: Vec::new() }
    }
}

impl Space {
    /// The id in the header of `key`, if it is stored with one.
    #[inline]
    fn id_for(self, key: &[u8]) -> Option<u32> {
        match self {
            Self::Plain => None,
            Self::Default => is_marked(key).then_some(DEFAULT_ID),
            Self::Named(id) => Some(id),
        }
    }

    /// The physical key of `key`.
    pub(crate) fn key_in<'a>(self, key: &'a [u8], buffer: &'a mut KeyBuffer) -> &'a [u8] {
        let Some(id) = self.id_for(key) else { return key };
        let (header, len) = (header(id), HEADER_BYTES + key.len());
        match buffer.short.get_mut(..len) {
            Some(short) => {
                let (before, after) = short.split_at_mut(HEADER_BYTES);
                before.copy_from_slice(&header);
                after.copy_from_slice(key);
                short
            }
            None => {
                buffer.long.clear();
                buffer.long.extend_from_slice(&header);
                buffer.long.extend_from_slice(key);
                &buffer.long
            }
        }
    }

    /// The physical key of `key`, to keep.
    pub(crate) fn key(self, key: &[u8]) -> Cow<'_, [u8]> {
        match self.id_for(key) {
            None => Cow::Borrowed(key),
            Some(id) => Cow::Owned([&header(id), key].concat()),
        }
    }

    /// The physical keys of the keys within `bounds`. A range that ends before it starts still
    /// does.
    pub(crate) fn bounds(self, bounds: Bounds) -> Bounds {
        if self == Self::Plain {
            return bounds;
        }
        let physical = |bound: Vec<u8>| match self.key(&bound) {
            Cow::Owned(key) => key,
            Cow::Borrowed(_) => bound,
        };
        Bounds {
            from: physical(bounds.from),
            to: bounds.to.map(physical).or_else(|| self.end().map(|end| end.to_vec())),
        }
    }

    /// All physical keys of the keyspace.
    pub(crate) fn all(self) -> Bounds {
        self.bounds(Bounds::all())
    }

    /// The first physical key after those of the keyspace.
    pub(crate) fn end(self) -> Option<[u8; HEADER_BYTES]> {
        match self {
            Self::Plain => None,
            Self::Default => Some(header(CATALOG_ID)),
            Self::Named(id) => Some(header(id.saturating_add(1))),
        }
    }

    /// Whether a key of the keyspace is stored as `physical`.
    pub(crate) fn holds(self, physical: &[u8]) -> bool {
        match self {
            Self::Plain => true,
            Self::Default => id_of(physical).is_none_or(|id| id == DEFAULT_ID),
            Self::Named(id) => id_of(physical) == Some(id),
        }
    }

    /// The key that is stored as `physical`, a physical key of this keyspace.
    #[inline]
    pub(crate) fn strip(self, physical: &[u8]) -> &[u8] {
        match self {
            Self::Plain => physical,
            _ => physical.get(self.skipped(physical)..).unwrap_or_default(),
        }
    }

    /// Bytes of the header of `physical`, a physical key of this keyspace.
    pub(crate) fn skipped(self, physical: &[u8]) -> usize {
        if self.id_for(physical).is_some() { HEADER_BYTES } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&[u8]; 9] = [
        b"",
        b"a",
        b"\xff\xff\xff",
        b"\xff\xff\xff\xfe\xff",
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\0\0\0\0",
        b"\xff\xff\xff\xff\0\0\0\x01",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];

    #[test]
    fn keyspaces_keep_the_order_of_keys_and_lie_one_after_another() {
        let spaces = [Space::Default, Space::Named(1), Space::Named(2), Space::Named(LAST_ID)];
        let mut last: Option<Vec<u8>> = None;
        for space in spaces {
            for key in KEYS {
                let physical = space.key(key).into_owned();
                assert!(last.as_ref() < Some(&physical), "{space:?} {key:?}");
                assert_eq!(space.strip(&physical), key);
                assert_eq!(space.key_in(key, &mut KeyBuffer::default()), physical);
                let holders = spaces.iter().filter(|other| other.all().holds(&physical));
                assert_eq!(holders.collect::<Vec<_>>(), [&space]);
                let holders = spaces.iter().filter(|other| other.holds(&physical));
                assert_eq!(holders.collect::<Vec<_>>(), [&space]);
                last = Some(physical);
            }
        }
        let long = vec![7; 100];
        assert_eq!(Space::Named(3).key_in(&long, &mut KeyBuffer::default())[HEADER_BYTES..], long);
    }

    #[test]
    fn ranges_hold_the_physical_keys_of_their_keys_only() {
        let others = [Space::Default, Space::Named(1), Space::Named(2), Space::Named(3)];
        for (from, to) in KEYS.iter().flat_map(|from| KEYS.iter().map(move |to| (from, to))) {
            let range = Bounds { from: from.to_vec(), to: Some(to.to_vec()) };
            for range in [range.clone(), Bounds { to: None, ..range }] {
                for space in [Space::Default, Space::Named(2)] {
                    let physical = space.bounds(range.clone());
                    for (key, other) in KEYS.iter().flat_map(|key| others.map(|o| (key, o))) {
                        let expected = other == space && range.holds(key);
                        assert_eq!(physical.holds(&other.key(key)), expected, "{range:?} {key:?}");
                    }
                }
            }
        }
        assert!(Space::Plain.all().are_all());
    }

    #[test]
    fn headers_state_their_id() {
        assert_eq!(id_of(&Space::Named(0x0102_0304).key(b"k")), Some(0x0102_0304));
        assert_eq!(id_of(&MARKER), None);
        assert_eq!(id_of(b"\xff\xff\xff\xfe\0\0\0\0"), None);
    }
}
