// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of TOML in words that need no Rust: the line, the cause, the cure.

/// The error in one line: `line 4, irqs = [-4]: found -4; expected …`.
pub fn in_a_line(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let number = text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let line: String = text.lines().nth(number).unwrap_or("").trim().chars().take(60).collect();
    let words = in_words(&error.message().replace('\n', ", "));
    without_controls(&format!("line {}, {line}: {words}", number + 1))
}

fn without_controls(line: &str) -> String {
    line.chars().fold(String::with_capacity(line.len()), |mut shown, c| {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
        shown
    })
}

fn in_words(message: &str) -> String {
    let of_value = ["invalid type: ", "invalid value: "];
    if let Some(rest) = of_value.iter().find_map(|start| message.strip_prefix(start))
        && let Some((found, expected)) = rest.rsplit_once(", expected ")
    {
        return format!("found {}; expected {}", shown(found), wanted(expected, found));
    }
    if let Some(rest) = message.strip_prefix("unknown field ") {
        return format!("unknown key {}", rest.replacen(", expected", ": expected", 1));
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        return format!("unknown value {}", rest.replacen(", expected", ": expected", 1));
    }
    if let Some(key) = message.strip_prefix("missing field ") {
        return format!("the key {key} is missing: add it");
    }
    match message {
        "duplicate key" => "this key occurs twice: leave one of them".to_owned(),
        "wanted string or table" => "expected one of the texts it may be, in quotes".to_owned(),
        _ if message.starts_with("invalid basic string") => {
            format!("a text has no end, or a wrong character: {message}")
        }
        _ if message.starts_with("string values must be quoted") => {
            "a value is missing, or a text has no quotes: write KEY = \"TEXT\"".to_owned()
        }
        _ => message.to_owned(),
    }
}

/// What stands in the file, without the name of its type.
fn shown(found: &str) -> String {
    match (found, found.split('`').nth(1)) {
        ("map", _) => "a table".to_owned(),
        ("sequence", _) => "a list".to_owned(),
        (_, Some(value)) if !found.starts_with("string") => value.to_owned(),
        _ => found.replacen("string ", "the text ", 1),
    }
}

fn wanted(expected: &str, found: &str) -> String {
    let is_number = |name: &str| {
        matches!(name.split_at_checked(1), Some(("u" | "i", bits))
            if bits == "size" || bits.parse::<u8>().is_ok())
    };
    match (expected, found) {
        ("a string", "map" | "sequence") => "a text in quotes".to_owned(),
        ("a string", _) => format!("a text in quotes, such as \"{}\"", shown(found)),
        ("a boolean", _) => "true or false, without quotes".to_owned(),
        ("a sequence", "map") => "a list: write its name in double brackets, [[NAME]]".to_owned(),
        ("a sequence", _) => "a list in brackets: [VALUE, VALUE]".to_owned(),
        ("a map", _) => "a table of keys".to_owned(),
        _ if expected.starts_with("struct ") => "a table of keys".to_owned(),
        _ if is_number(expected) => "a whole number, 0 or more, without quotes".to_owned(),
        _ => expected.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    #[allow(dead_code)]
    enum Mode {
        Off,
        Keep,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Entry {
        name: String,
        priority: Option<u32>,
        strict: Option<bool>,
        mode: Option<Mode>,
        parts: Option<Vec<String>>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Document {
        entry: Vec<Entry>,
    }

    #[test]
    fn each_error_is_one_line_with_its_place_cause_and_cure() {
        let with = |line: &str| format!("[[entry]]\nname = \"a\"\n{line}\n");
        for (text, says) in [
            (with("priority = \"80\""), "line 3, priority = \"80\": found the text \"80\"; "),
            (with("priority = -1"), "found -1; expected a whole number, 0 or more"),
            (with("priority = 99999999999999999999"), "expected a whole number, 0 or more"),
            (with("priority = 1.5"), "found 1.5; expected a whole number"),
            (with("strict = \"yes\""), "found the text \"yes\"; expected true or false"),
            (with("mode = \"on\""), "unknown value `on`: expected `off` or `keep`"),
            (with("parts = \"x\""), "found the text \"x\"; expected a list in brackets"),
            (with("parts = [3]"), "found 3; expected a text in quotes, such as \"3\""),
            (with("colour = 1"), "unknown key `colour`: expected one of `name`, `priority`"),
            (with("name = \"b\""), "this key occurs twice"),
            ("[[entry]]\n".to_owned(), "line 1, [[entry]]: the key `name` is missing: add it"),
            ("[entry]\nname = \"a\"\n".to_owned(), "write its name in double brackets"),
            ("entry = 3\n".to_owned(), "found 3; expected a list"),
            ("entry = [3]\n".to_owned(), "found 3; expected a table of keys"),
            ("[[entry\n".to_owned(), "line 1, [[entry: "),
            (with("mode = off"), "a text has no quotes"),
            (with("mode = \"off"), "a text has no end"),
        ] {
            let error = toml::from_str::<Document>(&text).unwrap_err();
            let line = in_a_line(&text, &error);
            assert!(line.contains(says), "{text}: {line}");
            for rust in ['\n'.to_string().as_str(), "u32", "i128", "struct", "variant", "sequence"]
            {
                assert!(!line.contains(rust), "{text}: {line}");
            }
        }
    }
}
