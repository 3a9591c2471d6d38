//! Many reads of direct files handed to the system in one call (`io_uring`): a device that is asked
//! for many blocks at once brings each in a fraction of the time that it takes for one alone, and
//! no thread has to be woken for it.
//!
//! 1. A *ring*, a queue of requests shared with the system, belongs to one caller at a time. Those
//!    that nobody uses wait for the next caller. A ring costs a file handle and the memory that it
//!    reads into, and is made when one is first needed: a process that reads nothing so has none.
//! 2. As many pieces as there is room for are queued and handed over, a few at a time so that the
//!    device begins with the first ones while the caller finds the next. The system reads into the
//!    ring's own memory, on the grid that `O_DIRECT` wants.
//! 3. What has come is handed to the caller, while the others are still read.
//! 4. What failed, or ended early, is not handed on: the caller reads it by itself, and gets the
//!    error.
//!
//! A system without this call, or that forbids it, is asked once, and no more.
//!
//! Safety argument. The system writes to memory behind the compiler's back, from when a request is
//! queued until its completion is taken out of the ring. What it writes to is the ring's own
//! `space`, never the caller's memory, and `under_way` counts the requests whose completion was not
//! yet seen:
//!
//! 1. `space` is never resized, and freed only by the drop of [`Ring`], which leaks it if
//!    `under_way` is not 0: whatever ends a read early, an error or a caller that panics, the
//!    memory stays where it is.
//! 2. A request is queued only by [`Ring::queue`], for a part of `space` that no other request
//!    under way has.
//! 3. A part of `space` is looked at only by [`Ring::lend`], after the completion of its request,
//!    which ends the system's use of it. No reference to all of `space` exists from the first
//!    request to the last completion.
//! 4. A request names its file by its handle. The file is borrowed until the read ends, as its
//!    piece is; the system has a reference of its own as soon as the request is handed over. A ring
//!    that was given up is closed, and what it had queued and not handed over is never read.
//!
//! A forked child has a copy of the memory, but shares the ring: it uses none that its parent made,
//! which it tells by the number of the process. A child that has its parent's number, in a
//! namespace of its own, must not read so.

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

/// Requests that are under way at once.
const ENTRIES: usize = 128;

/// Requests that are handed over at a time: the device begins with them while the next are queued.
const HANDED_OVER: usize = 8;

/// What the requests under way read at most, in bytes.
const SPACE_BYTES: usize = 1 << 20;

/// Rings that are kept while nobody uses them.
const KEPT: usize = 8;

/// How often in succession a ring may take nothing because the system is short of something.
const ATTEMPTS: usize = 1000;

/// How long it is left alone then.
const PAUSE: Duration = Duration::from_micros(20);

static RINGS: Rings = Rings::new();

/// See [`crate::read_at_once`].
pub(crate) fn read_at_once<'a>(pieces: &mut dyn Pieces<'a>) {
    RINGS.read(pieces);
}

/// The rings that nobody uses now.
struct Rings {
    idle: Mutex<Vec<Ring>>,
    /// Set once: the system has no rings for us, or let one down.
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
            // It may have requests under way, so it ends here, and its space cannot be given back:
            // once is enough.
            Err(_) if ring.under_way > 0 => self.is_off.store(true, Ordering::Relaxed),
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

    /// Makes no more rings, unless the error says that the system is short of something, of which
    /// there may be more later.
    fn failed(&self, error: &io::Error) {
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        let is_short = matches!(errno, Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM));
        if !is_short && !crate::is_out_of_handles(error) {
            self.is_off.store(true, Ordering::Relaxed);
        }
    }

    fn keep(&self, ring: Ring) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(ring);
        }
    }
}

/// A ring, and the memory that it reads into.
struct Ring {
    queue: IoUring,
    /// [`SPACE_BYTES`] from the first address on the grid.
    space: Vec<u8>,
    /// Requests that were queued and whose completion was not seen: the system may write to
    /// `space`.
    under_way: usize,
    /// The process that made it.
    process: u32,
}

/// A piece that is under way.
#[derive(Clone, Copy)]
struct Request {
    /// Its number among the pieces.
    nth: usize,
    /// Where in the space it is read to.
    start: usize,
    /// So many bytes are read there before it, as reads begin on the grid.
    lead: usize,
    bytes: usize,
}

impl Request {
    /// What is read for it, in bytes.
    fn length(&self) -> usize {
        (self.lead + self.bytes).next_multiple_of(ALIGN)
    }
}

