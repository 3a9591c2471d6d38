//! Escapes for bytes and characters that are not visible.

/// Escapes the invisible characters of `text`, so that a file name or a message from elsewhere
/// cannot send control sequences to a terminal.
pub(crate) fn visible(text: &str) -> String {
    let mut seen = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_unseen(letter) {
            let mut buffer = [0; 4];
            letter.encode_utf8(&mut buffer).bytes().for_each(|byte| escape(byte, &mut seen));
        } else {
            seen.push(letter);
        }
    }
    seen
}

/// Whether a character has no glyph of its own, or changes the glyphs around it.
pub(crate) fn is_unseen(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Appends a byte as an escape: `\n`, `\\` and the like, or `\xNN`.
pub(crate) fn escape(byte: u8, text: &mut String) {
    match byte {
        b'\\' => text.push_str("\\\\"),
        b'\n' => text.push_str("\\n"),
        b'\r' => text.push_str("\\r"),
        b'\t' => text.push_str("\\t"),
        _ => {
            text.push_str("\\x");
            push_hex(byte, text);
        }
    }
}

/// Appends a byte as two hexadecimal digits.
pub(crate) fn push_hex(byte: u8, text: &mut String) {
    for half in [byte >> 4, byte & 15] {
        text.extend(char::from_digit(u32::from(half), 16));
    }
}
