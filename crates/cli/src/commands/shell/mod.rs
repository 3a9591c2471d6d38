//! `trommel shell`: the commands on one store, which stays open for the whole session.
//!
//! On a terminal there is a prompt with a history, and errors do not end the shell. From a pipe or
//! a file there is no prompt, and the first line that fails ends the shell with its exit code. With
//! `--keep-going` the shell continues, and ends with the exit code of the first failure.

mod words;

use std::ffi::OsString;
use std::io::{self, BufRead as _, IsTerminal as _, Write};
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use trommel::Db;

use crate::commands::store::StoreCommand;
use crate::commands::store_args::{Session, WriteArgs};
use crate::failure::Failure;

pub(crate) const LONG_ABOUT: &str = "\
Opens the store once and reads commands: those of this program that work on one store, in the same \
syntax without --db. Blanks separate words, unless they are quoted.

On a terminal there is a prompt, with a history in the user's data directory. From a pipe there is \
none: lines are run in order, except those that begin with #, and the first line that fails ends \
the shell with the exit code of its command.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel shell --db data
  printf 'put a 1\\nput \"a b\" 2\\nscan\\n' | trommel shell --db data --create
  trommel shell --db data --read-only --keep-going < lookups";

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// Open the store read-only; other readers may have it open too
    #[arg(long, conflicts_with = "create")]
    read_only: bool,
    /// Create the store if the directory is missing or empty
    #[arg(long)]
    create: bool,
    /// Continue after a line that fails
    #[arg(long)]
    keep_going: bool,
    /// Neither read nor write the history
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    write: WriteArgs,
}

/// A line of the shell.
#[derive(Debug, Parser)]
#[command(name = "", multicall = true, max_term_width = 100)]
#[command(about = "Commands of the shell; `help COMMAND` explains one")]
#[command(help_template = "{about}\n\n{subcommands}")]
struct Line {
    #[command(subcommand)]
    command: LineCommand,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum LineCommand {
    #[command(flatten)]
    Store(StoreCommand),
    /// Leave the shell (so does Ctrl-D)
    #[command(alias = "quit")]
    Exit,
}

/// The effect of a line on the shell.
enum Done {
    GoOn,
    Leave,
}

pub(crate) fn run(
    args: &ShellArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let act = |db: &Db| {
        let session = Session { open: Some(db), ..session };
        if io::stdin().is_terminal() {
            prompt(args, session, out)
        } else {
            run_script(args, session, out)
        }
    };
    if args.read_only {
        args.write.store.read(session, act)
    } else {
        args.write.make_and(session, args.create, act)
    }
}

/// Runs one line.
fn run_line(line: &[u8], session: Session<'_>, out: &mut dyn Write) -> Result<Done, Failure> {
    if line.trim_ascii_start().starts_with(b"#") {
        return Ok(Done::GoOn);
    }
    let words = words::split(line).map_err(Failure::Usage)?;
    if words.is_empty() {
        return Ok(Done::GoOn);
    }
    let words = words.into_iter().map(os_string).collect::<Result<Vec<_>, _>>()?;
    let mut line = Line::command().mut_subcommands(|command| {
        let has_store = command.get_arguments().any(|arg| arg.get_id() == "db");
        if has_store { command.mut_arg("db", |arg| arg.hide(true)) } else { command }
    });
    let matches = line.try_get_matches_from_mut(words);
    match matches.and_then(|matches| Line::from_arg_matches(&matches)) {
        Ok(Line { command: LineCommand::Exit }) => Ok(Done::Leave),
        Ok(Line { command: LineCommand::Store(command) }) => {
            command.run(session, out).map(|()| Done::GoOn)
        }
        Err(error) if error.use_stderr() => {
            let text = error.render().to_string();
            let text = text.trim_end().strip_prefix("error: ").unwrap_or(text.trim_end());
            Err(Failure::Usage(text.replace("try '--help'", "try 'help'")))
        }
        Err(help) => {
            write!(out, "{}", help.render())?;
            Ok(Done::GoOn)
        }
    }
}

/// A word as an OS string; only on Unix may it contain any bytes.
#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it may fail")]
fn os_string(word: Vec<u8>) -> Result<OsString, Failure> {
    use std::os::unix::ffi::OsStringExt as _;
    Ok(OsString::from_vec(word))
}

#[cfg(not(unix))]
fn os_string(word: Vec<u8>) -> Result<OsString, Failure> {
    let text = String::from_utf8(word).map_err(|_| {
        Failure::Usage("a word is not UTF-8: write its bytes as \\xNN, or use hex".into())
    })?;
    Ok(text.into())
}

fn run_script(args: &ShellArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut first_failure = None;
    for (at, line) in io::stdin().lock().split(b'\n').enumerate() {
        let line =
            line.map_err(|error| Failure::Other(format!("reading standard input: {error}")))?;
        session.go_on()?;
        match run_line(&line, session, out) {
            Ok(Done::GoOn) => {}
            Ok(Done::Leave) => break,
            Err(failure) if failure.is_final() => return Err(failure),
            Err(failure) => {
                let failure = failure.with(format!("that was line {} of the input", at + 1));
                if !args.keep_going {
                    return Err(failure);
                }
                failure.say();
                first_failure.get_or_insert(failure);
            }
        }
    }
    first_failure.map_or(Ok(()), |failure| Err(Failure::Reported(Box::new(failure))))
}

fn prompt(args: &ShellArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let broken = |error: ReadlineError| Failure::Other(format!("the terminal: {error}"));
    let config = Config::builder().max_history_size(10_000).map_err(broken)?;
    let config = config.auto_add_history(true).history_ignore_space(true).build();
    let mut editor: Editor<(), FileHistory> = Editor::with_config(config).map_err(broken)?;
    let history = if args.no_history { None } else { history_file() };
    if let Some(file) = &history {
        // There is none at first, and the shell works without.
        let _ = editor.load_history(file);
    }
    loop {
        match editor.readline("trommel> ") {
            Ok(line) => match run_line(line.as_bytes(), session, out) {
                Ok(Done::GoOn) => {}
                Ok(Done::Leave) => break,
                Err(failure) => failure.say(),
            },
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(broken(error)),
        }
        // An interrupt ends a command, not the shell.
        session.control.stop.clear();
        if let Some(file) = &history {
            let _ = editor.append_history(file);
        }
    }
    Ok(())
}

/// The file of the history: in the user's data directory, according to the XDG base directory
/// specification.
fn history_file() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let data = variable("XDG_DATA_HOME")
        .or_else(|| Some(variable("HOME")?.join(".local").join("share")))?;
    let dir = data.join("trommel");
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir.join("history"))
}
