//! The store of a command, and the options that open it.
//!
//! A command that only reads opens the store read-only: it writes nothing, not even for recovery,
//! and shares the store with other readers; with `--follow` also with a writer. Only commands that
//! write entries can create a store. Options without a flag have the values recorded in the store
//! ([`Base`]), and no compaction starts by itself: a command does one operation, and leaves the
//! rest of the store as it is. In the shell all commands share the one open store.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use trommel::{Compression, Db, Degraded, FilterPolicy, Options, Prefix};
use trommel_harness::units::{parse_bytes, parse_time};
use trommel_harness::{Control, Unit};

use crate::commands::base::Base;
use crate::entries::Source;
use crate::escape::visible;
use crate::failure::Failure;
use crate::shared_args::one_of;

/// The context of a command.
#[derive(Clone, Copy)]
pub(crate) struct Session<'a> {
    /// The stop and the progress of long operations.
    pub(crate) control: Control<'a>,
    /// The open store of the shell.
    pub(crate) open: Option<&'a Db>,
}

impl Session<'_> {
    /// Returns an error if the user has interrupted the command.
    ///
    /// # Errors
    /// [`Failure::Interrupted`].
    pub(crate) fn go_on(&self) -> Result<(), Failure> {
        if self.control.stop.is_set() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// Runs a long step with a progress display of `all` units (0: unknown).
    pub(crate) fn step<T>(
        &self,
        what: &str,
        (all, unit): (u64, Unit),
        act: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.control.progress.begin(what, all, unit);
        let result = act();
        self.control.progress.end();
        result
    }

    /// Makes a long call into the store that cannot be cancelled: after an interrupt it is
    /// abandoned, which is as safe for the store as the end of the process.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        what: &str,
        db: &Db,
        act: impl FnOnce(&Db) -> trommel::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let db = db.clone();
        self.wait(what, move || act(&db))
    }

    /// As [`Session::call`], without an open store.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        what: &str,
        act: impl FnOnce() -> trommel::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        self.step(what, (0, Unit::Operations), || {
            let result = self.control.stop.unless_set(act);
            Ok(result.ok_or(Failure::Interrupted)??)
        })
    }

    /// Standard input, unless the shell reads its lines from it.
    pub(crate) fn input(&self) -> Result<io::Stdin, Failure> {
        match self.open {
            None => Ok(io::stdin()),
            Some(_) => Err(Failure::Usage(
                "in the shell, - cannot stand for standard input, from which its lines are read"
                    .into(),
            )),
        }
    }

    /// The entries of a file, or of standard input for `-`.
    pub(crate) fn source(&self, file: &OsStr) -> Result<Source, Failure> {
        match file.to_str() {
            Some("-") => Ok(Source::StandardInput(self.input()?)),
            _ => Ok(Source::File(file.into())),
        }
    }
}

/// The store of a command that reads.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Directory of the store [default: $TROMMEL_DB]
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
}

impl StoreArgs {
    /// The store's directory.
    ///
    /// # Errors
    /// If neither the flag nor the environment sets it.
    pub(crate) fn dir(&self) -> Result<PathBuf, Failure> {
        let named = std::env::var_os("TROMMEL_DB").filter(|name| !name.is_empty());
        self.db.clone().or_else(|| named.map(PathBuf::from)).ok_or_else(|| {
            Failure::Usage("which store? Give --db DIR, or set TROMMEL_DB to its directory".into())
        })
    }

    /// As [`StoreArgs::read`], on request skipping corruption, which is reported.
    pub(crate) fn read_degraded<T>(
        &self,
        session: Session<'_>,
        degraded: DegradedArgs,
        act: impl FnOnce(&Db) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(how) = degraded.degraded else {
            return self.read_following(session, degraded.follow, act);
        };
        if session.open.is_some() {
            return Err(Failure::Usage(
                "the shell has its store open already: leave out --degraded".into(),
            ));
        }
        let dir = self.dir()?;
        let options = Base::of(&dir, &Options::default()).options;
        let db = Db::open_degraded(dir, options, how)?;
        let report = db.recovery_report();
        for damage in &report.damage {
            let _ = writeln!(io::stderr(), "damaged: {}", visible(&damage.to_string()));
        }
        say_dropped(&db, "left out");
        if let Some(doubt) = report.doubt.as_ref().filter(|_| how == Degraded::LastIntact) {
            let _ =
                writeln!(io::stderr(), "this is the last intact state, not the newest: {doubt}");
        }
        close_after(db, act)
    }

