//! `trommel top`: a live store, in the terminal or on a page.
//!
//! * [`frame`]: what is shown at one moment, in every form;
//! * [`published`]: the metrics that the writer publishes;
//! * [`screen`]: the terminal.

mod frame;
mod published;
mod screen;

use std::fs;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use trommel::vfs::{DiskVfs, Vfs as _};
use trommel_lab::report::live;

use crate::commands::levels::seconds;
use crate::commands::live_store::LiveStore;
use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::OutputArgs;
use frame::{Frame, Watched};
use published::{Metrics, Published};
use screen::{Request, Screen};

pub(crate) const LONG_ABOUT: &str = "\
Shows a store at work, anew at each interval, also while another process writes to it: levels, \
filters measured beside expected, running jobs, the cache, stalls and latencies. q or Ctrl-C ends \
it, Ctrl-Z suspends it. If standard output is not a terminal, one frame is printed.

It takes no lock, and reads the levels, files and sequence numbers itself, as a follower. What the \
writer counts (lookups, filters, cache, stalls, running jobs, latencies) only the writer knows: it \
is shown if the writer publishes its metrics to a file (`Db::write_metrics`, trommel bench \
--metrics), and --metrics names that file. Rates are those between its last two publications; the \
rates of false positives, and percentiles, are those since the store was opened. A percentile is an \
upper bound: the next power of two nanoseconds. If the writer has closed the store, or has not \
published for three of its periods and a second, only its last counters and their age are shown. \
In the shell everything is known.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel top --db db                              levels, and writes per second
  trommel bench --db db --metrics db.metrics &
  trommel top --db db --metrics db.metrics         that, and what the writer counts
  trommel top --db db --metrics db.metrics --html top.html
                                                   the same as a page that reloads itself
  trommel top --db db --once --format=json         one frame, for scripts";

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The file in which the writer publishes its metrics
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Time between two frames
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Show one frame and end
    #[arg(long)]
    once: bool,
    /// Write each frame to FILE, as a page that a browser reloads, instead of to the terminal
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The store as of now.
fn look(source: &LiveStore<'_>, metrics: Option<&Path>) -> Result<Watched, Failure> {
    let db = source.db();
    let (published, is_closed) = match source {
        LiveStore::Open(db) => (Ok(Published::now(&db.openmetrics("shell"))), false),
        LiveStore::Followed(follower) => {
            follower.catch_up()?;
            let none = || Err("none: name their file with --metrics".to_owned());
            let read = metrics.map_or_else(none, |file| Published::read(file, db.id()));
            (read, follower.follower_stats()?.is_closed)
        }
    };
    Ok(Watched {
        at: Instant::now(),
        dir: db.dir().to_path_buf(),
        id: db.id(),
        is_closed,
        stats: db.stats(),
        published,
    })
}

pub(crate) fn run(
    args: &TopArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let source = LiveStore::open(&args.store, session)?;
    if let Some(file) = &args.html {
        if args.metrics.as_ref() == Some(file) {
            let what = format!(
                "--html would replace the metrics in {}: name another file",
                file.display()
            );
            return Err(Failure::Usage(what));
        }
        refuse_inside(source.db().dir(), file)?;
    }
    let is_live = !args.once && (args.html.is_some() || io::stdout().is_terminal());
    let mut screen = (is_live && args.html.is_none()).then(Screen::open);
    let (mut before, mut older) = (None::<Watched>, None);
    loop {
        let watched = look(&source, args.metrics.as_deref())?;
        // The writer publishes at its own times: a frame may find the metrics of the last one.
        if let (Ok(now), Some(Watched { published: Ok(last), .. })) = (&watched.published, &before)
            && now.written != last.written
        {
            older = Some(last.clone());
        }
        let frame = Frame::of(&watched, before.as_ref(), older.as_ref());
        match (&args.html, &mut screen) {
            (Some(file), _) => write_page(file, &watched, &frame, args.interval)?,
            (None, None) => frame.print(&args.output, out)?,
            (None, Some(screen)) => {
                let mut text = Vec::new();
                frame.print(&args.output, &mut text)?;
                screen.show(&String::from_utf8_lossy(&text), out)?;
            }
        }
        if !is_live || wait(args.interval, screen.as_mut(), session)? {
            return Ok(());
        }
        before = Some(watched);
    }
}

/// Waits for the next frame. Returns whether the user wants no more.
fn wait(
    interval: Duration,
    mut screen: Option<&mut Screen>,
    session: Session<'_>,
) -> Result<bool, Failure> {
    /// How long to wait before checking for an interrupt.
    const SLICE: Duration = Duration::from_millis(50);

    let start = Instant::now();
    loop {
        if session.control.stop.is_set() {
            // With a screen an interrupt is how this ends.
            return if screen.is_some() { Ok(true) } else { Err(Failure::Interrupted) };
        }
        let left = interval.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        let Some(screen) = &mut screen else {
            std::thread::sleep(left.min(SLICE));
            continue;
        };
        match screen.wait(left.min(SLICE)) {
            Some(Request::Quit) => return Ok(true),
            Some(Request::Suspend) => {
                screen.suspend();
                return Ok(false);
            }
            None => {}
        }
    }
}

/// Refuses a page in the directory of the store, where it could replace a file of the store.
fn refuse_inside(dir: &Path, page: &Path) -> Result<(), Failure> {
    let above = page.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    let real = |path: &Path| {
        fs::canonicalize(path)
            .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))
    };
    if real(above)?.starts_with(real(dir)?) {
        let (page, dir) = (page.display(), dir.display());
        let what = format!("{page} lies in the store's directory {dir}: name another place");
        return Err(Failure::Usage(what));
    }
    Ok(())
}

/// Replaces the page as a whole, so that a browser never loads a part. A killed process may leave
/// its temporary file, which the next one replaces.
fn write_page(
    file: &Path,
    watched: &Watched,
    frame: &Frame,
    interval: Duration,
) -> Result<(), Failure> {
    let name = watched.dir.display().to_string();
    let page = live::page(&name, &utc_now(), interval, &frame.tables());
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let _ = DiskVfs.remove(&temporary);
    // Not through a link that someone else has put there.
    let written = fs::File::create_new(&temporary)
        .and_then(|mut new| new.write_all(page.as_bytes()))
        .and_then(|()| DiskVfs.rename(&temporary, file));
    if written.is_err() {
        let _ = DiskVfs.remove(&temporary);
    }
    written.map_err(|error| Failure::Other(format!("writing {}: {error}", file.display())))
}

/// The time of day in UTC.
fn utc_now() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = now.unwrap_or_default().as_secs() % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
