//! What the system says of this process and its files, and the page cache in a known state.
//!
//! Most of it is said by Linux only; what is not said is none.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

/// Bytes read at once when files are brought into the page cache.
const READ_BYTES: usize = 1 << 20;
/// Bytes of one append of the floor, about a log record of a 256-byte value.
const APPEND_BYTES: usize = 300;
/// How often it is looked at what files take.
const DISK_POLL: Duration = Duration::from_millis(100);
/// Appends that are timed.
const APPENDS: u64 = 500_000;

/// Memory of this process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Most that was resident since the start or [`reset_peak`], mapped files included.
    pub(crate) peak: u64,
    /// Resident now and its own.
    pub(crate) anonymous: u64,
    /// Resident now, of mapped files.
    pub(crate) mapped: u64,
}

impl Memory {
    pub(crate) fn now() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
        };
        let (peak, anonymous) = (field("VmHWM:")?, field("RssAnon:")?);
        Some(Self { peak, anonymous, mapped: field("RssFile:")? })
    }
}

/// Makes the peak of [`Memory`] count from here, where the system can.
pub(crate) fn reset_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Bytes that this process has handed to the system's calls for writing so far.
pub(crate) fn written_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("wchar:")?.trim().parse().ok())
}

/// How much of memory dirty pages may be before whoever writes waits, and before they are written
/// back.
pub(crate) fn dirty_pages() -> Option<String> {
    let limit = |name: &str| fs::read_to_string(format!("/proc/sys/vm/{name}")).ok();
    let (most, background) = (limit("dirty_ratio")?, limit("dirty_background_ratio")?);
    let (most, background) = (most.trim(), background.trim());
    Some(format!("at most {most}% of memory, written back from {background}% on"))
}

/// What of its free memory the system gives back to the host, if it is a virtual machine whose host
/// takes it and says how much at a time.
pub(crate) fn free_pages() -> Option<String> {
    let limit = |name: &str| {
        let path = format!("/sys/module/page_reporting/parameters/{name}");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    // Not all kernels have the latter.
    given_back(limit("page_reporting_order")?, limit("min_free_ms").unwrap_or(0))
}

/// Pieces of `2^order` pages, when they were free for so many milliseconds.
fn given_back(order: u32, after: u32) -> Option<String> {
    let kib = (rustix::param::page_size() as u64 / 1024).checked_mul(1_u64.checked_shl(order)?)?;
    let after = if after > 0 { format!(", free for {after} ms") } else { String::new() };
    Some(format!("pieces of {kib} KiB and more{after}"))
}

/// All files below `dir`, and the bytes that they take on the device; without those that go while
/// it is looked.
pub(crate) fn files(dir: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let data = match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            data => data?,
        };
        if data.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push((path, allocated(&data)));
        }
    }
    Ok(found)
}

/// The most bytes that the files below `dir` took on the device while `work` was done, looked at
/// every [`DISK_POLL`]; with what `work` returned.
pub(crate) fn peak_of_disk<T>(dir: &Path, work: impl FnOnce() -> T) -> (T, u64) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut peak = 0;
            while !is_over.load(Relaxed) {
                let bytes =
                    files(dir).map_or(0, |files| files.iter().map(|(_, bytes)| bytes).sum());
                peak = peak.max(bytes);
                thread::sleep(DISK_POLL);
            }
            peak
        });
        let done = work();
        is_over.store(true, Relaxed);
        (done, looker.join().unwrap_or_default())
    })
}

#[cfg(unix)]
fn allocated(data: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    data.blocks() * 512
}

#[cfg(not(unix))]
fn allocated(data: &fs::Metadata) -> u64 {
    data.len()
}

/// Brings the files of a closed store into one state for all stores: on the device, dropped from
/// the page cache, then read once from end to end.
pub(crate) fn warm_page_cache(dir: &Path) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    for (path, _) in files(dir)? {
        let mut file = dropped(&path)?;
        while file.read(&mut buffer)? > 0 {}
    }
    Ok(())
}

/// Brings the files of a closed store to the device and drops them from the page cache.
pub(crate) fn drop_page_cache(dir: &Path) -> io::Result<()> {
    for (path, _) in files(dir)? {
        dropped(&path)?;
    }
    Ok(())
}

fn dropped(path: &Path) -> io::Result<File> {
    #[expect(clippy::disallowed_methods, reason = "these are files of other stores too")]
    let file = File::open(path)?;
    file.sync_data()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(file)
}

/// The least that a log can cost here: the time of one append of 300 bytes to a file, unsynced.
pub(crate) fn append_time(dir: &Path) -> io::Result<(u64, Duration)> {
    let path = dir.join("append");
    let mut file = File::create_new(&path)?;
    let record = [0x5a; APPEND_BYTES];
    let start = Instant::now();
    for _ in 0..APPENDS {
        file.write_all(&record)?;
    }
    let time = start.elapsed();
    drop(file);
    remove(&path)?;
    Ok((APPENDS, time))
}

#[expect(clippy::disallowed_methods, reason = "this measures the system, not a store")]
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use trommel_harness::ScratchDir;

    use super::*;

    #[test]
    fn files_are_warmed_and_counted_with_those_of_folders() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        fs::create_dir(scratch.path().join("folder")).unwrap();
        fs::write(scratch.path().join("folder/a"), [1; 10_000]).unwrap();
        fs::write(scratch.path().join("b"), [1; 5000]).unwrap();
        warm_page_cache(scratch.path()).unwrap();
        drop_page_cache(scratch.path()).unwrap();
        let found = files(scratch.path()).unwrap();
        assert_eq!(found.len(), 2);
        assert!(found.iter().map(|(_, bytes)| bytes).sum::<u64>() >= 15_000);
    }

    #[test]
    fn what_is_given_back_is_told_in_pieces() {
        let page = rustix::param::page_size() / 1024;
        let pieces = |of: usize| format!("pieces of {} KiB and more", of * page);
        assert_eq!(given_back(9, 0), Some(pieces(512)));
        assert_eq!(given_back(10, 60_000), Some(pieces(1024) + ", free for 60000 ms"));
        assert_eq!(given_back(64, 0), None);
    }

    #[test]
    fn linux_says_what_is_asked() {
        if !cfg!(target_os = "linux") {
            return;
        }
        assert!(dirty_pages().unwrap().contains("% of memory"));
        let before = written_bytes().unwrap();
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        fs::write(scratch.path().join("a"), vec![1; 1 << 20]).unwrap();
        assert!(written_bytes().unwrap() >= before + (1 << 20));
        reset_peak();
        let held = std::hint::black_box(vec![1_u8; 64 << 20]);
        let memory = Memory::now().unwrap();
        assert!(memory.peak >= held.len() as u64 && memory.anonymous >= held.len() as u64);
        assert!(memory.mapped > 0);
    }
}
