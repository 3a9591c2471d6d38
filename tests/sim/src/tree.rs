//! A directory tree in memory, the state of [`MemoryVfs`](crate::MemoryVfs) and of the simulated
//! disk.
//!
//! Directories map names to inodes; files are inodes, so a second name is a second entry. `/`, `.`
//! and the empty path all mean the root, which always exists: `/a` and `a` are one file. `..` is
//! rejected. A copy of a tree shares all directories and contents until one side changes them.
//!
//! An unlinked file is dropped: a later append to it has no effect, as no reader can ever see it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::path::{Component, Path};
use std::sync::Arc;

use trommel_vfs::DirEntry;

use crate::content::{Content, hash_bytes, mix};

/// The permanent identity of a file or directory, whatever its name. Never reused.
pub(crate) type Inode = u64;

/// The root directory.
pub(crate) const ROOT: Inode = 0;

/// The target of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Dir(Inode),
    File(Inode),
}

/// The location of a name: its directory, and its last component.
pub(crate) type Place = (Inode, OsString);

/// A directory's entries by name.
pub(crate) type Dir = BTreeMap<OsString, Entry>;

/// Directories and files.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    dirs: BTreeMap<Inode, Arc<Dir>>,
    files: BTreeMap<Inode, Arc<Content>>,
    next: Inode,
}

impl Default for Tree {
    /// An empty root.
    fn default() -> Self {
        let dirs = BTreeMap::from([(ROOT, Arc::default())]);
        Self { dirs, files: BTreeMap::new(), next: ROOT + 1 }
    }
}

impl Tree {
    /// A tree of these parts, which must name each other consistently.
    pub(crate) fn from_parts(
        dirs: BTreeMap<Inode, Arc<Dir>>,
        files: BTreeMap<Inode, Arc<Content>>,
    ) -> Self {
        let last = |inode: Option<&Inode>| inode.copied().unwrap_or(ROOT);
        let next = last(dirs.keys().next_back()).max(last(files.keys().next_back())) + 1;
        Self { dirs, files, next }
    }

    /// The directories.
    pub(crate) fn dirs(&self) -> &BTreeMap<Inode, Arc<Dir>> {
        &self.dirs
    }

    /// The files' contents.
    pub(crate) fn files(&self) -> &BTreeMap<Inode, Arc<Content>> {
        &self.files
    }

    /// The entry of `path`.
    fn find(&self, path: &Path) -> io::Result<Entry> {
        let mut found = Entry::Dir(ROOT);
        for name in components(path)? {
            found = *self.dir_of(found)?.get(name).ok_or(ErrorKind::NotFound)?;
        }
        Ok(found)
    }

    fn dir_of(&self, entry: Entry) -> io::Result<&Dir> {
        let Entry::Dir(inode) = entry else { return Err(ErrorKind::NotADirectory.into()) };
        Ok(self.dirs.get(&inode).ok_or(ErrorKind::NotFound)?)
    }