impl Ring {
    fn new() -> io::Result<Self> {
        let entries = ENTRIES as u32;
        // Completions are seen when we wait for them, and interrupt nothing; older systems know no
        // such thing.
        let queue = match IoUring::builder().setup_coop_taskrun().build(entries) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                IoUring::new(entries)?
            }
            made => made?,
        };
        // It came together with the request that we make.
        if !queue.params().is_feature_rw_cur_pos() {
            return Err(ErrorKind::Unsupported.into());
        }
        let space = vec![0; SPACE_BYTES + ALIGN];
        Ok(Self { queue, space, under_way: 0, process: process::id() })
    }

    /// Reads `pieces`, in turns. An error says that the ring is of no use any more.
    fn read<'a>(&mut self, pieces: &mut dyn Pieces<'a>) -> io::Result<()> {
        assert_eq!(self.under_way, 0, "a ring that was given up");
        let (mut count, mut is_first) = (0, true);
        let mut next = pieces.next();
        while next.is_some() {
            let mut requests = [None; ENTRIES];
            next = self.queue_all(next, pieces, &mut count, &mut requests);
            if mem::take(&mut is_first) && self.under_way > 0 {
                pieces.meanwhile();
            }
            self.wait(&mut requests, pieces)?;
        }
        Ok(())
    }

    /// Queues the piece `next`, of which `count` came before, and those behind it, as many as there
    /// is room for, and notes them in `requests`. Returns the first one that there is none for.
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
                    if queued.is_multiple_of(HANDED_OVER) {
                        self.hand_over();
                    }
                }
            }
            *count += 1;
            next = pieces.next();
        }
        self.hand_over();
        next
    }

    /// Queues one request, which will be known as `number`. False where the piece's file is not
    /// read so.
    fn queue(&mut self, piece: &Piece<'_>, request: &Request, number: usize) -> bool {
        let Some(file) = piece.file.direct_handle() else { return false };
        let (start, length) = (request.start, request.length());
        assert!(start + length <= SPACE_BYTES, "a request outside of the space");
        let to = self.first().wrapping_add(start);
        let read = opcode::Read::new(types::Fd(file.file.as_raw_fd()), to, length as u32)
            .offset(piece.offset - request.lead as u64)
            .build()
            .user_data(number as u64);
        // SAFETY: the system writes to `length` bytes of `space`, which is not freed or looked at
        // there before the request's completion is seen, as `under_way` counts it; no other request
        // under way has a byte of them, as `queue_all` gives each the part behind the one before
        // it. The handle is that of an open file, borrowed with `piece`. See the argument at the
        // module's head.
        let queued = unsafe { self.queue.submission().push(&read) };
        self.under_way += usize::from(queued.is_ok());
        queued.is_ok()
    }

    /// Hands over what is queued. What the system does not take now it takes when we wait.
    fn hand_over(&mut self) {
        if !self.queue.submission().is_empty() {
            let _ = self.queue.submit();
        }
    }

    /// Hands over what is still queued, and waits until all of `requests` are completed; each that
    /// was read is received.
    fn wait<'a>(
        &mut self,
        requests: &mut [Option<Request>; ENTRIES],
        pieces: &mut dyn Pieces<'a>,
    ) -> io::Result<()> {
        let mut attempts = 0;
        while self.under_way > 0 {
            let failed = self.queue.submit_and_wait(1).err();
            let before = self.under_way;
            while let Some(completed) = self.completed() {
                let number = completed.user_data() as usize;
                let Some(request) = requests.get_mut(number).and_then(Option::take) else {
                    continue;
                };
                self.under_way -= 1;
                let Request { nth, start, lead, bytes } = request;
                if usize::try_from(completed.result()).is_ok_and(|read| read >= lead + bytes) {
                    pieces.receive(nth, self.lend(start + lead, bytes));
                }
            }
            let Some(error) = failed else { continue };
            attempts = if self.under_way < before { 0 } else { attempts + 1 };
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INTR) => attempts = 0,
                // The system is short of memory for requests, and does not wait for those under
                // way.
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

    /// The first address of the space that is on the grid.
    fn first(&mut self) -> *mut u8 {
        // No reference to what is in it is made for this.
        let space = self.space.as_mut_ptr();
        space.wrapping_add(space.addr().next_multiple_of(ALIGN) - space.addr())
    }

    /// Bytes of the space, which a request that is completed had.
    fn lend(&mut self, start: usize, bytes: usize) -> &[u8] {
        assert!(start + bytes <= SPACE_BYTES, "bytes outside of the space");
        // SAFETY: the bytes lie in `space`, which was filled with zeros when it was made, and whose
        // length is SPACE_BYTES behind its first address on the grid. They are of a request whose
        // completion was seen, so that the system writes to them no more; the requests under way
        // have other parts.
        unsafe { slice::from_raw_parts(self.first().wrapping_add(start), bytes) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.under_way > 0 {
            // The system may still write to it.
            mem::forget(mem::take(&mut self.space));
        }
    }
}

/// Whether the piece lies within its file.
fn is_inside(piece: &Piece<'_>) -> bool {
    let end = piece.offset.checked_add(piece.bytes as u64);
    end.is_some_and(|end| end <= piece.file.bytes())
}

#[cfg(test)]
mod tests;
