//! A value that is computed on first use, once per process.

#[cfg(feature = "std")]
pub(crate) use std::sync::OnceLock;

#[cfg(not(feature = "std"))]
use alloc::boxed::Box;

/// `std::sync::OnceLock`, except that several threads may compute the value at the same time.
#[cfg(not(feature = "std"))]
pub(crate) struct OnceLock<T>(once_cell::race::OnceBox<T>);

#[cfg(not(feature = "std"))]
impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        Self(once_cell::race::OnceBox::new())
    }

    pub(crate) fn get_or_init(&self, compute: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(|| Box::new(compute()))
    }
}
