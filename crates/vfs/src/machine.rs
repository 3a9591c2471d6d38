//! Properties of the machine that determine sizes: its memory and the process's file handles; and
//! the mapping of large memory.

mod usable;

pub use self::usable::usable_memory_bytes;

/// Bytes of physical memory, if the system reports it.
#[cfg(target_os = "linux")]
#[allow(clippy::useless_conversion, reason = "these bytes are counted in 32 bits on some machines")]
pub fn memory_bytes() -> Option<u64> {
    let info = rustix::system::sysinfo();
    Some(u64::from(info.mem_unit).saturating_mul(u64::from(info.totalram)))
}

/// Bytes of physical memory, if the system reports it.
#[cfg(not(target_os = "linux"))]
pub fn memory_bytes() -> Option<u64> {
    None
}

/// The number of files that the process may have open at once, if the system reports it.
#[cfg(unix)]
pub fn open_file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// The number of files that the process may have open at once, if the system reports it.
#[cfg(not(unix))]
pub fn open_file_limit() -> Option<u64> {
    None
}

/// The size of a huge page: 2 MiB.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

/// Requests huge pages for `memory`, if it holds at least two: random reads of it then rarely miss
/// the TLB. Call it before the memory is first touched. A system without huge pages uses small
/// pages as before.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub fn advise_huge_pages<T>(memory: &mut [T]) {
    use rustix::mm::Advice;
    let range = memory.as_mut_ptr_range();
    let (start, end) = (range.start as usize, range.end as usize);
    let first = start.next_multiple_of(HUGE_PAGE);
    let bytes = (end - end % HUGE_PAGE).saturating_sub(first);
    if size_of_val(memory) < 2 * HUGE_PAGE || bytes == 0 {
        return;
    }
    let aligned = range.start.cast::<u8>().wrapping_add(first - start);
    // A system without huge pages returns an error, which is harmless.
    // SAFETY: the advice changes how memory is mapped, never its content, and the range is within
    // the slice, which is borrowed mutably.
    let _ = unsafe { rustix::mm::madvise(aligned.cast(), bytes, Advice::LinuxHugepage) };
}

/// Does nothing on this system.
#[cfg(not(target_os = "linux"))]
pub fn advise_huge_pages<T>(_memory: &mut [T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_leaves_memory_as_it_is() {
        for bytes in [0, 1, HUGE_PAGE - 1, 2 * HUGE_PAGE, 5 * HUGE_PAGE + 17] {
            let mut memory = vec![7_u8; bytes];
            advise_huge_pages(&mut memory);
            assert!(memory.iter().all(|byte| *byte == 7));
        }
    }
}
