//! One flipped bit: how Trommel, RocksDB, fjall, redb, sled, SQLite and LMDB react.
//!
//! 1. A store is filled in a process of its own, each pair synced or committed by itself, and then
//!    closed in order, or killed.
//! 2. One bit of one of its files is flipped: of every byte, or of bytes evenly spread over a file
//!    larger than the budget. Trailing zeros of a file are left alone.
//! 3. The store is opened in a process of its own, every key is looked up, everything is scanned,
//!    and the answers are compared with what was written.
//!
//! The result is one word: `OK`, all is right; `ERR`, some call failed and all answers are right;
//! `LOST`, a written key is reported missing; `WRONG`, another value or key was returned; `CRASH`,
//! the process died; `HANG`, it was killed after ten seconds. The worst counts.

mod page;
mod stores;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;

use crate::stores::{ALL, Contender, Pairs};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Time after which a store counts as hanging.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of pairs, whether they are then flushed to tables, and the store's final state.
const SCENES: [(&str, u32); 3] = [("killed", 200), ("closed", 200), ("flushed", 2000)];

/// One flipped bit: how stores react. Writes one-bit-flip.md and one-bit-flip.jsonl.
#[derive(Debug, Parser)]
#[command(name = "flips", version)]
struct Args {
    /// Directory for the page and the counts
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Maximum number of flips in a file
    #[arg(long, value_name = "N", default_value_t = 300)]
    budget: usize,

    /// Only stores whose name begins like this
    #[arg(long, value_name = "NAME", default_value = "")]
    store: String,

    /// Where the stores are created; best a file system in memory
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
}

/// The counts of one store, one scene and one kind of file.
#[derive(Debug, Default, Clone, serde::Serialize)]
struct Line {
    store: String,
    version: String,
    scene: String,
    file: String,
    bytes: u64,
    flips: u64,
    verdicts: BTreeMap<String, u64>,
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = match words.first().and_then(|word| word.to_str()) {
        Some("fill") => stores::fill(&words[1..]),
        Some("ask") => stores::ask(&words[1..]),
        _ => compare(&Args::parse()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "flips: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &Args) -> Result<(), Error> {
    let scratch = args.dir.join(format!("flips-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let outcome = measure(args, &scratch);
    fs::remove_dir_all(&scratch)?;
    let lines = outcome?;
    fs::create_dir_all(&args.out)?;
    let mut json = String::new();
    for line in &lines {
        json += &(serde_json::to_string(line)? + "\n");
    }
    fs::write(args.out.join("one-bit-flip.jsonl"), json)?;
    fs::write(args.out.join("one-bit-flip.md"), page::page(&lines, args.budget))?;
    Ok(())
}

fn measure(args: &Args, scratch: &Path) -> Result<Vec<Line>, Error> {
    let mut lines = Vec::new();
    for contender in ALL.iter().filter(|contender| contender.name.starts_with(&args.store)) {
        for (scene, pairs) in SCENES {
            let image = filled(contender, scene, pairs, scratch)?;
            let sound = ask(contender, pairs, &image, scratch)?;
            if sound != "OK" {
                return Err(
                    format!("{} is not sound without a flip: {sound}", contender.name).into()
                );
            }
            let first = lines.len();
            for (file, content) in &image {
                flip_file(
                    args,
                    contender,
                    (scene, pairs),
                    &image,
                    (file, content),
                    scratch,
                    &mut lines,
                )?;
            }
            for line in &lines[first..] {
                let _ = writeln!(
                    io::stderr(),
                    "{} {scene} {}: {:?}",
                    contender.name,
                    line.file,
                    line.verdicts
                );
            }
        }
    }
    Ok(lines)
}

/// Flips bits of one file, one at a time, and adds up the results under the file's kind.
fn flip_file(
    args: &Args,
    contender: &Contender,
    (scene, pairs): (&str, u32),
    image: &Image,
    (file, content): (&PathBuf, &Content),
    scratch: &Path,
    lines: &mut Vec<Line>,
) -> Result<(), Error> {
    let step = content.start.len().div_ceil(args.budget).max(1);
    let kind = kind_of(file);
    let same =
        |line: &Line| line.store == contender.name && line.scene == scene && line.file == kind;
    let at = lines.iter().position(same).unwrap_or_else(|| {
        lines.push(Line {
            store: contender.name.into(),
            version: stores::locked(contender.package),
            scene: scene.into(),
            file: kind,
            ..Line::default()
        });
        lines.len() - 1
    });
    for byte in (0..content.start.len()).step_by(step) {
        let mut flipped = image.clone();
        if let Some(content) = flipped.get_mut(file) {
            content.start[byte] ^= 1 << (byte / step % 8);
        }
        let verdict = ask(contender, pairs, &flipped, scratch)?;
        *lines[at].verdicts.entry(verdict).or_default() += 1;
        lines[at].flips += 1;
    }
    lines[at].bytes += content.start.len() as u64;
    Ok(())
}

/// The contents of a file: everything up to its last non-zero byte, and its length.
#[derive(Debug, Clone)]
struct Content {
    start: Vec<u8>,
    bytes: u64,
}

type Image = BTreeMap<PathBuf, Content>;

/// Fills a store and returns its files.
fn filled(contender: &Contender, scene: &str, pairs: u32, scratch: &Path) -> Result<Image, Error> {
    let dir = scratch.join("filled");
    fs::create_dir_all(&dir)?;
    let own = std::env::current_exe()?;
    let mut child = Command::new(own);
    child.args(["fill", contender.name, scene, &pairs.to_string()]).arg(&dir);
    let output = child.stdout(Stdio::null()).output()?;
    if scene != "killed" && !output.status.success() {
        return Err(
            format!("{}: {}", contender.name, String::from_utf8_lossy(&output.stderr)).into()
        );
    }
    let mut image = Image::new();
    collect(&dir, &dir, &mut image)?;
    fs::remove_dir_all(&dir)?;
    Ok(image)
}

fn collect(root: &Path, dir: &Path, image: &mut Image) -> Result<(), Error> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, image)?;
            continue;
        }
        let mut start = fs::read(&path)?;
        let bytes = start.len() as u64;
        start.truncate(start.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1));
        image.insert(path.strip_prefix(root)?.to_path_buf(), Content { start, bytes });
    }
    Ok(())
}

