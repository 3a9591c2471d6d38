//! The terminal of `top`: a screen of its own, which is restored at the end, also after an error.

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
        let lines: Vec<&str> = frame.lines().take(keys::rows()).collect();
        text += &lines.join("\x1b[K\n");
        text += "\x1b[K\x1b[J";
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Waits for this time; returns early, and true, if the user presses q.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        match &self.keys {
            Some(keys) => keys.ends_within(time),
            None => {
                std::thread::sleep(time);
                false
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.has_begun {
            let mut out = io::stdout();
            // If it is closed, there is nothing to restore.
            let _ = out.write_all(END.as_bytes()).and_then(|()| out.flush());
        }
    }
}

#[cfg(unix)]
mod keys {
    use std::io::{self, IsTerminal as _};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::termios::{
        LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr,
    };

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

    /// Standard input, of which each key is read as it is pressed, and not echoed.
    pub(super) struct Keys {
        before: Termios,
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
            // An interrupt stays one.
            now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(&input, OptionalActions::Now, &now).ok()?;
            Some(Self { before })
        }

        pub(super) fn ends_within(&self, time: Duration) -> bool {
            let input = io::stdin();
            let mut waited = [PollFd::new(&input, PollFlags::IN)];
            let time = Timespec::try_from(time).ok();
            // A signal ends the wait early.
            if !matches!(poll(&mut waited, time.as_ref()), Ok(ready) if ready > 0) {
                return false;
            }
            let mut keys = [0; 16];
            match rustix::io::read(&input, &mut keys) {
                Ok(0) | Err(_) => true,
                Ok(read) => keys[..read].iter().any(|key| matches!(key, b'q' | b'Q')),
            }
        }
    }

    impl Drop for Keys {
        fn drop(&mut self) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        }
    }
}

#[cfg(not(unix))]
mod keys {
    use std::time::Duration;

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

        pub(super) fn ends_within(&self, _: Duration) -> bool {
            false
        }
    }
}
