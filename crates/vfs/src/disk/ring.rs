//! Submits many reads of direct files in one system call (`io_uring`): with many requests in its
//! queue, a device serves each in a fraction of the time of a single one, and no thread has to be
//! woken.
//!
//! 1. A *ring*, a request queue shared with the system, belongs to one caller at a time. Idle rings
//!    are kept for the next caller. A ring costs a file handle and the memory that it reads into,
//!    and is created on first use: a process that never reads this way has none.
//! 2. Requests for as many pieces as fit are queued and submitted, a few at a time, so that the
//!    device starts on the first ones while the caller finds the next. The system reads into the
//!    ring's own memory, with the alignment that `O_DIRECT` requires.
//! 3. Completed pieces are passed to the caller while the others are still being read.
//! 4. Failed or short reads are not passed on: the caller reads these pieces itself, and gets the
//!    error.
//!
//! If the system lacks or forbids this call, it is tried once, and not again.
//!
//! Safety argument. The system writes to memory without the compiler's knowledge, from the time a
//! request is queued until its completion is taken out of the ring. It writes to the ring's own
//! `space`, never to the caller's memory, and `in_flight` counts the requests whose completion has
//! not been seen:
//!
//! 1. `space` is never resized, and freed only by the drop of [`Ring`], which leaks it if
//!    `in_flight` is not 0: whatever ends a read early, an error or a caller's panic, the memory
//!    stays in place.
//! 2. A request is queued only by [`Ring::queue`], for a part of `space` that no other request in
//!    flight has.
//! 3. A part of `space` is read only by [`Ring::lend`], after the completion of its request, which
//!    ends the system's use of it. No reference to all of `space` exists from the first request to
//!    the last completion.
//! 4. A request names its file by its handle. The file is borrowed until the read ends, with its
//!    piece; the system has its own reference as soon as the request is submitted. An abandoned
//!    ring is closed, and requests that were queued and not submitted are never read.
//!
//! A forked child has a copy of the memory, but shares the ring: it uses no ring of its parent,
//! which it recognizes by the process id. A child with its parent's process id, in a namespace of
//! its own, must not read this way.

#![allow(unsafe_code)]

use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::AsRawFd;
use std::process;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, types};
use rustix::io::Errno;

use super::read::ALIGN;
use crate::{Piece, Pieces};

/// The most requests in flight.
const ENTRIES: usize = 128;

/// Requests per submission: the device starts on them while the next are queued.
const BATCH: usize = 8;

/// The most bytes that the requests in flight read.
const SPACE_BYTES: usize = 1 << 20;

/// The most idle rings that are kept.
const MAX_IDLE: usize = 8;

/// How often in a row a ring may accept nothing because the system lacks resources.
const ATTEMPTS: usize = 1000;

/// The pause between such attempts.
const PAUSE: Duration = Duration::from_micros(20);

static RINGS: Rings = Rings::new();

/// See [`crate::read_at_once`].
pub(crate) fn read_at_once<'a>(pieces: &mut dyn Pieces<'a>) {
    RINGS.read(pieces);
}

/// The idle rings.
struct Rings {
    idle: Mutex<Vec<Ring>>,
    /// Set once: the system does not support rings, or one failed.
    is_off: AtomicBool,
}

impl Rings {
    const fn new() -> Self {
        Self { idle: Mutex::new(Vec::new()), is_off: AtomicBool::new(false) }
    }

