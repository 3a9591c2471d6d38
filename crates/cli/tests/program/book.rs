//! Checks the examples and the lists of the book and the README.
//!
//! A `console` block consists of commands, each after `$ ` (a line that ends in `\` is continued),
//! and their output. A page is checked as follows:
//! 1. All its commands are run by one `sh`, in order, in an empty directory, with the program in
//!    `PATH`. So a page may `cd`, set variables, use pipes, and build on earlier commands.
//! 2. The output of each, on standard output and standard error, is compared with the page, where
//!    `[..]` matches anything within a line and a line `...` any lines. Times in lines of
//!    db_bench's form are replaced by `[..]` first.
//! 3. A command that fails must be followed by `echo $?`: a page never hides an exit code.
//!
//! `TROMMEL_BLESS=1` writes the actual output to the pages, with `[..]` where it still matches.
//!
//! Other tests here check that all options, errors, exit codes and commands are described.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use snapbox::Data;
use snapbox::filter::NormalizeToExpected;

use crate::support::Program;

const OPEN: &str = "```console\n";
const CLOSE: &str = "```\n";
/// Marks the end of a command's output; its exit code follows.
const MARK: &str = "--trommel-book-mark--";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README and every page of the book.
fn pages() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md"), root().join("docs/README.md")];
    let mut dirs = vec![root().join("docs/book")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs/book").join(name)).unwrap()
}

/// The ranges of the contents of a page's `console` blocks.
fn console_blocks(page: &str) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = page[at..].find(OPEN) {
        let start = at + open + OPEN.len();
        let end = start + page[start..].find(CLOSE).expect("a block that is opened is closed");
        found.push(start..end);
        at = end + CLOSE.len();
    }
    found
}

/// The commands of a block, verbatim.
fn commands(block: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in block.lines() {
        if goes_on {
            let command = found.last_mut().expect("a line goes on");
            command.push('\n');
            command.push_str(line);
        } else if let Some(command) = line.strip_prefix("$ ") {
            found.push(command.to_owned());
        } else {
            continue;
        }
        goes_on = line.ends_with('\\');
    }
    found
}

/// The output of a command, and its exit code.
struct Printed {
    text: String,
    code: i32,
}

/// Runs commands one after another in one shell.
fn run(commands: &[String]) -> Vec<Printed> {
    let program = Program::new();
    let mut script = String::from("exec 2>&1\n");
    for command in commands {
        let ending = format!("code=$?; echo; echo '{MARK}' $code; (exit $code)");
        writeln!(script, "{command}\n{ending}").unwrap();
    }
    let home = program.path("home");
    fs::create_dir(&home).unwrap();
    let script_path = program.path("script");
    fs::write(&script_path, script).unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_trommel")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let ran = Command::new("sh")
        .arg(&script_path)
        .current_dir(&home)
        .env("PATH", format!("{}:{path}", built.display()))
        .env("TMPDIR", program.path(""))
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1")
        .env_remove("TROMMEL_DB")
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    let mut printed = Vec::new();
    let mut rest = &*text;
    while let Some((before, after)) = rest.split_once(MARK) {
        let (code, next) = after.split_once('\n').unwrap_or((after, ""));
        // The line break before the mark is ours, and may stand in for one that the command left
        // out.
        let text = before.strip_suffix('\n').unwrap_or(before);
        let text = text.lines().map(without_times).collect::<Vec<_>>().join("\n");
        printed.push(Printed { text, code: code.trim().parse().unwrap() });
        rest = next;
    }
    assert_eq!(printed.len(), commands.len(), "the shell stopped: {text}");
    printed
}

