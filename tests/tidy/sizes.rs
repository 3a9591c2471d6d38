//! A function fits a screen; a file holds one concept.

use crate::source::{block_end, code_of, files, is_test, without_tests};

const LONGEST_FUNCTION: usize = 70;
const LONGEST_FILE: usize = 500;

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

/// Where in a line of code a function begins.
fn function_at(line: &str) -> Option<usize> {
    let at = line.find("fn ")?;
    let before = line[..at].trim_end();
    let begins = ["", "pub", "const", "async", "unsafe", "extern"];
    let is_item = before.ends_with(')') || begins.contains(&before.rsplit(' ').next()?);
    is_item.then_some(at)
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

/// Lines with code on them, without the modules that are compiled for tests only.
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