    fn read<'a>(&self, pieces: &mut dyn Pieces<'a>) {
        let Some(mut ring) = self.take() else { return };
        match ring.read(pieces) {
            Ok(()) => self.keep(ring),
            // It may have requests in flight, so it is dropped here, and its space is leaked: no
            // further rings are created.
            Err(_) if ring.in_flight > 0 => self.is_off.store(true, Ordering::Relaxed),
            Err(error) => self.failed(&error),
        }
    }

    fn take(&self) -> Option<Ring> {
        if self.is_off.load(Ordering::Relaxed) {
            return None;
        }
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some(ring) = idle() {
            if ring.process == process::id() {
                return Some(ring);
            }
            // Its handle may be another file's by now in this process.
            mem::forget(ring);
        }
        match Ring::new() {
            Ok(ring) => Some(ring),
            Err(error) => {
                self.failed(&error);
                None
            }
        }
    }

    /// Stops creating rings, unless the error is a temporary lack of resources.
    fn failed(&self, error: &io::Error) {
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        let is_short = matches!(errno, Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM));
        if !is_short && !crate::is_out_of_handles(error) {
            self.is_off.store(true, Ordering::Relaxed);
        }
    }

    fn keep(&self, ring: Ring) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(ring);
        }
    }
}

/// A ring, and the memory that it reads into.
struct Ring {
    queue: IoUring,
    /// [`SPACE_BYTES`] from the first aligned address.
    space: Vec<u8>,
    /// Requests that were queued and whose completion has not been seen: the system may write to
    /// `space`.
    in_flight: usize,
    /// The process that created it.
    process: u32,
}

/// A piece in flight.
#[derive(Clone, Copy)]
struct Request {
    /// Its index among the pieces.
    nth: usize,
    /// Its offset in the space.
    start: usize,
    /// The number of bytes read before the piece, since reads start at aligned offsets.
    lead: usize,
    bytes: usize,
}

impl Request {
    /// The length of the read, in bytes.
    fn length(&self) -> usize {
        (self.lead + self.bytes).next_multiple_of(ALIGN)
    }
}