/// A line in db_bench's form with `[..]` for each number that depends on time.
fn without_times(line: &str) -> String {
    let units = ["micros/op", "ops/sec", "seconds", "MB/s"];
    let is_unit = |word: Option<&&str>| {
        word.is_some_and(|word| units.contains(&word.trim_end_matches([';', ',', ')'])))
    };
    if !line.contains(units[0]) {
        return line.to_owned();
    }
    let words: Vec<&str> = line.split(' ').collect();
    let mut kept: Vec<&str> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if is_unit(words.get(at + 1)) {
            // The width of the number varies, and with it the blanks before it.
            let wide = kept.iter().rev().take_while(|word| word.is_empty()).count();
            kept.truncate(kept.len() - wide);
            kept.push("[..]");
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

/// The block with the actual output of its commands, with the patterns of `old` where they match.
fn renewed(old: &str, commands: &[String], printed: &[Printed]) -> String {
    let mut new = String::new();
    for (command, printed) in commands.iter().zip(printed) {
        writeln!(new, "$ {command}").unwrap();
        new.push_str(&printed.text);
        if !printed.text.is_empty() && !printed.text.ends_with('\n') {
            new.push('\n');
        }
    }
    let normal = NormalizeToExpected::new().redact().normalize(Data::text(new), &Data::text(old));
    normal.to_string()
}

/// The page with the actual output of all its commands; and the differences found.
fn checked(page: &str) -> (String, Vec<String>) {
    let blocks = console_blocks(page);
    let each: Vec<Vec<String>> =
        blocks.iter().map(|block| commands(&page[block.clone()])).collect();
    let all: Vec<String> = each.concat();
    let printed = if all.is_empty() { Vec::new() } else { run(&all) };
    let mut faults = Vec::new();
    for (at, (command, printed)) in all.iter().zip(&printed).enumerate() {
        let is_shown = all.get(at + 1).is_some_and(|next| next.starts_with("echo $?"));
        if printed.code != 0 && !is_shown {
            faults.push(format!("$ {command}\nended with {}, and the page hides it", printed.code));
        }
    }
    let (mut new, mut from, mut done) = (String::new(), 0, 0);
    for (block, commands) in blocks.into_iter().zip(&each) {
        let old = &page[block.clone()];
        let ours = &printed[done..done + commands.len()];
        done += commands.len();
        let text = renewed(old, commands, ours);
        if text != old {
            let differs = old.lines().zip(text.lines()).find(|(old, new)| old != new);
            let (old, new) = differs.unwrap_or(("fewer lines, or more", "those below"));
            faults.push(format!("the page has\n{old}\nand the program says\n{new}\nin\n{text}"));
        }
        new.push_str(&page[from..block.start]);
        new.push_str(&text);
        from = block.end;
    }
    new.push_str(&page[from..]);
    (new, faults)
}

#[test]
fn transcripts_are_what_the_program_prints() {
    let is_blessed = std::env::var_os("TROMMEL_BLESS").is_some();
    let mut faults = Vec::new();
    let mut count = 0;
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        count += console_blocks(&page).len();
        let (new, wrong) = checked(&page);
        if is_blessed && new != page {
            fs::write(&path, new).unwrap();
        }
        faults.extend(wrong.iter().map(|wrong| format!("{}:\n{wrong}", path.display())));
    }
    assert!(count > 0, "the book has no transcripts");
    let help =
        "if the program is right, run this test with TROMMEL_BLESS=1 and read the difference";
    assert!(is_blessed || faults.is_empty(), "{}\n{help}", faults.join("\n"));
}

#[test]
fn a_wrong_transcript_is_found() {
    let page = "# A\n```console\n$ echo it is \\\n  so\nit is so\n$ echo 12 s; false\n[..] s\n\
                $ echo $?\n1\n```\nend\n";
    assert_eq!(checked(page), (page.to_owned(), vec![]));
    let (new, faults) = checked(&page.replace("is so", "is not so"));
    assert_eq!(new, page);
    assert_eq!(faults.len(), 1, "{faults:?}");
    let line = "fillseq      :       3.446 micros/op 290228 ops/sec 0.172 seconds 500 operations;";
    let masked = "fillseq      : [..] micros/op [..] ops/sec [..] seconds 500 operations;";
    assert_eq!(without_times(line), masked);
    let (_, faults) = checked("```console\n$ false\n```\n");
    assert!(faults[0].contains("ended with 1, and the page hides it"), "{faults:?}");
}

/// Whether a page has `name` in backticks at the start of a line, or in a heading.
fn describes(page: &str, name: &str) -> bool {
    page.lines().any(|line| {
        let line = line.trim_start_matches(['#', ' ', '|']);
        line.strip_prefix('`').is_some_and(|rest| rest.starts_with(&format!("{name}`")))
    })
}

/// The first paragraph of the section on an option.
fn facts<'a>(page: &'a str, name: &str) -> &'a str {
    let heading = format!("### `{name}`\n");
    let (_, section) =
        page.split_once(&heading).unwrap_or_else(|| panic!("no section on `{name}`"));
    section.trim_start().split("\n\n").next().unwrap_or_default()
}

#[test]
fn every_option_is_described_with_its_default() {
    let page = page("configuration.md");
    let settings = trommel::Options::default().settings();
    for (name, default) in &settings {
        let given = facts(&page, name);
        let given = given.strip_prefix("Default: ").unwrap_or_else(|| panic!("{name}: no default"));
        let bytes = given.split(['.', ',', ';']).next().and_then(plain_number);
        // The machine decides what the block cache gets.
        if let Ok(default) = default.parse::<u64>()
            && *name != "cache_bytes"
        {
            assert_eq!(bytes, Some(default), "the default of `{name}`");
        }
        // A word, or the variant of an enum.
        if default.parse::<u64>().is_err() {
            let first = given.split(['.', ';']).next().unwrap_or_default();
            let plain = |text: &str| text.to_lowercase().replace([' ', '`'], "");
            let word = plain(first.rsplit("::").next().unwrap_or_default());
            assert!(word.starts_with(&plain(default)), "the default of `{name}` is {default}");
        }
    }
    assert!(settings.len() > 20, "the options were not found in {settings:?}");
    // These two are not text.
    let all = settings.iter().map(|(name, _)| *name).chain(["vfs", "environment"]);
    let all = all.inspect(|name| assert!(!facts(&page, name).is_empty())).count();
    let sections = page.lines().filter(|line| line.starts_with("### `")).count();
    assert_eq!(sections, all, "an option is described twice, or is not one");
}

