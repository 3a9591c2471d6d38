use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::disk::read::DirectHandle;
use crate::{Access, DiskVfs, ReadFile, Vfs};

/// The rings of one test; `None` if the system has none, or does not support direct files here.
fn rings(dir: &Path) -> Option<Rings> {
    let probe = opened(dir, "probe", 1);
    (probe.direct_handle().is_some() && Ring::new().is_ok()).then(Rings::new)
}

fn byte(of: usize, at: usize) -> u8 {
    (at % 251 + at / 4096 + of * 17) as u8
}

fn path(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}

/// A direct file of this many bytes, whose content depends on file number and offset.
fn numbered(dir: &Path, of: usize, bytes: usize) -> Arc<dyn ReadFile> {
    let path = path(dir, &format!("{of}.sst"));
    let content: Vec<u8> = (0..bytes).map(|at| byte(of, at)).collect();
    DiskVfs.create(&path).unwrap().append(&content).unwrap();
    DiskVfs.open(&path, Access::Direct).unwrap()
}

fn opened(dir: &Path, name: &str, bytes: usize) -> Arc<dyn ReadFile> {
    let path = path(dir, name);
    DiskVfs.create(&path).unwrap().append(&vec![7; bytes]).unwrap();
    DiskVfs.open(&path, Access::Direct).unwrap()
}

/// Pieces, by file number, offset and length, and the result of each.
struct Received<'a> {
    files: &'a [Arc<dyn ReadFile>],
    wanted: slice::Iter<'a, (usize, u64, usize)>,
    pieces: Vec<Option<Vec<u8>>>,
    meanwhile: usize,
    panics_at: usize,
}

impl<'a> Received<'a> {
    fn new(files: &'a [Arc<dyn ReadFile>], wanted: &'a [(usize, u64, usize)]) -> Self {
        let pieces = vec![None; wanted.len()];
        Self { files, wanted: wanted.iter(), pieces, meanwhile: 0, panics_at: usize::MAX }
    }

    fn numbers(&self) -> Vec<usize> {
        (0..self.pieces.len()).filter(|nth| self.pieces[*nth].is_some()).collect()
    }
}

impl<'a> Pieces<'a> for Received<'a> {
    fn next(&mut self) -> Option<Piece<'a>> {
        let &(of, offset, bytes) = self.wanted.next()?;
        Some(Piece { file: &*self.files[of], offset, bytes })
    }

    fn meanwhile(&mut self) {
        assert!(self.numbers().is_empty());
        self.meanwhile += 1;
    }

    fn receive(&mut self, nth: usize, bytes: &[u8]) {
        assert_ne!(nth, self.panics_at, "as was wanted");
        let before = self.pieces[nth].replace(bytes.to_vec());
        assert!(before.is_none(), "{nth} came twice");
    }
}

fn read<'a>(
    rings: &Rings,
    files: &'a [Arc<dyn ReadFile>],
    pieces: &'a [(usize, u64, usize)],
) -> Received<'a> {
    let mut received = Received::new(files, pieces);
    rings.read(&mut received);
    received
}

fn assert_right(received: &Received<'_>, pieces: &[(usize, u64, usize)]) {
    for (nth, &(of, offset, bytes)) in pieces.iter().enumerate() {
        let Some(read) = &received.pieces[nth] else { continue };
        let expected: Vec<u8> = (offset as usize..).take(bytes).map(|at| byte(of, at)).collect();
        assert!(*read == expected, "{bytes} bytes of file {of} from {offset}");
    }
}

const FILE_BYTES: usize = 300_001;

/// Pieces of all lengths and at all offsets, more than a ring takes at once, in scattered order.
fn scattered(files: usize, count: usize) -> Vec<(usize, u64, usize)> {
    let piece = |nth: usize| {
        let bytes = [4101, 1, 512, 4096, 9_999, 70_000, 0][nth % 7];
        (nth * 5 % files, (nth * 104_729 % (FILE_BYTES - bytes)) as u64, bytes)
    };
    (0..count).map(piece).collect()
}

#[test]
fn pieces_of_several_files_are_each_received_once_and_whole() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rings) = rings(dir.path()) else { return };
    let files: Vec<_> = (0..3).map(|of| numbered(dir.path(), of, FILE_BYTES)).collect();
    for count in [0, 1, 2, 7, 8, 9, ENTRIES - 1, ENTRIES, ENTRIES + 1, 3 * ENTRIES, 500] {
        let pieces = scattered(files.len(), count);
        let received = read(&rings, &files, &pieces);
        assert_eq!(received.numbers(), (0..count).collect::<Vec<_>>());
        assert_eq!(received.meanwhile, usize::from(count > 0));
        assert_right(&received, &pieces);
    }
    assert_eq!(rings.idle.lock().unwrap().len(), 1, "one ring was made, and kept");
}

#[test]
fn only_invalid_or_too_long_pieces_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rings) = rings(dir.path()) else { return };
    let files = [numbered(dir.path(), 0, FILE_BYTES), numbered(dir.path(), 1, 2 * SPACE_BYTES)];
    let end = FILE_BYTES as u64;
    let pieces = [
        (0, end - 5, 5),
        (0, end - 5, 6),
        (0, u64::MAX, 2),
        (1, 3, SPACE_BYTES - 2 * ALIGN),
        (1, 3, SPACE_BYTES - 2 * ALIGN + 1),
        (1, 0, usize::MAX),
        (0, end, 0),
        (1, 4095, 2),
    ];
    let received = read(&rings, &files, &pieces);
    assert_eq!(received.numbers(), [0, 3, 6, 7]);
    assert_right(&received, &pieces);
}