/// Opens the store with these files in a process of its own, and returns the result.
fn ask(contender: &Contender, pairs: u32, image: &Image, scratch: &Path) -> Result<String, Error> {
    let dir = scratch.join("asked");
    for (file, content) in image {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap_or(&dir))?;
        #[expect(clippy::disallowed_methods, reason = "files of other stores too")]
        let mut written = fs::File::create(&path)?;
        written.write_all(&content.start)?;
        written.set_len(content.bytes)?;
    }
    let own = std::env::current_exe()?;
    let mut child = Command::new(own)
        .args(["ask", contender.name, &pairs.to_string()])
        .arg(&dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let begin = Instant::now();
    let ended = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if begin.elapsed() > PATIENCE => break None,
            None => std::thread::sleep(Duration::from_micros(500)),
        }
    };
    let verdict = match ended {
        None => {
            child.kill()?;
            child.wait()?;
            "HANG".to_owned()
        }
        Some(status) if !status.success() => "CRASH".to_owned(),
        Some(_) => io::read_to_string(child.stdout.take().ok_or("no output")?)?.trim().to_owned(),
    };
    fs::remove_dir_all(&dir)?;
    Ok(verdict)
}

/// A file's name without its numbers, which identifies its kind.
fn kind_of(file: &Path) -> String {
    let text = file.to_string_lossy();
    let mut kind = String::new();
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if kind.ends_with('N') => {}
            true => kind.push('N'),
            false => kind.push(c),
        }
    }
    kind
}

/// The pairs to write: 200 to 2,000, with keys of 10 bytes and values of 40 to 139.
fn pairs(count: u32) -> Pairs {
    let pair = |n: u32| {
        let value = format!("value of {n:06} ").repeat(3 + n as usize % 7).into_bytes();
        (format!("key-{n:06}").into_bytes(), value)
    };
    (0..count).map(pair).collect()
}
