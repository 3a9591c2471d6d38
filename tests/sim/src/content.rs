//! The bytes of a file in memory, in pages that copies share.
//!
//! A copy of a file costs a pointer per page; pages are copied on write. So a crash image that
//! differs from the disk in a few sectors costs those sectors' pages. Each page caches its hash, so
//! the hash of a shared page is computed once.
//!
//! Invariant: the bytes of the last page after the file's end are zero.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// Bytes in a page.
const PAGE: usize = 4096;

/// A file's bytes.
#[derive(Clone, Default)]
pub(crate) struct Content {
    pages: Vec<Arc<Page>>,
    bytes: u64,
}

struct Page {
    bytes: [u8; PAGE],
    hash: OnceLock<u64>,
}

impl Clone for Page {
    /// Pages are cloned to be changed, so the copy starts without a hash.
    fn clone(&self) -> Self {
        Self { bytes: self.bytes, hash: OnceLock::new() }
    }
}

impl Default for Page {
    fn default() -> Self {
        Self { bytes: [0; PAGE], hash: OnceLock::new() }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.bytes)
    }
}

impl Content {
    /// The file's length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds `data` at the end.
    pub(crate) fn append(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let at = (self.bytes % PAGE as u64) as usize;
            if at == 0 {
                self.pages.push(Arc::default());
            }
            let (now, later) = data.split_at(data.len().min(PAGE - at));
            if let Some(page) = self.pages.last_mut() {
                change(page)[at..at + now.len()].copy_from_slice(now);
            }
            self.bytes += now.len() as u64;
            data = later;
        }
    }

    /// Appends zeros, until the file has `bytes` bytes.
    pub(crate) fn lengthen(&mut self, bytes: u64) {
        static ZEROS: OnceLock<Arc<Page>> = OnceLock::new();
        if bytes > self.bytes {
            let pages = bytes.div_ceil(PAGE as u64) as usize;
            self.pages.resize(pages, Arc::clone(ZEROS.get_or_init(Arc::default)));
            self.bytes = bytes;
        }
    }

    /// Truncates the file to `bytes`, if it is longer.
    pub(crate) fn truncate(&mut self, bytes: u64) {
        if bytes >= self.bytes {
            return;
        }
        let end = bytes.next_multiple_of(PAGE as u64);
        self.zero(bytes, end);
        self.pages.truncate((end / PAGE as u64) as usize);
        self.bytes = bytes;
    }

    /// Overwrites `start..end` with zeros, up to the file's end.
    pub(crate) fn zero(&mut self, start: u64, end: u64) {
        let end = end.min(self.bytes);
        let mut from = start;
        while from < end {
            let at = (from % PAGE as u64) as usize;
            let length = (PAGE - at).min((end - from) as usize);
            if let Some(page) = self.pages.get_mut((from / PAGE as u64) as usize)
                && page.bytes[at..at + length].iter().any(|&byte| byte != 0)
            {
                change(page)[at..at + length].fill(0);
            }
            from += length as u64;
        }
    }

    /// Overwrites the bytes from `offset` on with `data`, up to the file's end.
    pub(crate) fn overwrite(&mut self, offset: u64, data: &[u8]) {
        let data = &data[..data.len().min(self.bytes.saturating_sub(offset) as usize)];
        let mut done = 0;
        while done < data.len() {
            let from = offset + done as u64;
            let at = (from % PAGE as u64) as usize;
            let length = (PAGE - at).min(data.len() - done);
            if let Some(page) = self.pages.get_mut((from / PAGE as u64) as usize) {
                change(page)[at..at + length].copy_from_slice(&data[done..done + length]);
            }
            done += length;
        }
    }

    /// Fills `buffer` from `offset`; the range must be inside the file.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) {
        assert!(offset + buffer.len() as u64 <= self.bytes, "a read past the end of the file");
        let mut offset = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let at = (offset % PAGE as u64) as usize;
            let length = rest.len().min(PAGE - at);
            let (now, later) = rest.split_at_mut(length);
            let page = &self.pages[(offset / PAGE as u64) as usize];
            now.copy_from_slice(&page.bytes[at..at + length]);
            offset += length as u64;
            rest = later;
        }
    }

    /// All bytes in one vector.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes as usize];
        self.read_at(0, &mut bytes);
        bytes
    }

    /// A hash of length and bytes. Equal contents have equal hashes, whatever their history.
    pub(crate) fn hash(&self) -> u64 {
        self.pages.iter().fold(mix(self.bytes, 0), |hash, page| {
            mix(hash, *page.hash.get_or_init(|| hash_bytes(&page.bytes)))
        })
    }
}