    /// Rejects `--db` in the shell, which has one store.
    pub(crate) fn reject_db(&self) -> Result<(), Failure> {
        match &self.db {
            None => Ok(()),
            Some(_) => Err(Failure::Usage(
                "the shell works on the store that it has open: leave out --db".into(),
            )),
        }
    }

    /// Calls `act` on the store, opened read-only unless it is already open.
    pub(crate) fn read<T>(
        &self,
        session: Session<'_>,
        act: impl FnOnce(&Db) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.read_following(session, FollowArgs::default(), act)
    }

    /// As [`StoreArgs::read`], on request as a follower of a writer.
    pub(crate) fn read_following<T>(
        &self,
        session: Session<'_>,
        follow: FollowArgs,
        act: impl FnOnce(&Db) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.read_with(session, follow, |options| options, act)
    }

    /// As [`StoreArgs::read_following`], with options changed by `change` if the store is not
    /// already open.
    pub(crate) fn read_with<T>(
        &self,
        session: Session<'_>,
        follow: FollowArgs,
        change: impl FnOnce(Options) -> Options,
        act: impl FnOnce(&Db) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if let Some(db) = session.open {
            self.reject_db()?;
            if follow.follow {
                return Err(Failure::Usage(
                    "the shell has its store open already: leave out --follow".into(),
                ));
            }
            return act(db);
        }
        let dir = self.dir()?;
        let options = change(Base::of(&dir, &Options::default()).options);
        let db = match follow.follow {
            true => Db::open_follower(dir, options)?.db().clone(),
            false => Db::open_read_only(dir, options)?,
        };
        say_dropped(&db, "left out");
        close_after(db, act)
    }

    /// Calls `act` on the store, opened for writing with its recorded options unless it is already
    /// open, and closes it.
    pub(crate) fn write<T>(
        &self,
        session: Session<'_>,
        act: impl FnOnce(&Db) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if let Some(db) = session.open {
            self.reject_db()?;
            return act(db);
        }
        let dir = self.dir()?;
        let base = Base::of(&dir, &of_a_command(false));
        let db = base.open(&dir, &base.options)?;
        say_dropped(&db, "left out");
        close_after(db, act)
    }
}

/// The options of a command that the store does not record: it does one operation, and starts no
/// compaction.
fn of_a_command(create: bool) -> Options {
    Options::default()
        .opening(|o| o.create_if_missing(create))
        .compaction(|c| c.auto_compaction(false))
}

/// How a command reads a damaged store.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct DegradedArgs {
    /// Read a corrupt store: what is certain, or the last intact state [default: certain]
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    #[arg(value_parser = one_of::<Degraded>(["certain", "last-intact"]))]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "certain")]
    #[arg(conflicts_with = "follow")]
    degraded: Option<Degraded>,
    #[command(flatten)]
    follow: FollowArgs,
}

/// Whether a command reads beside a writer.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct FollowArgs {
    /// Read the store as of now, also while another process writes to it
    #[arg(long)]
    follow: bool,
}

impl DegradedArgs {
    /// Whether the flag was given.
    pub(crate) fn is_wanted(self) -> bool {
        self.degraded.is_some()
    }
}

/// The store of a command that writes, and how its new tables are made, from now on: the store
/// remembers that.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Filters of new tables, by level [default: the recorded ones; for a new store,
    /// L0=paired:16,L1-=paired:12]
    #[arg(long, value_name = "SPEC")]
    filters: Option<FilterPolicy>,
    /// Prefix extractor for filters of new tables: fixed:8, until:/ [default: the recorded one; for
    /// a new store, none]
    #[arg(long, value_name = "RULE")]
    prefix_extractor: Option<Prefix>,
    /// Compression of new tables, none or lz4 [default: the recorded one; for a new store, lz4]
    #[arg(long, value_name = "KIND", hide_possible_values = true)]
    #[arg(value_parser = one_of::<Compression>(["none", "lz4"]))]
    compression: Option<Compression>,
    /// How long entries last: 90s, 24h; 0: forever [default: as recorded; for a new store, forever]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    ttl: Option<Duration>,
    /// Bytes of obsolete logs kept for changes: 64M, 1G; 0: none [default: as recorded; for a new
    /// store, none]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    log_archive_bytes: Option<u64>,
    /// Open a corrupt store: keep the data before the corruption, drop the rest, and report it
    #[arg(long)]
    salvage: bool,
}

impl WriteArgs {
    /// Calls `act` on the store, opened for writing unless it is already open, and closes it.
    pub(crate) fn write<T>(
        &self,
        session: Session<'_>,
        act: impl FnOnce(&Db) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.open_and(session, false, |options| options, act)
    }