#[test]
fn a_file_that_changes_its_length_is_read_within_both_lengths() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rings) = rings(dir.path()) else { return };
    let files = [numbered(dir.path(), 0, FILE_BYTES), numbered(dir.path(), 1, FILE_BYTES)];
    #[expect(clippy::disallowed_methods, reason = "this test plays the stranger")]
    let stranger = File::options().write(true).open(path(dir.path(), "0.sst")).unwrap();
    stranger.set_len(100_000).unwrap();
    #[expect(clippy::disallowed_methods, reason = "this test plays the stranger")]
    let stranger = File::options().write(true).open(path(dir.path(), "1.sst")).unwrap();
    stranger.set_len(2 * FILE_BYTES as u64).unwrap();
    let pieces = [
        (0, 50, 4101),
        (0, 99_000, 1_000),
        (0, 99_000, 1_001),
        (0, 200_000, 10),
        (1, 200_000, 10),
        (1, FILE_BYTES as u64 - 1, 2),
    ];
    let received = read(&rings, &files, &pieces);
    assert_eq!(received.numbers(), [0, 1, 4]);
    assert_right(&received, &pieces);
}

/// A file whose handle is that of another one.
#[derive(Debug)]
struct Other(File, u64);

impl ReadFile for Other {
    fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn direct_handle(&self) -> Option<DirectHandle<'_>> {
        Some(DirectHandle { file: &self.0 })
    }

    fn bytes(&self) -> u64 {
        self.1
    }
}

#[test]
fn an_unreadable_file_does_not_affect_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rings) = rings(dir.path()) else { return };
    let right = numbered(dir.path(), 0, FILE_BYTES);
    let path = path(dir.path(), "unreadable");
    #[expect(clippy::disallowed_methods, reason = "a file that can only be written to")]
    let unreadable = File::options().write(true).create_new(true).open(&path).unwrap();
    let no_file = DiskVfs.open(&self::path(dir.path(), "0.sst"), Access::Buffered).unwrap();
    let files = [right, Arc::new(Other(unreadable, 1 << 20)) as _, no_file];
    let pieces: Vec<_> = (0..200).map(|nth| (nth % 3, nth as u64 * 1001, 4101)).collect();
    for _ in 0..3 {
        let received = read(&rings, &files, &pieces);
        assert_eq!(received.numbers(), (0..200).step_by(3).collect::<Vec<_>>());
        assert_right(&received, &pieces);
    }
    assert!(!rings.is_off.load(Ordering::Relaxed));
}

#[test]
fn threads_have_their_own_rings() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rings) = rings(dir.path()) else { return };
    let files: Vec<_> = (0..5).map(|of| numbered(dir.path(), of, FILE_BYTES)).collect();
    thread::scope(|scope| {
        for nth in 0..MAX_IDLE + 2 {
            let (rings, files) = (&rings, &files);
            scope.spawn(move || {
                for round in 0..20 {
                    let pieces = scattered(files.len(), 20 + nth * 13 + round);
                    let received = read(rings, files, &pieces);
                    assert_eq!(received.numbers().len(), pieces.len());
                    assert_right(&received, &pieces);
                }
            });
        }
    });
    let kept = rings.idle.lock().unwrap().len();
    assert!((1..=MAX_IDLE).contains(&kept), "{kept} rings were kept");
}

#[test]
fn without_rings_nothing_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let files = [numbered(dir.path(), 0, FILE_BYTES)];
    let rings = Rings::new();
    rings.is_off.store(true, Ordering::Relaxed);
    let pieces = scattered(1, 10);
    let received = read(&rings, &files, &pieces);
    assert!(received.numbers().is_empty() && received.meanwhile == 0);
    assert!(rings.idle.lock().unwrap().is_empty());
}

/// The system may still write to its memory.
#[test]
fn a_ring_whose_receiver_panics_is_not_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rings) = rings(dir.path()) else { return };
    let files = [numbered(dir.path(), 0, FILE_BYTES)];
    let pieces = scattered(1, ENTRIES);
    for panics_at in [0, 1, ENTRIES / 2, ENTRIES - 1] {
        let whole = read(&rings, &files, &pieces);
        assert_right(&whole, &pieces);
        assert_eq!(rings.idle.lock().unwrap().len(), 1);
        let mut received = Received { panics_at, ..Received::new(&files, &pieces) };
        let panicked = catch_unwind(AssertUnwindSafe(|| rings.read(&mut received)));
        assert!(panicked.is_err());
        assert!(rings.idle.lock().unwrap().is_empty());
    }
}

#[test]
fn a_ring_of_another_process_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rings) = rings(dir.path()) else { return };
    let files = [numbered(dir.path(), 0, FILE_BYTES)];
    let pieces = scattered(1, 10);
    read(&rings, &files, &pieces);
    for ring in rings.idle.lock().unwrap().iter_mut() {
        ring.process += 1;
    }
    let received = read(&rings, &files, &pieces);
    assert_eq!(received.numbers().len(), 10);
    let idle = rings.idle.lock().unwrap();
    assert!(idle.len() == 1 && idle[0].process == process::id());
}

/// A ring that fails is abandoned for good, and the unread pieces are left to the caller.
#[test]
fn a_ring_that_fails_is_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rings) = rings(dir.path()) else { return };
    let files = [numbered(dir.path(), 0, FILE_BYTES)];
    let pieces = scattered(1, 10);
    // A ring that is created disabled, and never enabled.
    let queue = IoUring::builder().setup_r_disabled().build(ENTRIES as u32).unwrap();
    let mut ring = Ring::new().unwrap();
    ring.queue = queue;
    rings.keep(ring);
    let received = read(&rings, &files, &pieces);
    assert!(received.numbers().is_empty());
    assert!(rings.is_off.load(Ordering::Relaxed));
    assert!(rings.idle.lock().unwrap().is_empty());
}
