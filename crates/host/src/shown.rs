// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that others have chosen, as people may see them: none forges a line, a colour or another
//! direction of writing. Pure.

use std::borrow::Cow;
use std::fmt::Write;

/// One line as a terminal may have it: a control character, and what changes the direction of text
/// or takes no room, is shown as its escape (`\n`, `\u{1b}`). Any process may choose its name.
pub fn shown(line: &str) -> Cow<'_, str> {
    escaped(line, deceives)
}

/// The same for a text of lines: a newline and a tabulator stay.
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| deceives(c) && !matches!(c, '\n' | '\t'))
}

/// At most `most` characters; what is cut ends with `…`.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => text.into(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match (is_escaped(c), c) {
            (false, _) => shown.push(c),
            (true, '\n' | '\r' | '\t') => shown.extend(c.escape_default()),
            (true, _) => _ = write!(shown, "{}", c.escape_unicode()),
        }
    }
    shown.into()
}

/// Control characters, and those of Unicode that reorder text or are not seen.
pub fn deceives(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deceives_a_reader_is_shown_as_its_escape() {
        for (name, says) in [
            ("jackd", "jackd"),
            ("größe-测试 é", "größe-测试 é"),
            ("dev-disk\\x2dlabel", "dev-disk\\x2dlabel"),
            ("\x1b[31mRED\x07", "\\u{1b}[31mRED\\u{7}"),
            ("x\nmotion: CPU 3: shielded", "x\\nmotion: CPU 3: shielded"),
            ("\r\t", "\\r\\t"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}"),
            ("a\u{202e}b\u{2066}\u{200b}\u{feff}", "a\\u{202e}b\\u{2066}\\u{200b}\\u{feff}"),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            assert_eq!(shown(name), says);
        }
        assert_eq!(shown_lines("a\n\tb\x1b\n"), "a\n\tb\\u{1b}\n");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(cut("ééé", 3), "ééé");
        assert_eq!(cut("éééé", 3), "éé…");
        assert_eq!(cut("", 0), "");
    }
}