/// The bounds reported by opening a store with this value of an option.
fn bounds(name: &str, value: &str) -> Option<Vec<u64>> {
    let options = trommel::Options::default().set(name, value).ok()?;
    let options = options.vfs(std::sync::Arc::new(trommel_sim::MemoryVfs::new()));
    let error = trommel::Db::open("db", options).err()?.to_string();
    let (_, bounds) = error.split_once("it must be ").filter(|_| error.starts_with(name))?;
    Some(bounds.split(' ').filter_map(|word| word.parse().ok()).collect())
}

#[test]
fn bounds_of_options_are_described() {
    let page = page("configuration.md");
    let mut seen = 0;
    for (name, _) in trommel::Options::default().settings() {
        // Without bounds, and a store with the larger one would take its memory.
        if name == "cache_bytes" {
            continue;
        }
        let values = ["0", "4294967295"];
        let Some(bounds) = values.iter().find_map(|value| bounds(name, value)) else { continue };
        seen += 1;
        let given = facts(&page, name).replace([',', '.'], " ");
        let words: Vec<&str> = given.split_whitespace().collect();
        let units = words.windows(2).map(|two| two.join(" "));
        let numbers = words.iter().map(|word| (*word).to_owned()).chain(units);
        let numbers: Vec<u64> = numbers.filter_map(|text| plain_number(&text)).collect();
        for bound in bounds {
            assert!(numbers.contains(&bound), "the bound {bound} of `{name}` is not in: {given}");
        }
    }
    assert!(seen >= 12, "{seen} options have bounds");
}

/// The number in `4 KiB` or `12`.
fn plain_number(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_once(' ').unwrap_or((text, ""));
    if unit == "B" {
        return digits.parse().ok();
    }
    let units = ["", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let shift = units.iter().position(|known| *known == unit)?;
    Some(digits.parse::<u64>().ok()? << (10 * shift))
}

/// The variants of a public enum of the engine's `error.rs`.
fn variants(name: &str) -> Vec<String> {
    let source = fs::read_to_string(root().join("crates/engine/src/error.rs")).unwrap();
    let (_, body) = source.split_once(&format!("pub enum {name} {{\n")).unwrap();
    let lines = body.lines().take_while(|line| *line != "}");
    let names = lines.filter_map(|line| line.strip_prefix("    "));
    names
        .filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))
        .map(|line| line.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned())
        .collect()
}

#[test]
fn every_error_and_exit_code_is_described() {
    let page = page("errors.md");
    let (kinds, errors) = (variants("ErrorKind"), variants("Error"));
    assert!(kinds.len() >= 5 && errors.len() >= 12, "{kinds:?} {errors:?}");
    for name in kinds.iter().map(|kind| format!("ErrorKind::{kind}")) {
        assert!(describes(&page, &name), "{name} is not described");
    }
    for name in errors.iter().map(|error| format!("Error::{error}")) {
        assert!(describes(&page, &name), "{name} is not described");
    }
    let help = Program::new().run("--help").out;
    let (_, codes) = help.split_once("Exit:").unwrap();
    let codes = codes.split([',', '\n']).filter_map(|part| part.split_whitespace().next());
    let codes: Vec<&str> = codes.filter(|word| word.parse::<u8>().is_ok()).collect();
    assert_eq!(codes.len(), 9, "{codes:?}");
    for code in codes {
        assert!(describes(&page, code), "exit code {code} is not described");
    }
}

#[test]
fn every_command_has_a_transcript() {
    let help = Program::new().run("--help").out;
    let (_, lists) = help.split_once("Usage:").unwrap();
    let (lists, _) = lists.split_once("\nOptions:").unwrap();
    let names: Vec<&str> = lists
        .lines()
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 20, "{names:?}");
    let run: Vec<String> = pages()
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .flat_map(|page| {
            let blocks = console_blocks(&page);
            blocks.into_iter().flat_map(|block| commands(&page[block])).collect::<Vec<_>>()
        })
        .collect();
    let missing: Vec<&&str> = names
        .iter()
        .filter(|name| {
            let call = format!("trommel {name}");
            !run.iter().any(|line| line.ends_with(&call) || line.contains(&format!("{call} ")))
        })
        .collect();
    assert!(missing.is_empty(), "no transcript shows {missing:?}");
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let docs = root().join("docs");
    for path in pages().iter().filter(|path| path.starts_with(&docs)) {
        let name = path.strip_prefix(&docs).unwrap().to_string_lossy().replace('\\', "/");
        assert!(summary.contains(&format!("({name})")), "{name} is not in SUMMARY.md");
    }
}

#[test]
fn every_page_with_rust_is_compiled() {
    let compiled = fs::read_to_string(root().join("tests/src/lib.rs")).unwrap();
    for path in pages().iter().filter(|path| !path.ends_with("../../README.md")) {
        let has_rust = fs::read_to_string(path).unwrap().contains("```rust\n");
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        assert_eq!(compiled.contains(&format!("../../{name}")), has_rust, "{name}");
    }
}