impl Ring {
    fn new() -> io::Result<Self> {
        let entries = ENTRIES as u32;
        // Completions are processed when this thread waits for them, and do not interrupt it; older
        // systems do not support this flag.
        let queue = match IoUring::builder().setup_coop_taskrun().build(entries) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                IoUring::new(entries)?
            }
            made => made?,
        };
        // This feature is as old as the request that is used here.
        if !queue.params().is_feature_rw_cur_pos() {
            return Err(ErrorKind::Unsupported.into());
        }
        let space = vec![0; SPACE_BYTES + ALIGN];
        Ok(Self { queue, space, in_flight: 0, process: process::id() })
    }

    /// Reads `pieces`, in batches. After an error the ring must not be used any more.
    fn read<'a>(&mut self, pieces: &mut dyn Pieces<'a>) -> io::Result<()> {
        assert_eq!(self.in_flight, 0, "an abandoned ring");
        let (mut count, mut is_first) = (0, true);
        let mut next = pieces.next();
        while next.is_some() {
            let mut requests = [None; ENTRIES];
            next = self.queue_all(next, pieces, &mut count, &mut requests);
            if mem::take(&mut is_first) && self.in_flight > 0 {
                pieces.meanwhile();
            }
            self.wait(&mut requests, pieces)?;
        }
        Ok(())
    }

    /// Queues the piece `next`, which `count` others precede, and the pieces after it, as many as
    /// fit, and records them in `requests`. Returns the first one that does not fit.
    fn queue_all<'a>(
        &mut self,
        mut next: Option<Piece<'a>>,
        pieces: &mut dyn Pieces<'a>,
        count: &mut usize,
        requests: &mut [Option<Request>; ENTRIES],
    ) -> Option<Piece<'a>> {
        let (mut queued, mut start) = (0, 0);
        while let Some(piece) = next {
            let lead = (piece.offset % ALIGN as u64) as usize;
            let request = Request { nth: *count, start, lead, bytes: piece.bytes };
            if piece.bytes <= SPACE_BYTES - 2 * ALIGN && is_inside(&piece) {
                let end = start + request.length();
                if queued == ENTRIES || end > SPACE_BYTES {
                    break;
                }
                if self.queue(&piece, &request, queued) {
                    requests[queued] = Some(request);
                    (queued, start) = (queued + 1, end);
                    if queued.is_multiple_of(BATCH) {
                        self.submit();
                    }
                }
            }
            *count += 1;
            next = pieces.next();
        }
        self.submit();
        next
    }

    /// Queues one request, identified by `number`. False if the piece's file cannot be read this
    /// way.
    fn queue(&mut self, piece: &Piece<'_>, request: &Request, number: usize) -> bool {
        let Some(file) = piece.file.direct_handle() else { return false };
        let (start, length) = (request.start, request.length());
        assert!(start + length <= SPACE_BYTES, "a request outside of the space");
        let to = self.first().wrapping_add(start);
        let read = opcode::Read::new(types::Fd(file.file.as_raw_fd()), to, length as u32)
            .offset(piece.offset - request.lead as u64)
            .build()
            .user_data(number as u64);
        // SAFETY: the system writes to `length` bytes of `space`, which is not freed or read there
        // before the request's completion is seen, as `in_flight` counts it; no other request in
        // flight overlaps them, as `queue_all` assigns consecutive parts. The handle is that of an
        // open file, borrowed with `piece`. See the argument at the module's head.
        let queued = unsafe { self.queue.submission().push(&read) };
        self.in_flight += usize::from(queued.is_ok());
        queued.is_ok()
    }

    /// Submits the queued requests. Those that the system does not accept now are submitted by the
    /// wait.
    fn submit(&mut self) {
        if !self.queue.submission().is_empty() {
            let _ = self.queue.submit();
        }
    }

    /// Submits the remaining requests, and waits until all of `requests` are completed. Passes each
    /// completed read to `pieces`.
    fn wait<'a>(
        &mut self,
        requests: &mut [Option<Request>; ENTRIES],
        pieces: &mut dyn Pieces<'a>,
    ) -> io::Result<()> {
        let mut attempts = 0;
        while self.in_flight > 0 {
            let failed = self.queue.submit_and_wait(1).err();
            let before = self.in_flight;
            while let Some(completed) = self.completed() {
                let number = completed.user_data() as usize;
                let Some(request) = requests.get_mut(number).and_then(Option::take) else {
                    continue;
                };
                self.in_flight -= 1;
                let Request { nth, start, lead, bytes } = request;
                if usize::try_from(completed.result()).is_ok_and(|read| read >= lead + bytes) {
                    pieces.receive(nth, self.lend(start + lead, bytes));
                }
            }
            let Some(error) = failed else { continue };
            attempts = if self.in_flight < before { 0 } else { attempts + 1 };
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INTR) => attempts = 0,
                // The system lacks memory for requests, and does not wait for those in flight.
                Some(Errno::AGAIN | Errno::BUSY) if attempts < ATTEMPTS => thread::sleep(PAUSE),
                _ => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes the next completion out of the ring.
    fn completed(&mut self) -> Option<cqueue::Entry> {
        let mut queue = self.queue.completion();
        queue.next()
    }

    /// The first aligned address of the space.
    fn first(&mut self) -> *mut u8 {
        // This creates no reference to its content.
        let space = self.space.as_mut_ptr();
        space.wrapping_add(space.addr().next_multiple_of(ALIGN) - space.addr())
    }

    /// Bytes of the space that belonged to a completed request.
    fn lend(&mut self, start: usize, bytes: usize) -> &[u8] {
        assert!(start + bytes <= SPACE_BYTES, "bytes outside of the space");
        // SAFETY: the bytes are within `space`, which was zeroed when it was created, and has
        // SPACE_BYTES from its first aligned address. Their request's completion was seen, so the
        // system no longer writes to them; the requests in flight have other parts.
        unsafe { slice::from_raw_parts(self.first().wrapping_add(start), bytes) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // The system may still write to it.
            mem::forget(mem::take(&mut self.space));
        }
    }
}

/// Whether the piece is within its file.
fn is_inside(piece: &Piece<'_>) -> bool {
    let end = piece.offset.checked_add(piece.bytes as u64);
    end.is_some_and(|end| end <= piece.file.bytes())
}

#[cfg(test)]
mod tests;
