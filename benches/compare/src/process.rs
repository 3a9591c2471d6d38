//! The system's figures of this process and its files, and a known state of the page cache.
//!
//! Most are reported by Linux only; unknown ones are none.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

/// Bytes read at once to bring files into the page cache.
const READ_BYTES: usize = 1 << 20;
/// Bytes of one append for the floor, about a log record of a 256-byte value.
const APPEND_BYTES: usize = 300;
/// Time between two samples of the disk usage.
const DISK_POLL: Duration = Duration::from_millis(100);
/// Number of timed appends.
const APPENDS: u64 = 500_000;

/// Memory of this process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Peak resident memory since the start or [`reset_peak`], including mapped files.
    pub(crate) peak: u64,
    /// Resident anonymous memory.
    pub(crate) anonymous: u64,
    /// Resident memory of mapped files.
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

/// Resets the peak of [`Memory`], where the system supports it.
pub(crate) fn reset_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Bytes that this process has passed to write calls so far.
pub(crate) fn written_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("wchar:")?.trim().parse().ok())
}

/// The limits of dirty pages at which writers wait, and at which write-back starts.
pub(crate) fn dirty_pages() -> Option<String> {
    let limit = |name: &str| fs::read_to_string(format!("/proc/sys/vm/{name}")).ok();
    let (most, background) = (limit("dirty_ratio")?, limit("dirty_background_ratio")?);
    let (most, background) = (most.trim(), background.trim());
    Some(format!("at most {most}% of memory, written back from {background}% on"))
}

/// All files below `dir`, and their bytes on the device; without files that disappear meanwhile.
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

/// Peak of the bytes on the device of the files below `dir` during `work`, sampled every
/// [`DISK_POLL`]; with the result of `work`.
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

/// Brings the files of a closed store into the same state for all stores: synced, dropped from the
/// page cache, then read once from end to end.
pub(crate) fn warm_page_cache(dir: &Path) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    for (path, _) in files(dir)? {
        let mut file = dropped(&path)?;
        while file.read(&mut buffer)? > 0 {}
    }
    Ok(())
}

/// Syncs the files of a closed store and drops them from the page cache.
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

/// The minimum cost of a log here: the time of one append of 300 bytes to a file, without a sync.
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
    fn linux_reports_the_figures() {
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
