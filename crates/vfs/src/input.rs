//! A finished file as a stream.

use std::io::{self, Read};
use std::sync::Arc;

use crate::ReadFile;

/// A file, read from its beginning to its end. Unbuffered: wrap it in a `BufReader`.
#[derive(Debug)]
pub struct FileInput {
    file: Arc<dyn ReadFile>,
    at: u64,
}

impl FileInput {
    /// The whole of `file`.
    pub fn new(file: Arc<dyn ReadFile>) -> Self {
        Self { file, at: 0 }
    }
}

impl Read for FileInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = (self.file.bytes() - self.at).min(buffer.len() as u64) as usize;
        self.file.read_at(self.at, &mut buffer[..bytes])?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}
