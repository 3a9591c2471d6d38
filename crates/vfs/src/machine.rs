//! What sizes depend on, beside files: the machine's memory and the process's file handles.

/// Bytes of physical memory, where the system says.
#[cfg(target_os = "linux")]
#[allow(clippy::useless_conversion, reason = "these bytes are counted in 32 bits on some machines")]
pub fn memory_bytes() -> Option<u64> {
    let info = rustix::system::sysinfo();
    Some(u64::from(info.mem_unit).saturating_mul(info.totalram))
}

/// Bytes of physical memory, where the system says.
#[cfg(not(target_os = "linux"))]
pub fn memory_bytes() -> Option<u64> {
    None
}

/// Files that the process may have open at once, where the system says.
#[cfg(unix)]
pub fn open_file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Files that the process may have open at once, where the system says.
#[cfg(not(unix))]
pub fn open_file_limit() -> Option<u64> {
    None
}