/// The bytes of the page for writing: copied if shared, and with the cached hash dropped.
fn change(page: &mut Arc<Page>) -> &mut [u8; PAGE] {
    let page = Arc::make_mut(page);
    page.hash = OnceLock::new();
    &mut page.bytes
}

/// Mixes `word` into `hash`. Not collision-resistant against adversaries: it distinguishes test
/// images.
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let product =
        u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * u128::from(word ^ 0xd6e8_feb8_6659_fd93);
    ((product >> 64) as u64 ^ product as u64).wrapping_add(hash.rotate_left(23))
}

/// A hash of `bytes`, including their length.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash =
        words.iter().fold(bytes.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(hash, u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i % 251) as u8 + 1).collect()
    }

    #[test]
    fn pieces_of_any_length_read_back_as_one() {
        let all = pattern(3 * PAGE + 17);
        for piece in [1, 7, 511, 512, 4095, 4096, 4097, all.len()] {
            let mut content = Content::default();
            for part in all.chunks(piece) {
                content.append(part);
            }
            assert_eq!(content.to_vec(), all);
            let mut middle = vec![0; 4100];
            content.read_at(4000, &mut middle);
            assert_eq!(middle, all[4000..8100]);
        }
    }

    #[test]
    fn lengthening_equals_appending_zeros() {
        for (length, to) in
            [(0, 0), (0, 1), (10, 5), (10, PAGE), (PAGE, 3 * PAGE + 1), (PAGE + 1, PAGE + 2)]
        {
            let (mut first, mut second) = (Content::default(), Content::default());
            first.append(&pattern(length));
            second.append(&pattern(length));
            first.lengthen(to as u64);
            second.append(&vec![0; to.saturating_sub(length)]);
            assert_eq!((first.to_vec(), first.hash()), (second.to_vec(), second.hash()));
            // Bytes written into the zeros do not change other contents.
            first.append(b"more");
            first.overwrite(0, b"new");
            let mut other = Content::default();
            other.lengthen(PAGE as u64);
            assert_eq!(other.to_vec(), [0; PAGE]);
        }
    }

    #[test]
    fn a_copy_shares_pages_and_a_change_stays_its_own() {
        let mut first = Content::default();
        first.append(&pattern(2 * PAGE + 10));
        let (bytes, hash) = (first.to_vec(), first.hash());
        let mut second = first.clone();
        second.zero(PAGE as u64 + 1, PAGE as u64 + 2);
        second.append(b"more");
        assert!(Arc::ptr_eq(&first.pages[0], &second.pages[0]));
        assert!(!Arc::ptr_eq(&first.pages[1], &second.pages[1]));
        assert_eq!((first.to_vec(), first.hash()), (bytes.clone(), hash));
        let mut expected = bytes;
        expected[PAGE + 1] = 0;
        expected.extend(b"more");
        assert_eq!(second.to_vec(), expected);
        assert_ne!(second.hash(), hash);
    }

    #[test]
    fn truncating_and_zeroing_match_a_vector() {
        for (start, end) in [(0, 0), (0, 1), (5, 5000), (4096, 8192), (4095, 9000), (8000, 20_000)]
        {
            let mut content = Content::default();
            let mut vector = pattern(2 * PAGE + 100);
            content.append(&vector);
            content.zero(start, end);
            let range = (start as usize).min(vector.len())..(end as usize).min(vector.len());
            vector[range].fill(0);
            assert_eq!(content.to_vec(), vector);
            content.overwrite(start, &[7; 5000]);
            let end = vector.len().min(start as usize + 5000);
            vector[(start as usize).min(end)..end].fill(7);
            assert_eq!(content.to_vec(), vector);
            for cut in [8200, 8192, 8191, 4096, 1, 0] {
                content.truncate(cut);
                vector.truncate(cut as usize);
                assert_eq!(content.to_vec(), vector);
            }
            content.append(&pattern(9000));
            assert_eq!(content.to_vec(), pattern(9000));
        }
    }

    #[test]
    fn hashes_depend_on_bytes_and_lengths_but_not_on_history() {
        let make = |pieces: &[&[u8]], cut: u64| {
            let mut content = Content::default();
            pieces.iter().for_each(|piece| content.append(piece));
            content.truncate(cut);
            content.hash()
        };
        assert_eq!(make(&[b"ab", b"c"], 9), make(&[b"abcdef"], 3));
        assert_ne!(make(&[b"abc"], 9), make(&[b"abd"], 9));
        assert_ne!(make(&[b"abc"], 9), make(&[b"abc\0"], 9));
        assert_ne!(make(&[], 9), make(&[b"\0"], 9));
        assert_ne!(make(&[&[0; 4096]], 9999), make(&[&[0; 4097]], 9999));
    }
}
