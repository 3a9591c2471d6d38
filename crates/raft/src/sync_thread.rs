//! The thread that makes writes durable, so that no task of the runtime waits for the device.
//!
//! 1. A caller writes to the store, and then requests a notification.
//! 2. The thread takes all requests that are there, syncs once, and notifies them all: while the
//!    device is busy, the next writes gather.
//!
//! A sync covers every write that was made before its request. If it fails, all of its requests get
//! the error, and the store refuses writes from then on, so later requests get one as well.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use trommel::Db;

/// Called once all that was written before is durable, or cannot be made so.
type Notify = Box<dyn FnOnce(trommel::Result<()>) + Send>;

/// The thread. Dropping this waits for it, so that it does not keep the store open any longer.
#[derive(Debug)]
pub(crate) struct SyncThread {
    requests: Option<Sender<Notify>>,
    thread: Option<JoinHandle<()>>,
}

impl SyncThread {
    pub(crate) fn start(db: &Db) -> io::Result<Self> {
        let (requests, received) = channel();
        let db = db.clone();
        let thread = Builder::new()
            .name("trommel-raft-sync".to_owned())
            .spawn(move || notify_each(&db, &received))?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// Calls `notify` once everything written so far is durable.
    pub(crate) fn request(&self, notify: impl FnOnce(trommel::Result<()>) + Send + 'static) {
        if let Some(requests) = &self.requests {
            // If a panic has ended the thread, `notify` is dropped, which its receiver notices.
            let _ = requests.send(Box::new(notify));
        }
    }
}

fn notify_each(db: &Db, received: &Receiver<Notify>) {
    while let Ok(first) = received.recv() {
        let others: Vec<Notify> = received.try_iter().collect();
        let synced = db.sync();
        for notify in std::iter::once(first).chain(others) {
            notify(synced.clone());
        }
    }
}

impl Drop for SyncThread {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // It has no panic of its own to report: those of `notify` are of openraft.
            let _ = thread.join();
        }
    }
}
