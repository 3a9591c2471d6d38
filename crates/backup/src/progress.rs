//! Progress reports.

/// Receives the progress of a call, and may cancel it. `()` ignores progress and never cancels.
pub trait Progress {
    /// A step of `bytes` bytes begins.
    fn begin(&self, what: &str, bytes: u64) {
        let _ = (what, bytes);
    }

    /// `bytes` more bytes of the step are done.
    fn advance(&self, bytes: u64) {
        let _ = bytes;
    }

    /// The step has ended.
    fn end(&self) {}

    /// Whether to cancel: the call then cleans up and fails with
    /// [`Error::Cancelled`](crate::Error::Cancelled).
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Progress for () {}

/// A step in progress, which ends when this is dropped.
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
