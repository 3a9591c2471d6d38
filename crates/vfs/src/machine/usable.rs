//! The memory that the process may use: the machine's, or less if limited by a control group or a
//! resource limit.
//!
//! 1. `/proc/self/cgroup` names the process's control group in each hierarchy, and
//!    `/proc/self/mountinfo` where each hierarchy is mounted, and with which group as root.
//! 2. The limit of a group applies to all groups below it, so the limits of all groups from the
//!    process's own up to the mounted root apply: `memory.max` (version 2) and
//!    `memory.limit_in_bytes` (version 1).
//! 3. `RLIMIT_AS` and `RLIMIT_DATA` bound the memory that the process may map.
//!
//! Limits that cannot be read are ignored.

use std::path::{Path, PathBuf};

use super::memory_bytes;

/// Limits on memory, in bytes; `None` if there is no such limit.
#[derive(Debug, Clone, Default)]
struct MemoryLimits {
    /// Physical memory.
    physical: Option<u64>,
    /// Limits of control groups, from the process's own to the outermost.
    control_groups: Vec<u64>,
    /// `RLIMIT_AS`.
    address_space: Option<u64>,
    /// `RLIMIT_DATA`.
    data: Option<u64>,
}

impl MemoryLimits {
    /// The lowest limit.
    fn least(&self) -> Option<u64> {
        let groups = self.control_groups.iter().copied();
        groups.chain(self.physical).chain(self.address_space).chain(self.data).min()
    }
}

/// Bytes of memory that the process may use: the least of physical memory, the limits of its
/// control groups (and of their ancestors), `RLIMIT_AS` and `RLIMIT_DATA`. `None` if the system
/// reports none of them.
pub fn usable_memory_bytes() -> Option<u64> {
    let mut limits = MemoryLimits { physical: memory_bytes(), ..MemoryLimits::default() };
    limits.control_groups = control_group_limits();
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};
        limits.address_space = getrlimit(Resource::As).current;
        limits.data = getrlimit(Resource::Data).current;
    }
    limits.least()
}

/// The limits of the control groups of this process.
fn control_group_limits() -> Vec<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mounts = read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    let files = limit_files(&groups, &mounts);
    files.iter().filter_map(|file| limit_in(&read(file)?)).collect()
}

/// The limit in the text of such a file, if there is one.
fn limit_in(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The files that hold the limits of a process with these control groups and these mounts.
fn limit_files(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let is_of_mount = |line: &&str| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next().unwrap_or_default();
            match mount.file {
                MEMORY_MAX => controllers.is_empty(),
                _ => controllers.split(',').any(|controller| controller == "memory"),
            }
        };
        let Some(group) =
            groups.lines().find(is_of_mount).and_then(|line| line.splitn(3, ':').nth(2))
        else {
            continue;
        };
        // For a group outside the mount, only the mounted root is known.
        let below = Path::new(group).strip_prefix(mount.root).unwrap_or(Path::new(""));
        let own = Path::new(mount.point).join(below);
        let within = own.ancestors().take_while(|dir| dir.starts_with(mount.point));
        files.extend(within.map(|dir| dir.join(mount.file)));
    }
    files
}

/// The file of a group's limit, in version 2 and in version 1.
const MEMORY_MAX: &str = "memory.max";
const MEMORY_LIMIT: &str = "memory.limit_in_bytes";

/// A mounted hierarchy of control groups that limits memory.
struct Mount<'a> {
    /// The group at the mount point.
    root: &'a str,
    point: &'a str,
    file: &'static str,
}

impl<'a> Mount<'a> {
    /// Parses a line of `mountinfo`; `None` if it is not such a mount.
    fn parse(line: &'a str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let file = match kind.next()? {
            "cgroup2" => MEMORY_MAX,
            "cgroup" if kind.nth(1)?.split(',').any(|option| option == "memory") => MEMORY_LIMIT,
            _ => return None,
        };
        Some(Self { root, point, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "25 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

    fn files(groups: &str, mounts: &str) -> Vec<String> {
        limit_files(groups, mounts).iter().map(|file| file.display().to_string()).collect()
    }

    #[test]
    fn the_least_limit_counts() {
        assert_eq!(MemoryLimits::default().least(), None);
        let mut limits = MemoryLimits { physical: Some(900), ..MemoryLimits::default() };
        assert_eq!(limits.least(), Some(900));
        limits.control_groups = vec![700, 800];
        assert_eq!(limits.least(), Some(700));
        limits.data = Some(600);
        assert_eq!(limits.least(), Some(600));
        limits.address_space = Some(500);
        assert_eq!(limits.least(), Some(500));
    }

    #[test]
    fn limits_of_ancestors_count() {
        assert_eq!(
            files("0::/user.slice/app\n", UNIFIED),
            [
                "/sys/fs/cgroup/user.slice/app/memory.max",
                "/sys/fs/cgroup/user.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount_point() {
        assert_eq!(files("0::/\n", UNIFIED), ["/sys/fs/cgroup/memory.max"]);
        let mounts = "31 1 0:27 /docker/1f /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n\
                      32 1 0:28 /docker/1f /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n";
        let limit = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        let groups = "9:pids:/docker/1f\n4:cpu,memory:/docker/1f\n0::/\n";
        assert_eq!(files(groups, mounts), [limit]);
        // A group that was moved out of the mounted subtree.
        assert_eq!(files("4:memory:/elsewhere\n", mounts), [limit]);
    }

    #[test]
    fn hierarchies_without_memory_bound_nothing() {
        assert!(files("", "").is_empty());
        assert!(files("9:pids:/a\n", "32 1 0:28 / /pids rw - cgroup cgroup rw,pids\n").is_empty());
        assert!(files("0::/a\n", "24 1 0:21 / /proc rw - proc proc rw\n").is_empty());
    }

    #[test]
    fn no_limit_is_none() {
        assert_eq!(limit_in("max\n"), None);
        assert_eq!(limit_in("268435456\n"), Some(256 << 20));
    }

    #[test]
    fn no_more_is_usable_than_there_is() {
        if let Some(physical) = memory_bytes() {
            assert!(usable_memory_bytes().is_some_and(|bytes| bytes <= physical));
        }
    }
}