    /// The parent directory of `path`, which must exist, and its name there.
    fn place(&self, path: &Path) -> io::Result<Place> {
        let Some((&name, parents)) = components(path)?.split_last().map(|(n, p)| (n, p.to_vec()))
        else {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "this is the root directory"));
        };
        match self.find(&parents.into_iter().collect::<std::path::PathBuf>())? {
            Entry::Dir(dir) => Ok((dir, name.to_os_string())),
            Entry::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn entry(&self, place: &Place) -> Option<Entry> {
        self.dirs.get(&place.0)?.get(&place.1).copied()
    }

    fn insert(&mut self, place: &Place, entry: Entry) {
        if let Some(dir) = self.dirs.get_mut(&place.0) {
            Arc::make_mut(dir).insert(place.1.clone(), entry);
        }
    }

    fn take(&mut self, place: &Place) {
        if let Some(dir) = self.dirs.get_mut(&place.0) {
            Arc::make_mut(dir).remove(&place.1);
        }
    }

    /// A location without an entry.
    fn vacant(&self, path: &Path) -> io::Result<Place> {
        let place = self.place(path)?;
        match self.entry(&place) {
            None => Ok(place),
            Some(_) => Err(ErrorKind::AlreadyExists.into()),
        }
    }

    /// The location and inode of the file `path`.
    fn occupied(&self, path: &Path) -> io::Result<(Place, Inode)> {
        let place = self.place(path)?;
        match self.entry(&place).ok_or(ErrorKind::NotFound)? {
            Entry::File(inode) => Ok((place, inode)),
            Entry::Dir(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn number(&mut self) -> Inode {
        let inode = self.next;
        self.next += 1;
        inode
    }

    /// A new empty file.
    pub(crate) fn create(&mut self, path: &Path) -> io::Result<(Place, Inode)> {
        let place = self.vacant(path)?;
        let inode = self.number();
        self.insert(&place, Entry::File(inode));
        self.files.insert(inode, Arc::default());
        Ok((place, inode))
    }

    /// A new empty file that replaces the file `old`, if that has no second name.
    pub(crate) fn create_over(
        &mut self,
        old: &Path,
        path: &Path,
    ) -> io::Result<Option<(Place, Place, Inode)>> {
        let (from, inode) = self.occupied(old)?;
        let to = self.vacant(path)?;
        let is_it = |entry: &&Entry| **entry == Entry::File(inode);
        let names = self.dirs.values().flat_map(|dir| dir.values()).filter(is_it).count();
        if names > 1 {
            return Ok(None);
        }
        self.take(&from);
        self.insert(&to, Entry::File(inode));
        self.files.insert(inode, Arc::default());
        Ok(Some((from, to, inode)))
    }

    /// A new empty directory.
    pub(crate) fn create_dir(&mut self, path: &Path) -> io::Result<(Place, Inode)> {
        let place = self.vacant(path)?;
        let inode = self.number();
        self.insert(&place, Entry::Dir(inode));
        self.dirs.insert(inode, Arc::default());
        Ok((place, inode))
    }

    /// Removes a name of a file, and the file with its last name.
    pub(crate) fn remove(&mut self, path: &Path) -> io::Result<Place> {
        let (place, inode) = self.occupied(path)?;
        self.take(&place);
        self.forget_unnamed(inode);
        Ok(place)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_dir(&mut self, path: &Path) -> io::Result<Place> {
        let place = self.place(path)?;
        let Entry::Dir(inode) = self.entry(&place).ok_or(ErrorKind::NotFound)? else {
            return Err(ErrorKind::NotADirectory.into());
        };
        if self.dirs.get(&inode).is_some_and(|dir| !dir.is_empty()) {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        self.take(&place);
        self.dirs.remove(&inode);
        Ok(place)
    }

    /// Renames a file; does nothing if both are names of one file.
    pub(crate) fn rename(
        &mut self,
        from: &Path,
        to: &Path,
    ) -> io::Result<Option<(Place, Place, Inode)>> {
        let (old, inode) = self.occupied(from)?;
        let new = self.place(to)?;
        let replaced = self.entry(&new);
        match replaced {
            Some(Entry::Dir(_)) => return Err(ErrorKind::IsADirectory.into()),
            Some(Entry::File(there)) if there == inode => return Ok(None),
            _ => {}
        }
        self.take(&old);
        self.insert(&new, Entry::File(inode));
        if let Some(Entry::File(there)) = replaced {
            self.forget_unnamed(there);
        }
        Ok(Some((old, new, inode)))
    }

    /// Adds a second name to a file.
    pub(crate) fn hard_link(&mut self, from: &Path, to: &Path) -> io::Result<(Place, Inode)> {
        let (_, inode) = self.occupied(from)?;
        let place = self.vacant(to)?;
        self.insert(&place, Entry::File(inode));
        Ok((place, inode))
    }

    fn forget_unnamed(&mut self, inode: Inode) {
        let named = self.dirs.values().any(|dir| dir.values().any(|&e| e == Entry::File(inode)));
        if !named {
            self.files.remove(&inode);
        }
    }

    /// Appends `data` to a file, if it still has a name.
    pub(crate) fn append(&mut self, inode: Inode, data: &[u8]) {
        if let Some(content) = self.files.get_mut(&inode) {
            Arc::make_mut(content).append(data);
        }
    }

    /// The file `path` as it is now.
    pub(crate) fn open(&self, path: &Path) -> io::Result<(Inode, Arc<Content>)> {
        match self.find(path)? {
            Entry::File(inode) => {
                let content = self.files.get(&inode).ok_or(ErrorKind::NotFound)?;
                Ok((inode, Arc::clone(content)))
            }
            Entry::Dir(_) => Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file")),
        }
    }

    /// The directory `path`.
    pub(crate) fn open_dir(&self, path: &Path) -> io::Result<Inode> {
        match self.find(path)? {
            Entry::Dir(inode) => Ok(inode),
            Entry::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// The content of the directory `path`, sorted by name.
    pub(crate) fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let dir = self.dir_of(self.find(path)?)?;
        let entries = dir.iter().map(|(name, &entry)| {
            let content = match entry {
                Entry::File(inode) => self.files.get(&inode),
                Entry::Dir(_) => None,
            };
            let bytes = content.map_or(0, |content| content.bytes());
            let is_file = content.is_some();
            DirEntry { name: name.clone(), bytes, is_file, is_dir: !is_file }
        });
        Ok(entries.collect())
    }

    /// The total bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.values().map(|content| content.bytes()).sum()
    }

    /// A hash of all names and contents, independent of inodes.
    pub(crate) fn hash(&self) -> u64 {
        self.hash_dir(ROOT)
    }

    fn hash_dir(&self, inode: Inode) -> u64 {
        let Some(dir) = self.dirs.get(&inode) else { return 0 };
        dir.iter().fold(mix(1, dir.len() as u64), |hash, (name, entry)| {
            let below = match entry {
                Entry::Dir(inode) => self.hash_dir(*inode),
                Entry::File(inode) => mix(2, self.files.get(inode).map_or(0, |c| c.hash())),
            };
            mix(mix(hash, hash_bytes(name.as_encoded_bytes())), below)
        })
    }
}

/// The components from the root to `path`.
fn components(path: &Path) -> io::Result<Vec<&OsStr>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::new(ErrorKind::InvalidInput, "`..` is not understood here"));
            }
        }
    }
    Ok(names)
}
