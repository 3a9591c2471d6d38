//! File systems that wrap others.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Access, DirEntry, FileLock, ReadFile, Vfs, WriteFile, whole};

/// Declares [`Layer`] with the calls that are forwarded unless an implementation changes them, and
/// makes every layer a [`Vfs`].
macro_rules! layer {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        /// A [`Vfs`] that forwards most calls to another. An implementation only writes the calls
        /// that it changes. The calls are documented at [`Vfs`].
        pub trait Layer: Debug + Send + Sync {
            /// The wrapped file system.
            fn below(&self) -> &dyn Vfs;

            $(
                #[doc = concat!("See [`Vfs::", stringify!($name), "`].")]
                fn $name(&self $(, $arg: $type)*) -> $result {
                    self.below().$name($($arg),*)
                }
            )*

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

            /// See [`Vfs::read`]; opens the file through this layer.
            fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
                whole(&*self.open(path, Access::Buffered)?, path, limit)
            }
        }

        impl<L: Layer> Vfs for L {
            $(
                fn $name(&self $(, $arg: $type)*) -> $result {
                    Layer::$name(self $(, $arg)*)
                }
            )*

            fn writes_over(&self) -> bool {
                Layer::writes_over(self)
            }

            fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
                Layer::create_over(self, old, path)
            }

            fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
                Layer::read(self, path, limit)
            }
        }
    };
}

layer! {
    create(path: &Path) -> io::Result<Box<dyn WriteFile>>;
    open(path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>>;
    list(dir: &Path) -> io::Result<Vec<DirEntry>>;
    rename(from: &Path, to: &Path) -> io::Result<()>;
    remove(path: &Path) -> io::Result<()>;
    hard_link(from: &Path, to: &Path) -> io::Result<()>;
    create_dir(path: &Path) -> io::Result<()>;
    remove_dir(path: &Path) -> io::Result<()>;
    sync_dir(dir: &Path) -> io::Result<()>;
    sync_file(path: &Path) -> io::Result<()>;
    lock(path: &Path) -> io::Result<Box<dyn FileLock>>;
    lock_shared(path: &Path) -> io::Result<Box<dyn FileLock>>;
    working_dir() -> Option<PathBuf>;
    real_path(path: &Path) -> io::Result<PathBuf>;
    free_bytes(dir: &Path) -> Option<u64>;
    unix_millis() -> u64;
    random_u64() -> u64;
}
