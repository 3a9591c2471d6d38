//! File systems that wrap others.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Access, DirEntry, FileLock, ReadFile, Vfs, WriteFile, whole};

/// A [`Vfs`] that forwards most calls to another. An implementation only writes the calls that it
/// changes. The calls are documented at [`Vfs`].
pub trait Layer: Debug + Send + Sync {
    /// The wrapped file system.
    fn below(&self) -> &dyn Vfs;

    /// See [`Vfs::create`].
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.below().create(path)
    }

    /// See [`Vfs::writes_over`]. False by default, so that the layer sees each new file in
    /// [`create`](Layer::create).
    fn writes_over(&self) -> bool {
        false
    }

    /// See [`Vfs::create_over`].
    fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.remove(old)?;
        self.create(path)
    }

    /// See [`Vfs::open`].
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        self.below().open(path, access)
    }

    /// See [`Vfs::list`].
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.below().list(dir)
    }

    /// See [`Vfs::rename`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below().rename(from, to)
    }

    /// See [`Vfs::remove`].
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below().remove(path)
    }

    /// See [`Vfs::hard_link`].
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below().hard_link(from, to)
    }

    /// See [`Vfs::create_dir`].
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.below().create_dir(path)
    }

    /// See [`Vfs::remove_dir`].
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.below().remove_dir(path)
    }

    /// See [`Vfs::sync_dir`].
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.below().sync_dir(dir)
    }

    /// See [`Vfs::sync_file`].
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.below().sync_file(path)
    }

    /// See [`Vfs::lock`].
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.below().lock(path)
    }

    /// See [`Vfs::lock_shared`].
    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.below().lock_shared(path)
    }

    /// See [`Vfs::working_dir`].
    fn working_dir(&self) -> Option<PathBuf> {
        self.below().working_dir()
    }

    /// See [`Vfs::real_path`].
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.below().real_path(path)
    }

    /// See [`Vfs::free_bytes`].
    fn free_bytes(&self, dir: &Path) -> Option<u64> {
        self.below().free_bytes(dir)
    }

    /// See [`Vfs::read`]; opens the file through this layer.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        whole(&*self.open(path, Access::Buffered)?, path, limit)
    }
}

impl<L: Layer> Vfs for L {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Layer::create(self, path)
    }

    fn writes_over(&self) -> bool {
        Layer::writes_over(self)
    }

    fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Layer::create_over(self, old, path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        Layer::open(self, path, access)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        Layer::list(self, dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Layer::rename(self, from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Layer::remove(self, path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        Layer::hard_link(self, from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        Layer::create_dir(self, path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        Layer::remove_dir(self, path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Layer::sync_dir(self, dir)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        Layer::sync_file(self, path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        Layer::lock(self, path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        Layer::lock_shared(self, path)
    }

    fn working_dir(&self) -> Option<PathBuf> {
        Layer::working_dir(self)
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        Layer::real_path(self, path)
    }

    fn free_bytes(&self, dir: &Path) -> Option<u64> {
        Layer::free_bytes(self, dir)
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        Layer::read(self, path, limit)
    }
}
