//! Files in memory, and the stores from which inputs are made.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use trommel_sim::MemoryVfs;
use trommel_vfs::{ReadFile, Vfs};

/// The directory of a store in its file system.
pub(crate) const DIR: &str = "/store";

/// The files of a directory by name.
pub(crate) type Image = BTreeMap<String, Vec<u8>>;

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Table,
    Sidecar,
    Log,
    Manifest,
    Current,
    Other,
}

/// The kind of the file of this name.
pub(crate) fn kind_of(name: &str) -> Kind {
    match name {
        "CURRENT" => Kind::Current,
        name if name.ends_with(".sst") => Kind::Table,
        name if name.ends_with(".flt") => Kind::Sidecar,
        name if name.ends_with(".log") => Kind::Log,
        name if name.starts_with("MANIFEST-") => Kind::Manifest,
        _ => Kind::Other,
    }
}

/// A file system with `image` in [`DIR`].
pub(crate) fn vfs_of(image: &Image) -> MemoryVfs {
    let vfs = MemoryVfs::new();
    let dir = Path::new(DIR);
    vfs.create_dir(dir).expect("a new directory");
    for (name, bytes) in image {
        let mut file = vfs.create(&dir.join(name)).expect("a new file");
        file.append(bytes).expect("memory takes it");
    }
    vfs
}

/// A directory of the repository.
fn repository(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder of the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file of the repository")
}

/// The golden files with this extension in a directory of the repository.
pub(crate) fn golden(folder: &str, extension: &str) -> Vec<Vec<u8>> {
    let paths = children(&repository(folder)).into_iter();
    paths
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .map(|p| read(&p))
        .collect()
}

/// The golden stores: closed ones, killed ones, and one that was killed inside an append.
pub(crate) fn golden_stores() -> Vec<Image> {
    let stores = children(&repository("tests/format/golden")).into_iter();
    let image = |store: PathBuf| -> Image {
        let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
        children(&store).iter().map(|path| (name(path).unwrap_or_default(), read(path))).collect()
    };
    stores.filter(|path| path.is_dir()).map(image).collect()
}

/// A finished file in memory, with both ways of reading it.
#[derive(Debug)]
pub(crate) struct Bytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mapped: bool,
}

impl ReadFile for Bytes {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = self.bytes.get(offset..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn mapped(&self) -> Option<&[u8]> {
        self.mapped.then_some(&self.bytes)
    }
}