    /// Calls `act` on the store as if it were open for writing with these options: opened read-only
    /// unless it is already open.
    pub(crate) fn look<T>(
        &self,
        session: Session<'_>,
        act: impl FnOnce(&Db) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if session.open.is_some() {
            return self.open_and(session, false, |options| options, act);
        }
        let dir = self.store.dir()?;
        let options = self.apply(Base::of(&dir, &of_a_command(false)).options);
        let db = Db::open_read_only(dir, options)?;
        say_dropped(&db, "left out");
        close_after(db, act)
    }

    /// The options of the store during a command: the current ones if it is already open, else the
    /// recorded ones with the flags applied; and their sources.
    pub(crate) fn in_force(&self, session: Session<'_>) -> Result<(Options, Base), Failure> {
        let base = match session.open {
            None => Base::of(&self.store.dir()?, &of_a_command(false)),
            Some(db) => {
                self.reject_open_flags()?;
                Base::of(db.dir(), &of_a_command(false)).with(db.options())
            }
        };
        Ok((self.apply(base.options.clone()), base))
    }

    /// Rejects flags for opening in the shell, whose store is open.
    fn reject_open_flags(&self) -> Result<(), Failure> {
        self.store.reject_db()?;
        if self.salvage {
            return Err(Failure::Usage(
                "the shell has its store open already: salvage it before starting the shell".into(),
            ));
        }
        Ok(())
    }

    fn open_and<T>(
        &self,
        session: Session<'_>,
        create: bool,
        change: impl FnOnce(Options) -> Options,
        act: impl FnOnce(&Db) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if let Some(db) = session.open {
            self.reject_open_flags()?;
            let before = db.options();
            db.set_options(|options| self.apply(options))?;
            let result = act(db);
            db.set_options(|_| before)?;
            return result;
        }
        let dir = self.store.dir()?;
        let base = Base::of(&dir, &of_a_command(create));
        let options = self.apply(base.options.clone().opening(|o| o.salvage(self.salvage)));
        let options = change(options);
        let db = base.open(&dir, &options)?;
        if self.salvage && db.recovery_report().dropped.is_empty() {
            let _ = writeln!(io::stderr(), "salvage: nothing had to be dropped");
        }
        say_dropped(&db, if self.salvage { "salvage: dropped" } else { "left out" });
        close_after(db, act)
    }

    /// As [`WriteArgs::write`], for a command with the flag `--create`: with it, a missing or empty
    /// directory becomes a store; without it, the error for a missing store names the flag.
    pub(crate) fn make_and<T>(
        &self,
        session: Session<'_>,
        create: bool,
        act: impl FnOnce(&Db) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.make_with(session, create, |options| options, act)
    }

    /// As [`WriteArgs::make_and`], with options changed by `change` if the store is not already
    /// open.
    pub(crate) fn make_with<T>(
        &self,
        session: Session<'_>,
        create: bool,
        change: impl FnOnce(Options) -> Options,
        act: impl FnOnce(&Db) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let result = self.open_and(session, create, change, act);
        result.map_err(|failure| match &failure {
            Failure::Store(trommel::Error::NotAStore { dir, .. })
                if !create && is_missing_or_empty(dir) =>
            {
                failure.with("give --create to make one")
            }
            _ => failure,
        })
    }

    /// The options, with the flags for new tables applied.
    fn apply(&self, mut options: Options) -> Options {
        if let Some(filters) = &self.filters {
            options = options.filters(filters.clone());
        }
        if let Some(prefix) = &self.prefix_extractor {
            options = options.filtering(|f| f.prefix_extractor(prefix.clone()));
        }
        if let Some(compression) = self.compression {
            options = options.compression(compression);
        }
        if let Some(ttl) = self.ttl {
            options = options.writes(|w| w.ttl(Some(ttl).filter(|ttl| !ttl.is_zero())));
        }
        if let Some(bytes) = self.log_archive_bytes {
            options = options.writes(|w| w.log_archive_bytes(bytes));
        }
        options
    }
}

/// Prints which ends of files the open dropped, if any: writes that were lost in a crash before
/// they were acknowledged as durable, or the corruption that was salvaged around.
fn say_dropped(db: &Db, how: &str) {
    for dropped in &db.recovery_report().dropped {
        let _ = writeln!(io::stderr(), "{how} {}", visible(&dropped.to_string()));
    }
}

/// Whether a store may be created there.
pub(crate) fn is_missing_or_empty(dir: &Path) -> bool {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// An error of `act` comes first; but failing to close the store is an error too.
fn close_after<T>(db: Db, act: impl FnOnce(&Db) -> Result<T, Failure>) -> Result<T, Failure> {
    let result = act(&db)?;
    db.close()?;
    Ok(result)
}
