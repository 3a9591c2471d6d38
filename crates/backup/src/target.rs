//! The storage of a repository: a few calls that both directories and object stores support.
//!
//! Names are relative, with `/` between folders, and have at most one folder. Errors are
//! distinguished by their [`io::ErrorKind`]: `NotFound` if there is no such object.
//!
//! Called by [`Repository`](crate::Repository) only.

use std::fmt::Debug;
use std::io::{self, Read};
use std::path::Path;

/// A store of named objects. Stored objects are never modified, only deleted.
pub trait Target: Debug + Send + Sync {
    /// Its name in messages: a path or a URL.
    fn place(&self) -> String;

    /// Its path, if it is a directory of the system.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// Prepares a location that does not exist, or is empty, for a repository. Returns false, and
    /// changes nothing, if there is anything else.
    fn found(&self) -> io::Result<bool>;

    /// Acquires the right to write, until the result is dropped. `WouldBlock` if another writer's
    /// purpose conflicts; the text says which.
    fn lock(&self, purpose: Purpose) -> io::Result<Box<dyn Hold>>;

    /// Stores a large content of `bytes` bytes under a name that contains its hash. Reads `content`
    /// to its end, and stores nothing if that fails. Replaces an object of that name. Called under
    /// a lock.
    fn put(&self, name: &str, bytes: u64, content: &mut dyn Read) -> io::Result<()>;

    /// Stores a small content durably, unless there is an object of that name: then it changes
    /// nothing and returns false. Called under a lock.
    fn put_new(&self, name: &str, content: &[u8]) -> io::Result<bool>;

    /// Makes all objects stored and deletions so far durable, including those of other writers.
    fn settle(&self) -> io::Result<()>;

    /// The content of an object, and its length in bytes.
    fn get(&self, name: &str) -> io::Result<(Box<dyn Read + '_>, u64)>;

    /// The objects directly inside a folder: their names within it, and their lengths in bytes.
    /// Empty if there is no such folder. Unordered.
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>>;

    /// Deletes an object. Not an error if there is none. Called under a lock.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Whether there is an object of this name.
    fn exists(&self, name: &str) -> io::Result<bool> {
        match self.get(name) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The purpose of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Add objects. A target may allow several such writers at once.
    Add,
    /// Delete objects, while no writer adds any.
    Collect,
}

/// The right to write; dropping it releases it.
pub trait Hold: Debug {
    /// Checks that the right is still held, and renews it if necessary. Called between the steps of
    /// long work, which an error here ends.
    fn confirm(&self) -> io::Result<()>;

    /// Whether the right was held without interruption. False if it may have been lost and regained
    /// unnoticed.
    fn is_sure(&self) -> bool {
        true
    }
}
