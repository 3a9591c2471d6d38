//! Where a repository can be kept: a few calls, which directories and object stores both have.
//!
//! Names are relative, with `/` between folders, and there is at most one folder. Errors are told
//! by their [`io::ErrorKind`]: `NotFound` where there is no such object.
//!
//! Called by [`Repository`](crate::Repository) only.

use std::fmt::Debug;
use std::io::{self, Read};
use std::path::Path;

/// A place that holds objects by name. What is stored is never changed, only deleted.
pub trait Target: Debug + Send + Sync {
    /// What the place is called in messages: a path or a URL.
    fn place(&self) -> String;

    /// Where it lies, if it is a directory of the system.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// Makes a place that does not exist, or in which nothing lies, ready for a repository. False
    /// if something else lies there; nothing was changed then.
    fn found(&self) -> io::Result<bool>;

    /// Takes the right to write, which lasts until the answer is dropped. `WouldBlock` if
    /// somebody else's work does not go with it; the text says what that is.
    fn lock(&self, purpose: Purpose) -> io::Result<Box<dyn Hold>>;

    /// Stores a large content of `bytes` bytes under a name that holds its hash. Reads `content` to
    /// its end, and stores nothing under the name if that fails. Replaces an object of that name.
    /// Called under a lock.
    fn put(&self, name: &str, bytes: u64, content: &mut dyn Read) -> io::Result<()>;

    /// Stores a small content, durably, unless there is an object of that name: then it is left as
    /// it is, and the answer is false. Called under a lock.
    fn put_new(&self, name: &str, content: &[u8]) -> io::Result<bool>;

    /// Makes everything that was put and deleted so far durable, by whomever.
    fn settle(&self) -> io::Result<()>;

    /// The content of an object, and its length in bytes.
    fn get(&self, name: &str) -> io::Result<(Box<dyn Read + '_>, u64)>;

    /// The objects right inside a folder: their names within it, and their lengths in bytes.
    /// Nothing if there is no such folder. In no order.
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>>;

    /// Deletes an object. No error if there is none. Called under a lock.
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

/// What a writer is going to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Add objects. A target may let several do so at once.
    Add,
    /// Delete objects, while nobody adds any.
    Collect,
}

/// The right to write; dropping it gives it back.
pub trait Hold: Debug {
    /// Whether the right is still ours, renewed if that is how the target does it. Called between
    /// the steps of long work, which an error here ends.
    fn confirm(&self) -> io::Result<()>;

    /// Whether the right cannot have been lost and come back unnoticed.
    fn is_sure(&self) -> bool {
        true
    }
}
