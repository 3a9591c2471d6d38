//! The terminal of `top`: a screen of its own. The screen before is restored at the end, also after
//! an error or a first signal, and while the program is suspended. A second signal ends the program
//! at once and restores nothing.

use std::io::{self, Write};
use std::time::Duration;

/// The other screen, without a cursor, and with long lines cut off.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const END: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// A terminal in which frames are shown.
pub(super) struct Screen {
    keys: Option<keys::Keys>,
    has_begun: bool,
}

/// What a key requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// q.
    Quit,
    /// Ctrl-Z.
    Suspend,
}

impl Request {
    /// The request of a key, if it is one of these.
    fn of(key: u8) -> Option<Self> {
        match key {
            b'q' | b'Q' => Some(Self::Quit),
            0x1a => Some(Self::Suspend),
            _ => None,
        }
    }
}

impl Screen {
    /// The terminal of standard output. Keys are read if standard input is one too.
    pub(super) fn open() -> Self {
        Self { keys: keys::Keys::open(), has_begun: false }
    }

    /// Shows a frame in place of the one before.
    pub(super) fn show(&mut self, frame: &str, out: &mut dyn Write) -> io::Result<()> {
        let mut text = String::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            text += BEGIN;
        }
        text += "\x1b[H";
        text += &fitted(frame, keys::rows()).join("\x1b[K\n");
        text += "\x1b[K\x1b[J";
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Waits for this time, or for a key that requests something.
    pub(super) fn wait(&self, time: Duration) -> Option<Request> {
        match &self.keys {
            Some(keys) => keys.wait(time),
            None => {
                std::thread::sleep(time);
                None
            }
        }
    }

    /// Restores the terminal and suspends the program. Returns once it is continued.
    pub(super) fn suspend(&mut self) {
        self.leave();
        if let Some(keys) = &self.keys {
            keys.suspend();
        }
    }

    /// Returns to the screen that was shown before.
    fn leave(&mut self) {
        if std::mem::take(&mut self.has_begun) {
            let mut out = io::stdout();
            // If it is closed, there is nothing to restore.
            let _ = out.write_all(END.as_bytes()).and_then(|()| out.flush());
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The lines of a frame that fit into `rows`; if some do not, the last line reports how many.
fn fitted(frame: &str, rows: usize) -> Vec<String> {
    let mut lines: Vec<String> = frame.lines().map(str::to_owned).collect();
    if lines.len() > rows {
        lines.truncate(rows.saturating_sub(1));
        let more = frame.lines().count() - lines.len();
        lines.push(format!("({more} more lines: enlarge the terminal)"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_uses_all_rows_and_says_what_is_missing() {
        let frame = (0..40).map(|line| format!("line {line}\n")).collect::<String>();
        assert_eq!(fitted(&frame, 40), frame.lines().collect::<Vec<_>>());
        assert_eq!(fitted(&frame, 50).len(), 40);
        let cut = fitted(&frame, 24);
        assert_eq!((cut.len(), &*cut[22]), (24, "line 22"));
        assert!(cut[23].starts_with("(17 more lines"), "{}", cut[23]);
    }

    #[test]
    fn keys_are_requests() {
        let requests = [b'q', 0x1a, b'x'].map(Request::of);
        assert_eq!(requests, [Some(Request::Quit), Some(Request::Suspend), None]);
    }
}

#[cfg(unix)]
mod keys {
    use std::io::{self, IsTerminal as _};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Signal, kill_current_process_group};
    use rustix::termios::{
        LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
    };

    use super::Request;

    /// Lines of a terminal that does not say how many it has.
    const ROWS: usize = 24;

    /// Lines of the terminal.
    pub(super) fn rows() -> usize {
        tcgetwinsize(io::stdout())
            .map(|size| size.ws_row.into())
            .ok()
            .filter(|rows| *rows > 0)
            .unwrap_or(ROWS)
    }

    /// No key: `_POSIX_VDISABLE`.
    const DISABLED: u8 =
        if cfg!(any(target_os = "linux", target_os = "android")) { 0 } else { 0xff };

    /// Standard input, of which each key is read as it is pressed, and not echoed. Ctrl-Z is a key,
    /// because the terminal is restored before the program is suspended. Ctrl-C remains a signal,
    /// so that it also ends a program that is not waiting for keys.
    pub(super) struct Keys {
        before: Termios,
        now: Termios,
    }

    impl Keys {
        /// `None` if it is not a terminal.
        pub(super) fn open() -> Option<Self> {
            let input = io::stdin();
            if !input.is_terminal() {
                return None;
            }
            let before = tcgetattr(&input).ok()?;
            let mut now = before.clone();
            now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            now.special_codes[SpecialCodeIndex::VSUSP] = DISABLED;
            set(&now)?;
            Some(Self { before, now })
        }

        pub(super) fn wait(&self, time: Duration) -> Option<Request> {
            let input = io::stdin();
            let mut waited = [PollFd::new(&input, PollFlags::IN)];
            let time = Timespec::try_from(time).ok();
            // A signal ends the wait early.
            if !matches!(poll(&mut waited, time.as_ref()), Ok(ready) if ready > 0) {
                return None;
            }
            let mut keys = [0; 16];
            match rustix::io::read(&input, &mut keys) {
                Ok(0) | Err(_) => Some(Request::Quit),
                Ok(read) => keys[..read].iter().find_map(|key| Request::of(*key)),
            }
        }

        /// Stops the process, and those of its pipeline, as Ctrl-Z does.
        pub(super) fn suspend(&self) {
            set(&self.before);
            let _ = kill_current_process_group(Signal::TSTP);
            set(&self.now);
        }
    }

    /// Sets the modes of the terminal.
    fn set(modes: &Termios) -> Option<()> {
        tcsetattr(io::stdin(), OptionalActions::Now, modes).ok()
    }

    impl Drop for Keys {
        fn drop(&mut self) {
            set(&self.before);
        }
    }
}

#[cfg(not(unix))]
mod keys {
    use std::time::Duration;

    use super::Request;

    /// Lines that any terminal has.
    pub(super) fn rows() -> usize {
        24
    }

    /// Keys are not read here: an interrupt ends it.
    pub(super) struct Keys;

    impl Keys {
        pub(super) fn open() -> Option<Self> {
            None
        }

        pub(super) fn wait(&self, _: Duration) -> Option<Request> {
            None
        }

        pub(super) fn suspend(&self) {}
    }
}
