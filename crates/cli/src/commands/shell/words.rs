//! Splits a line of the shell into words.
//!
//! Blanks separate words. Quotes, single or double, preserve blanks; text in single quotes is
//! literal. A backslash escapes a blank or a quote; before any other character it is passed to the
//! command, so that `\x00` and `\\` mean the same in the shell and outside.

/// The words of a line, or a description of the error.
pub(super) fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote: Option<u8> = None;
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if quote.is_none() && byte.is_ascii_whitespace() {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_default();
        match (byte, quote) {
            (b'\\', None | Some(b'"')) => match bytes.next() {
                Some(next @ (b'"' | b'\'')) => word.push(next),
                Some(next) if next.is_ascii_whitespace() && quote.is_none() => word.push(next),
                next => {
                    word.push(b'\\');
                    word.extend(next);
                }
            },
            (b'"' | b'\'', None) => quote = Some(byte),
            (_, Some(open)) if byte == open => quote = None,
            _ => word.push(byte),
        }
    }
    if let Some(open) = quote {
        let open = char::from(open);
        return Err(format!("the line ends inside quotes: close them with {open}"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_shells_do() {
        for (line, words) in [
            ("", vec![]),
            ("  get   a\t", vec!["get", "a"]),
            (r#"put "a b" 'c "d"' "#, vec!["put", "a b", "c \"d\""]),
            (r#"put "" ''"#, vec!["put", "", ""]),
            (r"put a\ b \x00\\ \", vec!["put", "a b", r"\x00\\", "\\"]),
            (r#"put "a\"b\n" 'c\'"#, vec!["put", r#"a"b\n"#, r"c\"]),
            (r#"a"b"'c'd"#, vec!["abcd"]),
            (r#"\"a\'"#, vec!["\"a'"]),
        ] {
            let split = split(line.as_bytes()).unwrap();
            let expected: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().into()).collect();
            assert_eq!(split, expected, "{line}");
        }
        assert!(split(b"get 'a").unwrap_err().contains("close them with '"));
        assert!(split(b"get \"a\\\"").is_err());
        assert_eq!(split(b"get \xff").unwrap(), [b"get".to_vec(), vec![0xff]]);
    }
}
