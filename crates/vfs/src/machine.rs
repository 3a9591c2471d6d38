//! The one thing about the machine, beside its files, that sizes depend on.

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
