//! The machine and the build of a measurement.
//!
//! Values that the system does not report are none. Most come from /proc and /sys, which only Linux
//! has.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::units;

/// The measuring program and its build.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BuildInfo {
    /// Version of the measuring program.
    pub program: String,
    /// The commit it was built from: the value of TROMMEL_COMMIT at build time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The compiler.
    pub rustc: String,
    /// The build profile, such as `release`.
    pub profile: String,
    /// Whether debug assertions are enabled, which slows the build down.
    pub debug_assertions: bool,
}

/// The directory of a store, and the device below it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StorageInfo {
    /// The store's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Type of the directory's file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// The file system's device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Whether the device is a spinning disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
}

/// The environment of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Environment {
    /// The program and its build.
    #[serde(flatten)]
    pub build: BuildInfo,
    /// Model of the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Its instruction set extensions that a store or a filter may use.
    pub cpu_flags: Vec<String>,
    /// Number of threads that the process can run in parallel.
    pub cores: u64,
    /// The CPU frequency governor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The machine's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The operating system kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The store's directory, and the device below it.
    #[serde(flatten)]
    pub storage: StorageInfo,
}

impl Environment {
    /// This machine, and the file system of `directory`, if given.
    pub fn of(directory: Option<&Path>) -> Self {
        let mount = directory.and_then(mount_of);
        Self {
            build: BuildInfo {
                program: env!("CARGO_PKG_VERSION").into(),
                commit: option_env!("TROMMEL_COMMIT").map(Into::into),
                rustc: env!("TROMMEL_RUSTC").into(),
                profile: env!("TROMMEL_PROFILE").into(),
                debug_assertions: cfg!(debug_assertions),
            },
            cpu: field_of("/proc/cpuinfo", "model name"),
            cpu_flags: cpu_flags(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            governor: line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: memory_bytes(),
            kernel: kernel(),
            storage: StorageInfo {
                directory: directory.map(|dir| dir.display().to_string()),
                rotational: mount.as_ref().and_then(|mount| rotational(&mount.number)),
                file_system: mount.as_ref().map(|mount| mount.kind.clone()),
                device: mount.map(|mount| mount.source),
            },
        }
    }
}

/// CPU time of this process so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CpuSeconds {
    /// In user mode.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
}

impl CpuSeconds {
    /// CPU time of all threads of this process until now, to a hundredth of a second.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// CPU time spent since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { user: self.user - before.user, system: self.system - before.system }
    }

    fn parse(stat: &str) -> Option<Self> {
        // The second field is the program's name in parentheses and may contain anything.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        // The kernel's unit is a hundredth of a second on every platform of Rust.
        let mut seconds = || Some(fields.next()?.parse::<u64>().ok()? as f64 / 100.0);
        Some(Self { user: seconds()?, system: seconds()? })
    }
}

/// The first line of a small file.
fn line_of(file: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// The value in a line `name : value` of a file.
pub(crate) fn field_of(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim().to_owned())
    })
}

/// A data cache of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 1 for the smallest.
    pub level: u32,
    /// Its capacity. Other cores may share it.
    pub bytes: u64,
}

/// The data caches of the first core, smallest first; empty if the system does not report them.
pub fn data_caches() -> Vec<Cache> {
    caches_in(Path::new("/sys/devices/system/cpu/cpu0/cache"))
}

