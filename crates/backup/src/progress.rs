//! How far a call has got, for whoever waits for it.

/// Is told how far a call has got, and may stop it. `()` listens to nothing and stops nothing.
pub trait Progress {
    /// A step begins, which will go through `bytes` bytes.
    fn begin(&self, what: &str, bytes: u64) {
        let _ = (what, bytes);
    }

    /// So many more bytes of the step are done.
    fn advance(&self, bytes: u64) {
        let _ = bytes;
    }

    /// The step is over.
    fn end(&self) {}

    /// Whether to give up: the call cleans up after itself and fails with
    /// [`Error::Cancelled`](crate::Error::Cancelled).
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Progress for () {}

/// A step that has begun and ends when this is dropped, however that comes about.
pub(crate) struct Step<'a>(&'a dyn Progress);

impl<'a> Step<'a> {
    pub(crate) fn begin(progress: &'a dyn Progress, what: &str, bytes: u64) -> Self {
        progress.begin(what, bytes);
        Self(progress)
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
