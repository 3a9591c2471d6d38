//! Appending to a file on disk.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::in_use::Claim;
use super::prealloc::Prealloc;
use super::system::FileExt;
use super::write_back;
use crate::WriteFile;
use crate::error::wrap;

/// A created file, written at its end by `pwrite`.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// The offset up to which writeback was started.
    written_back_to: u64,
    prealloc: Prealloc,
    /// The end of the preallocated zeros.
    zeros_to: u64,
    /// The length of the overwritten file, until its tail is truncated.
    old_bytes: u64,
    /// Keeps other writers from overwriting the file; released after the last use of it.
    _claim: Claim,
}

impl Writer {
    /// A writer of a new file.
    pub(super) fn new(file: File, path: &Path) -> io::Result<Self> {
        let (claim, _) = Claim::shared(&file)?;
        Ok(Self::over(file, path, 0, claim))
    }

    /// A writer that begins at the start of `file`, overwriting its `old_bytes` bytes.
    pub(super) fn over(file: File, path: &Path, old_bytes: u64, claim: Claim) -> Self {
        let (path, prealloc) = (path.to_path_buf(), Prealloc::default());
        Self {
            file,
            path,
            bytes: 0,
            written_back_to: 0,
            prealloc,
            zeros_to: 0,
            old_bytes,
            _claim: claim,
        }
    }

    /// Truncates the tail of the overwritten file.
    fn cut_rest(&mut self) -> io::Result<()> {
        if self.old_bytes > self.bytes {
            self.file.set_len(self.bytes)?;
        }
        self.old_bytes = 0;
        Ok(())
    }
}

impl WriteFile for Writer {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { file, path, bytes: end, .. } = self;
        write_fully(bytes, end, |rest, offset| file.write_at(rest, offset))
            .map_err(|error| wrap("write to", path, error))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.cut_rest().map_err(|error| wrap("truncate", &self.path, error))?;
        // fdatasync: the data, and the metadata needed to read it back (the length).
        self.file.sync_data().map_err(|error| wrap("sync", &self.path, error))
    }

    fn start_write_back(&mut self) {
        let from = std::mem::replace(&mut self.written_back_to, self.bytes);
        write_back::start(&self.file, from..self.bytes);
    }

    fn set_space_aside(&mut self, bytes: u64) -> io::Result<()> {
        let wanted = self.bytes..self.bytes.saturating_add(bytes);
        self.prealloc
            .set(&self.file, wanted)
            .map_err(|error| wrap("preallocate space for", &self.path, error))
    }

    fn write_zeros_ahead(&mut self, bytes: u64) -> io::Result<()> {
        const ZEROS: &[u8] = &[0; 64 << 10];
        let mut write = || -> io::Result<()> {
            // The tail of an older file is not zeros.
            self.cut_rest()?;
            self.zeros_to = self.zeros_to.max(self.bytes);
            while self.zeros_to < bytes {
                let left = usize::try_from(bytes - self.zeros_to).unwrap_or(usize::MAX);
                let (file, zeros) = (&self.file, &ZEROS[..left.min(ZEROS.len())]);
                write_fully(zeros, &mut self.zeros_to, |rest, offset| file.write_at(rest, offset))?;
            }
            Ok(())
        };
        let written = write();
        if written.is_err() {
            self.give_space_back();
        }
        written.map_err(|error| wrap("append zeros to", &self.path, error))
    }

    fn give_space_back(&mut self) {
        if std::mem::take(&mut self.zeros_to) > self.bytes {
            // If this fails, they stay.
            let _ = self.file.set_len(self.bytes);
        }
        self.prealloc.release(&self.file, self.bytes);
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A caller that needs the content has synced it.
        let _ = self.cut_rest();
        // A child process between fork and exec has a copy of the file, and of its lock, which
        // would keep others from overwriting the file.
        let _ = self.file.unlock();
    }
}

