//! The files of the repository, and Rust source reduced to its code.

use std::path::{Path, PathBuf};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the root").to_path_buf()
}

/// A text file of the repository.
pub(crate) struct File {
    /// Its path from the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All files with this extension below `folders` of the root (`.` for the root's own files).
pub(crate) fn files(folders: &[&str], extension: &str) -> Vec<File> {
    let mut found = Vec::new();
    for folder in folders {
        collect(&root().join(folder), *folder != ".", extension, &mut found);
    }
    found.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a text file");
        let path = path.strip_prefix(root()).expect("below the root").to_string_lossy();
        File { path: path.trim_start_matches("./").replace('\\', "/"), text }
    };
    found.into_iter().map(read).collect()
}

fn collect(dir: &Path, recurse: bool, extension: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            if recurse && path.file_name().is_some_and(|name| name != "target") {
                collect(&path, recurse, extension, found);
            }
        } else if path.extension().is_some_and(|other| other == extension) {
            found.push(path);
        }
    }
}

/// Rust source with comments and the contents of string literals blanked out, line by line.
pub(crate) fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = blank_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            code.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

/// The end of the comment or string literal that begins at `at`; `at` if none begins there.
fn blank_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1);
    match chars[at] {
        '/' if next == Some(&'/') => find(chars, at, |c| c == '\n'),
        '/' if next == Some(&'*') => {
            let closes = |i: &usize| chars[*i] == '*' && chars.get(i + 1) == Some(&'/');
            (at + 2..chars.len()).find(closes).map_or(chars.len(), |i| i + 2)
        }
        '"' => text_end(chars, at),
        'r' if matches!(next, Some('"' | '#')) && !is_word(chars, at) => raw_end(chars, at),
        '\'' if next == Some(&'\\') => find(chars, at + 3, |c| c == '\'') + 1,
        '\'' if chars.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

fn find(chars: &[char], from: usize, is_it: impl Fn(char) -> bool) -> usize {
    (from..chars.len()).find(|i| is_it(chars[*i])).unwrap_or(chars.len())
}

/// Whether a word continues at `at`.
fn is_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') && chars[at - 1] != 'b'
}

fn text_end(chars: &[char], at: usize) -> usize {
    let mut end = at + 1;
    while end < chars.len() && chars[end] != '"' {
        end += if chars[end] == '\\' { 2 } else { 1 };
    }
    (end + 1).min(chars.len())
}

fn raw_end(chars: &[char], at: usize) -> usize {
    let hashes = find(chars, at + 1, |c| c != '#') - at - 1;
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return at;
    }
    let closes =
        |i: &usize| chars[*i] == '"' && (1..=hashes).all(|more| chars.get(i + more) == Some(&'#'));
    (at + 2 + hashes..chars.len()).find(closes).map_or(chars.len(), |i| i + 1 + hashes)
}

/// The words of `code`, each with its line (from 0).
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(number, line)| {
        let ends = |c: char| !c.is_alphanumeric() && c != '_';
        line.split(ends).filter(|word| !word.is_empty()).map(move |word| (number, word))
    })
}

/// The line in which the first braces opened at or after line `from` are closed again, unless a `;`
/// comes before them.
pub(crate) fn block_end(lines: &[&str], from: usize, column: usize) -> Option<usize> {
    let mut depth = 0;
    for (number, line) in lines.iter().enumerate().skip(from) {
        let skip = if number == from { column } else { 0 };
        for c in line.chars().skip(skip) {
            match c {
                ';' if depth == 0 => return None,
                '{' => depth += 1,
                '}' if depth == 1 => return Some(number),
                '}' => depth -= 1,
                '(' | '[' => depth += 1000,
                ')' | ']' => depth -= 1000,
                _ => {}
            }
        }
    }
    None
}

/// Code without the modules that are compiled for tests only.
pub(crate) fn without_tests(code: &str) -> String {
    let lines: Vec<&str> = code.lines().collect();
    let (mut kept, mut at) = (String::new(), 0);
    while at < lines.len() {
        if lines[at].trim() == "#[cfg(test)]"
            && let Some(end) = block_end(&lines, at + 1, 0)
        {
            at = end + 1;
            continue;
        }
        kept.push_str(lines[at]);
        kept.push('\n');
        at += 1;
    }
    kept
}

/// Whether a file contains only test code.
pub(crate) fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "testing.rs" || part == "testing")
        || path.ends_with("tests.rs")
        || path.ends_with("conformance.rs")
}

#[test]
fn comments_and_texts_are_no_code() {
    let text = "let a = \"x // {\"; // }\nlet b = r#\"\"}\"#; let c = '{'; /* } */ let d: &'a str;";
    let code = code_of(text);
    assert_eq!(code.lines().count(), 2);
    assert!(!code.contains(['{', '}', '"']), "{code}");
    assert!(code.contains("&'a str"));
    let lines = ["fn a(x: [u8; 2])", "{", " if b { c }", "}", "fn d();"];
    assert_eq!(block_end(&lines, 0, 0), Some(3));
    assert_eq!(block_end(&lines, 4, 0), None);
}
