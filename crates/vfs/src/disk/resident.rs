//! Whether a part of a map is in memory, according to the system.
//!
//! An access hint for a MiB takes 15 us if all of it is in memory, as the system checks each page.
//! Checking one page in each quarter of it takes 1 us.

#![allow(unsafe_code)]

use std::ops::Range;

use memmap2::Mmap;

/// A page, in bytes; on systems with larger pages the check fails.
const PAGE_BYTES: usize = 4096;
/// The range per checked page.
const SAMPLED_BYTES: usize = 256 << 10;

/// Whether the sampled pages of this range, its last and some before it, are in memory. Linux
/// reports all pages as resident for a file that this process neither owns nor may write.
pub(super) fn is_in_memory(map: &Mmap, range: Range<usize>) -> bool {
    let mut sampled = range.rev().step_by(SAMPLED_BYTES);
    sampled.all(|at| is_page_in_memory(map, at - at % PAGE_BYTES))
}

fn is_page_in_memory(map: &Mmap, at: usize) -> bool {
    let Some(page) = map.get(at..) else { return false };
    let mut is_there = 0_u8;
    // SAFETY: the address is within a map that is borrowed here, the call reads nothing through it,
    // and it writes one byte per page, for one page.
    let outcome = unsafe { libc::mincore(page.as_ptr().cast_mut().cast(), 1, &raw mut is_there) };
    outcome == 0 && is_there & 1 == 1
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a file that is not opened as a store's are")]

    use std::fs::File;
    use std::io::Write;
    use std::time::Duration;

    use rustix::fs::{Advice, fadvise};

    use super::*;
    use crate::Access;
    use crate::disk::read::reader;

    const BYTES: usize = 2 << 20;
    /// The magic number of the file system that keeps files in memory only.
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;

    fn file() -> (tempfile::TempDir, File) {
        // Not with other temporary files, which may only be in memory.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(&vec![7; BYTES]).unwrap();
        file.sync_all().unwrap();
        (dir, file)
    }

    /// Drops the file from the page cache. False on a file system that only has memory.
    fn is_dropped(file: &File, map: &Mmap) -> bool {
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
        let is_dropped = !is_in_memory(map, 0..BYTES);
        assert!(is_dropped || rustix::fs::fstatfs(file).unwrap().f_type == TMPFS);
        is_dropped
    }

    #[test]
    fn written_pages_are_in_memory_until_they_are_dropped() {
        let (_dir, file) = file();
        let map = crate::disk::map::map(&file, BYTES).unwrap();
        assert!(is_in_memory(&map, 0..BYTES));
        if !is_dropped(&file, &map) {
            return;
        }
        // A part of it: the last page of a range is checked, whatever comes before it.
        let mut part = [0; 100];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut part, BYTES as u64 - 200).unwrap();
        assert!(!is_in_memory(&map, 0..BYTES));
        assert!(is_in_memory(&map, BYTES - 300..BYTES - 100));
        assert!(!is_in_memory(&map, 5000..6000));
    }

    #[test]
    fn will_need_reads_a_long_range_of_a_map() {
        let (dir, file) = file();
        let map = crate::disk::map::map(&file, BYTES).unwrap();
        if !is_dropped(&file, &map) {
            return;
        }
        let advised = reader(file, dir.path(), Access::Mapped).unwrap();
        advised.will_need(0, BYTES / 2);
        let brought = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            is_in_memory(&map, 0..BYTES / 2)
        });
        assert!(brought, "it was not brought within ten seconds");
        assert!(!is_in_memory(&map, BYTES / 2..BYTES));
    }
}