/// Calls `write(rest, offset)` until all of `bytes` is written, advancing `end` by the written
/// length.
fn write_fully(
    mut bytes: &[u8],
    end: &mut u64,
    mut write: impl FnMut(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match write(bytes, *end) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => {
                *end += written as u64;
                bytes = bytes.get(written..).unwrap_or_default();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DiskVfs, Vfs};

    #[test]
    fn write_back_begun_early_changes_no_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = DiskVfs.create(&path).unwrap();
        drop(file);
        #[expect(
            clippy::disallowed_methods,
            reason = "a writer by itself, without the file system"
        )]
        let file = File::options().write(true).open(&path).unwrap();
        let mut writer = Writer::new(file, &path).unwrap();
        writer.start_write_back();
        for piece in [&[1_u8; 5_000][..], &[], &[2; 3]] {
            writer.append(piece).unwrap();
            let end = writer.bytes();
            writer.start_write_back();
            assert_eq!((writer.written_back_to, writer.bytes), (end, end));
        }
        writer.sync().unwrap();
        let mut expected = vec![1; 5_000];
        expected.extend([2; 3]);
        let read = DiskVfs.read(&path, 6_000).unwrap();
        assert_eq!(read, expected);
    }

    /// The blocks of 512 bytes that the system counts for `file`.
    #[cfg(target_os = "linux")]
    fn blocks(file: &File) -> u64 {
        std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap())
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn preallocation_and_its_release_change_no_byte() {
        const ASIDE: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        drop(DiskVfs.create(&path).unwrap());
        #[expect(
            clippy::disallowed_methods,
            reason = "a writer by itself, without the file system"
        )]
        let file = File::options().write(true).open(&path).unwrap();
        let mut writer = Writer::new(file, &path).unwrap();
        writer.append(b"before").unwrap();
        writer.sync().unwrap();
        let before = blocks(&writer.file);
        writer.set_space_aside(ASIDE).unwrap();
        // On file systems without this call nothing is preallocated.
        let can = !writer.prealloc.is_refused();
        assert_eq!(blocks(&writer.file) >= before + ASIDE / 512 - 16, can);
        writer.append(b" and behind").unwrap();
        assert_eq!(writer.file.metadata().unwrap().len(), 17);
        writer.give_space_back();
        writer.sync().unwrap();
        assert!(blocks(&writer.file) <= before + 16, "the space was kept");
        assert_eq!(DiskVfs.read(&path, 100).unwrap(), b"before and behind");
    }

    #[test]
    fn zeros_written_ahead_are_truncated_and_change_no_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut writer = DiskVfs.create(&path).unwrap();
        let read = || DiskVfs.read(&path, 1 << 20).unwrap();
        let ahead = |appended: &[u8], zeros: usize| [appended, &vec![0; zeros]].concat();
        writer.append(b"before").unwrap();
        writer.write_zeros_ahead(200_000).unwrap();
        assert_eq!(read(), ahead(b"before", 199_994));
        writer.append(b" and behind").unwrap();
        writer.sync().unwrap();
        assert_eq!((read(), writer.bytes()), (ahead(b"before and behind", 199_983), 17));
        // Fewer than there are, and more.
        writer.write_zeros_ahead(100).unwrap();
        writer.append(&[7; 200_000]).unwrap();
        writer.write_zeros_ahead(200_020).unwrap();
        writer.write_zeros_ahead(200_030).unwrap();
        let all = [&b"before and behind"[..], &[7; 200_000]].concat();
        assert_eq!(read(), ahead(&all, 13));
        writer.give_space_back();
        assert_eq!(read(), all);
        writer.append(b".").unwrap();
        writer.sync().unwrap();
        assert_eq!(read(), [&all[..], b"."].concat());
    }

    /// Writes `"0123456789"` with each call answered from `answers`. Returns the written bytes, the
    /// end, and the result.
    fn run(answers: &[Result<usize, i32>]) -> (Vec<u8>, u64, io::Result<()>) {
        let mut answers = answers.iter();
        let mut got = Vec::new();
        let mut end = 100;
        let result = write_fully(b"0123456789", &mut end, |rest, offset| {
            assert_eq!(offset, 100 + got.len() as u64, "each piece goes where the last one ended");
            let answer = answers.next().expect("a call more than was expected");
            let written = answer.map_err(io::Error::from_raw_os_error)?;
            got.extend_from_slice(&rest[..written]);
            Ok(written)
        });
        assert!(answers.next().is_none(), "a call fewer than was expected");
        (got, end, result)
    }

    #[test]
    fn short_writes_and_interrupts_are_carried_on() {
        const EINTR: i32 = 4;
        let (got, end, result) = run(&[Ok(3), Err(EINTR), Err(EINTR), Ok(1), Ok(6)]);
        assert_eq!((got.as_slice(), end), (&b"0123456789"[..], 110));
        result.expect("all was written");
    }

    #[test]
    fn a_failed_write_advances_by_the_written_bytes() {
        let (got, end, result) = run(&[Ok(3), Err(28)]);
        assert_eq!((got.as_slice(), end), (&b"012"[..], 103));
        assert_eq!(result.expect_err("full").kind(), ErrorKind::StorageFull);
    }

    #[test]
    fn a_write_of_nothing_is_an_error_and_no_endless_loop() {
        let (_, _, result) = run(&[Ok(2), Ok(0)]);
        assert_eq!(result.expect_err("no progress").kind(), ErrorKind::WriteZero);
    }
}