fn caches_in(dir: &Path) -> Vec<Cache> {
    let cache = |nth: u32| {
        let line = |name: &str| line_of(dir.join(format!("index{nth}/{name}")).to_str()?);
        let is_for_data = line("type")? != "Instruction";
        let bytes = units::parse_bytes(&line("size")?).ok()?;
        Some((is_for_data, Cache { level: line("level")?.parse().ok()?, bytes }))
    };
    let mut caches: Vec<Cache> =
        (0..).map_while(cache).filter(|(wanted, _)| *wanted).map(|(_, cache)| cache).collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// The machine's memory, if the system reports it.
pub fn memory_bytes() -> Option<u64> {
    let text = field_of("/proc/meminfo", "MemTotal")?;
    Some(text.strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(unix)]
fn kernel() -> Option<String> {
    let names = rustix::system::uname();
    let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
    Some(format!("{} {}", text(names.sysname()), text(names.release())))
}

#[cfg(not(unix))]
fn kernel() -> Option<String> {
    None
}

#[cfg(target_arch = "x86_64")]
fn cpu_flags() -> Vec<String> {
    use std::arch::is_x86_feature_detected as detected;
    let flags = [
        ("sse4.2", detected!("sse4.2")),
        ("pclmulqdq", detected!("pclmulqdq")),
        ("bmi2", detected!("bmi2")),
        ("avx2", detected!("avx2")),
        ("avx512f", detected!("avx512f")),
        ("avx512bw", detected!("avx512bw")),
    ];
    flags.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(target_arch = "aarch64")]
fn cpu_flags() -> Vec<String> {
    use std::arch::is_aarch64_feature_detected as detected;
    let flags = [("neon", detected!("neon")), ("crc", detected!("crc")), ("sve", detected!("sve"))];
    flags.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu_flags() -> Vec<String> {
    Vec::new()
}

/// One mounted file system.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The device number: major, colon, minor.
    number: String,
    kind: String,
    source: String,
}

/// The file system of `dir`, or of its closest existing ancestor.
fn mount_of(dir: &Path) -> Option<Mount> {
    let there = dir.ancestors().find_map(|dir| {
        // The empty ancestor of a relative path is the working directory.
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        dir.canonicalize().ok()
    })?;
    find_mount(&fs::read_to_string("/proc/self/mountinfo").ok()?, &there)
}

/// Of the mounts whose mount point is the longest that contains `path`, the last one.
fn find_mount(mounts: &str, path: &Path) -> Option<Mount> {
    let mut best: Option<(usize, Mount)> = None;
    for line in mounts.lines() {
        // id parent major:minor root mountpoint options [optional fields] - type source options
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (Some(number), Some(place)) = (left.get(2), left.get(4)) else { continue };
        let (Some(kind), Some(source)) = (right.first(), right.get(1)) else { continue };
        let place = place.replace("\\040", " ");
        let is_better = best.as_ref().is_none_or(|(length, _)| place.len() >= *length);
        if is_better && path.starts_with(&place) {
            let [number, kind, source] = [number, kind, source].map(|text| (*text).to_owned());
            best = Some((place.len(), Mount { number, kind, source }));
        }
    }
    best.map(|(_, mount)| mount)
}

fn rotational(number: &str) -> Option<bool> {
    let device = Path::new("/sys/dev/block").join(number).canonicalize().ok()?;
    // A partition has no queue directory; its disk, one directory up, has.
    let files = [device.join("queue/rotational"), device.parent()?.join("queue/rotational")];
    files.iter().find_map(|file| line_of(file.to_str()?)).map(|line| line == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known() {
        let here = Environment::of(Some(Path::new("no/such/directory/yet")));
        assert!(here.cores > 0 && here.build.rustc.starts_with("rustc "), "{here:?}");
        assert!(!here.build.profile.is_empty() && !here.build.program.is_empty(), "{here:?}");
        assert_eq!(here.build.debug_assertions, cfg!(debug_assertions));
        if cfg!(target_os = "linux") {
            assert!(
                here.memory_bytes > Some(1 << 20) && here.storage.file_system.is_some(),
                "{here:?}"
            );
            assert!(here.kernel.unwrap().starts_with("Linux "));
        }
    }

    #[test]
    fn caches_for_data_are_read_in_their_order() {
        let scratch = crate::ScratchDir::new(&std::env::temp_dir()).unwrap();
        let all = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("3", "Unified", "16384K")];
        for (nth, (level, kind, size)) in all.into_iter().enumerate() {
            let dir = scratch.path().join(format!("index{nth}"));
            fs::create_dir(&dir).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(dir.join(name), format!("{text}\n")).unwrap();
            }
        }
        let expected = [Cache { level: 1, bytes: 48 << 10 }, Cache { level: 3, bytes: 16 << 20 }];
        assert_eq!(caches_in(scratch.path()), expected);
        assert_eq!(caches_in(Path::new("/no/such/place")), []);
        scratch.remove().unwrap();
    }

    #[test]
    fn the_deepest_mount_counts_and_the_last_on_it() {
        let mounts = "\
22 1 253:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:40 / /data\\040one rw - tmpfs tmpfs rw
31 22 0:41 / /data rw shared:2 master:3 - xfs /dev/nvme0n1p2 rw
32 22 0:42 / /data rw - btrfs /dev/mapper/x rw
damaged line";
        let kind = |path: &str| find_mount(mounts, Path::new(path)).unwrap().kind;
        assert_eq!(kind("/home/user"), "ext4");
        assert_eq!(kind("/data/bench"), "btrfs");
        assert_eq!(kind("/data one/x"), "tmpfs");
        assert_eq!(kind("/database"), "ext4");
        assert_eq!(find_mount("", Path::new("/")), None);
    }

    #[test]
    fn cpu_time_is_read_after_any_program_name() {
        let stat = "71 (a) b) R 1 2 3 4 5 6 7 8 9 10 250 75 0 0 20";
        assert_eq!(CpuSeconds::parse(stat), Some(CpuSeconds { user: 2.5, system: 0.75 }));
        assert_eq!(CpuSeconds::parse("71 (a R 1 2"), None);
        if cfg!(target_os = "linux") {
            assert!(CpuSeconds::now().is_some());
        }
    }
}
