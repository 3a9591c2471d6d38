//! Memory that an open table comes to take while it is read, and whoever keeps account of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::FilterHost;

/// Bytes beyond those that the table took when it was opened. What it holds, the host is told of before; and of
/// all of it when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Grown {
    host: Option<Arc<dyn FilterHost>>,
    bytes: AtomicUsize,
}

impl Grown {
    /// Nothing yet.
    pub(crate) fn new(host: Option<Arc<dyn FilterHost>>) -> Self {
        Self { host, bytes: AtomicUsize::new(0) }
    }

    pub(crate) fn host(&self) -> Option<Arc<dyn FilterHost>> {
        self.host.clone()
    }

    /// So much more is about to be held.
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
        if let Some(host) = &self.host {
            host.grows(bytes as u64);
        }
    }

    /// So much of it is not held.
    pub(crate) fn take_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
        if let Some(host) = &self.host {
            host.shrinks(bytes as u64);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

impl Drop for Grown {
    fn drop(&mut self) {
        self.take_back(self.bytes());
    }
}
