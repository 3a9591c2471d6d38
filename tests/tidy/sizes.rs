//! A function fits a screen; a file holds one concept.

use crate::source::{block_end, code_of, files, is_test, without_tests};

const LONGEST_FUNCTION: usize = 70;
const LONGEST_FILE: usize = 500;
const WIDEST_COMMENT: usize = 100;

#[test]
fn functions_fit_a_screen() {
    let mut long = Vec::new();
    for file in files(&["crates", "tests", "benches"], "rs") {
        let code = code_of(&file.text);
        let lines: Vec<&str> = code.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some(column) = function_at(line) else { continue };
            let Some(end) = block_end(&lines, number, column) else { continue };
            let length = end - number + 1;
            if length > LONGEST_FUNCTION {
                long.push(format!("{}:{}: {length} lines", file.path, number + 1));
            }
        }
    }
    assert!(long.is_empty(), "above {LONGEST_FUNCTION} lines:\n{}", long.join("\n"));
}

/// The column at which a function begins in a line of code.
fn function_at(line: &str) -> Option<usize> {
    let at = line.find("fn ")?;
    let before = line[..at].trim_end();
    let begins = ["", "pub", "const", "async", "unsafe", "extern"];
    let is_item = before.ends_with(')') || begins.contains(&before.rsplit(' ').next()?);
    is_item.then_some(at)
}

#[test]
fn comments_fit_a_hundred_columns() {
    let mut wide = Vec::new();
    for file in files(&["crates", "tests", "benches"], "rs") {
        let lines = wide_comments(&file.text).into_iter();
        wide.extend(lines.map(|line| format!("{}:{line}", file.path)));
    }
    assert!(wide.is_empty(), "above {WIDEST_COMMENT} columns:\n{}", wide.join("\n"));
}

/// Comment lines that are too wide, except for tables and code blocks.
fn wide_comments(text: &str) -> Vec<usize> {
    let (mut wide, mut is_fenced) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_fenced = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!', ' ']);
        is_fenced ^= comment.starts_with("```");
        let is_one_link = !comment.contains(' ');
        let may_be_wide = is_fenced || is_one_link || comment.starts_with('|');
        if line.chars().count() > WIDEST_COMMENT && !may_be_wide {
            wide.push(number + 1);
        }
    }
    wide
}

#[test]
fn wide_comments_are_found() {
    let words = "word ".repeat(20);
    let text = format!("/// {words}\n/// | {words}|\n/// ```\n/// {words}\n/// ```\n//! {words}\n");
    assert_eq!(wide_comments(&text), [1, 6]);
    assert!(wide_comments(&format!("let a = \"// {words}\";\n")).is_empty());
}

#[test]
fn files_hold_one_concept() {
    let mut long = Vec::new();
    for file in files(&["crates"], "rs").into_iter().filter(|file| !is_test(&file.path)) {
        let count = code_lines(&code_of(&file.text));
        if count > LONGEST_FILE {
            long.push(format!("{}: {count} lines of code", file.path));
        }
    }
    assert!(long.is_empty(), "above {LONGEST_FILE} lines of code:\n{}", long.join("\n"));
}

/// Number of lines with code, without modules that are compiled for tests only.
fn code_lines(code: &str) -> usize {
    without_tests(code).lines().filter(|line| !line.trim().is_empty()).count()
}

#[test]
fn tests_inside_a_file_are_not_counted() {
    let code = "fn a() {\n\n}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}";
    assert_eq!(code_lines(code), 3);
    assert_eq!(function_at("    pub(crate) fn a() {"), Some(15));
    assert_eq!(function_at("    let f: fn (u8) = x;"), None);
}
