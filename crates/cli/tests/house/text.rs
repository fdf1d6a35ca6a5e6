// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines of a source: how wide they are, what in them people read, and which belong to tests.

/// Lines of more than `most` columns, counted from 1. Free are rows of a table, what a link points
/// to, and fenced output in Markdown. Free in Rust are rows of a table in documentation, raw
/// strings that go over lines, and lines whose excess is in a raw string of markup.
pub fn wide_lines(path: &str, text: &str, most: usize) -> Vec<(usize, usize)> {
    let is_markdown = path.ends_with(".md");
    let mut is_free = false;
    let mut wide = Vec::new();
    for (at, line) in (1..).zip(text.lines()) {
        let was_free = is_free;
        if is_markdown && line.trim_start().starts_with("```") {
            is_free = !is_free;
        } else if path.ends_with(".rs") {
            is_free = in_raw_string(line, is_free);
        }
        let is_row = match is_markdown {
            true => line.starts_with('|'),
            false => line.trim_start().starts_with("//! | ") || is_markup_beyond(line, most),
        };
        let columns = if is_markdown { without_targets(line) } else { line.chars().count() };
        if columns > most && !is_row && !was_free && !is_free {
            wide.push((at, columns));
        }
    }
    wide
}

/// Whether what stands beyond column `most` belongs to one raw string of SVG, HTML or JSON, or ends
/// the statement behind it.
fn is_markup_beyond(line: &str, most: usize) -> bool {
    let Some((before, rest)) = line.split_once("r#") else { return false };
    let Some((hashes, rest)) = rest.split_once('"').filter(|_| before.len() < most) else {
        return false;
    };
    let Some((markup, after)) = rest.split_once(&format!("\"#{hashes}")) else { return false };
    let is_markup =
        ["<", "{\""].iter().any(|start| markup.starts_with(start)) || markup.starts_with("{{\"");
    is_markup && after.chars().all(|one| ",;)".contains(one))
}

/// Whether a raw string is open behind this line.
fn in_raw_string(line: &str, was_open: bool) -> bool {
    match was_open {
        true => !line.contains("\"#"),
        false => line.split_once("r#\"").is_some_and(|(_, rest)| !rest.contains("\"#")),
    }
}

/// Columns of a line without the targets of its links; a line that is one address has none.
fn without_targets(line: &str) -> usize {
    if line.trim().starts_with("http") && !line.trim().contains(' ') {
        return 0;
    }
    let mut columns = 0;
    let mut rest = line;
    while let Some((before, target)) = rest.split_once("](") {
        columns += before.chars().count() + 2;
        rest = target.split_once(')').map_or("", |(_, after)| after);
    }
    columns + rest.chars().count()
}

/// What is read in each line, counted from 1: all of a document or a header; in Rust documentation,
/// comments and strings.
pub fn words(path: &str, text: &str) -> Vec<(usize, String)> {
    let of_line = |line: &str| -> String {
        if !path.ends_with(".rs") {
            return line.to_owned();
        }
        let trimmed = line.trim_start();
        match trimmed.starts_with("///") || trimmed.starts_with("//!") {
            true => trimmed.to_owned(),
            // Between quotes, and behind the code.
            false => {
                let quoted = line.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ");
                let comment = line.rsplit_once("// ").map_or("", |(_, comment)| comment);
                format!("{quoted} {comment}").trim().to_owned()
            }
        }
    };
    (1..).zip(text.lines().map(of_line)).filter(|(_, said)| !said.is_empty()).collect()
}

/// Whether `word` stands in `text`, and is not a part of a longer one.
pub fn has_word(text: &str, word: &str) -> bool {
    has_name(&text.to_lowercase(), word)
}

/// The same as it is spelled.
pub fn has_name(text: &str, word: &str) -> bool {
    let is_letter = |one: Option<char>| one.is_some_and(|one| one.is_alphanumeric() || one == '_');
    text.match_indices(word).any(|(at, _)| {
        !is_letter(text[..at].chars().next_back())
            && !is_letter(text[at + word.len()..].chars().next())
    })
}

/// The lines of a Rust source, counted from 1, and whether each belongs to tests: in a file of
/// tests all of them, else those behind `mod tests {`.
pub fn lines<'a>(path: &str, text: &'a str) -> impl Iterator<Item = (usize, &'a str, bool)> {
    let mut is_test = path.contains("/tests/") || path.ends_with("tests.rs");
    (1..).zip(text.lines()).map(move |(at, line)| {
        is_test |= line.ends_with("mod tests {") && !line.starts_with(' ');
        (at, line, is_test)
    })
}

/// Times in tests that are no limits: a unit, a wait that must not succeed, the least length of a
/// fault.
const NO_BOUNDS: [&str; 3] = ["MS", "NOT_LONG", "FAULT"];

/// The seconds after which a test gives up, if this line sets such a limit. Every constant that is
/// a time sets one, but for [`NO_BOUNDS`]. One that is not written in whole seconds counts as 0 s.
pub fn bound_s(line: &str) -> Option<u64> {
    let product = |text: &str| text.split('*').map(|one| one.trim().parse::<u64>().ok()).product();
    let (before, after) = line.split_once("Duration::from_secs(").unwrap_or((line, ""));
    let seconds = after.split_once(')').and_then(|(seconds, _)| product(seconds));
    match duration_constant(line) {
        Some(name) => (!NO_BOUNDS.contains(&name)).then(|| seconds.unwrap_or(0)),
        None => seconds
            .filter(|_| before.trim_end_matches("std::time::").ends_with("Instant::now() + ")),
    }
}

/// The name of the constant that begins here, if it is a `Duration` or an `Option` of one.
fn duration_constant(line: &str) -> Option<&str> {
    let (visible, rest) = line.trim_start().split_once("const ")?;
    let (name, rest) = rest.split_once(": ")?;
    let (kind, _) = rest.split_once(" =")?;
    let kind = kind.trim_start_matches("Option<").trim_start_matches("std::time::");
    let is_one = kind.trim_end_matches('>') == "Duration";
    (is_one && (visible.is_empty() || visible.starts_with("pub"))).then_some(name)
}

#[test]
fn a_bound_of_a_test_is_found_and_a_sleep_or_the_programs_own_is_none() {
    let bound = |before: &str| bound_s(&format!("{before}Duration::from_secs(30);"));
    assert_eq!(bound("let end = std::time::Instant::now() + std::time::"), Some(30));
    assert_eq!(bound("const SOON: Option<Duration> = Some("), Some(30));
    assert_eq!(bound("    const MOST: Duration = "), Some(30));
    assert_eq!(bound("pub(super) const OF_ANY_NAME: std::time::Duration = std::time::"), Some(30));
    assert_eq!(bound("const NOT_LONG: Option<Duration> = Some("), None);
    assert_eq!(bound("std::thread::sleep("), None);
    assert_eq!(bound_s("const MOST: Duration = Duration::from_secs(15 * 60);"), Some(900));
    assert_eq!(bound_s("const MOST: Duration = Duration::from_millis(200_000);"), Some(0));
    assert_eq!(bound_s("const MOST: u64 = 30;"), None);
    let text = "fn a() {}\nmod tests {\n}\n";
    let tests = |path| lines(path, text).filter(|line| line.2).count();
    assert_eq!(tests("crates/a/src/b.rs"), 2);
    assert_eq!((tests("crates/a/src/b_tests.rs"), tests("crates/a/tests/b.rs")), (3, 3));
}

#[test]
fn a_wide_line_is_found_and_a_row_a_target_and_output_are_not() {
    let wide = "x".repeat(101);
    let lines = |path, text: &str| {
        wide_lines(path, text, 100).into_iter().map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert_eq!(lines("a.rs", &format!("fn a() {{}}\n// {wide}\n")), [2]);
    assert_eq!(lines("a.rs", &format!("let a = r#\"\n{wide}\n\"#;\n// {wide}")), [4]);
    assert_eq!(
        lines("a.md", &format!("{wide}\n| {wide} |\n[a]({wide})\n```\n{wide}\n```\n{wide}")),
        [1, 7]
    );
    assert_eq!(lines("a.rs", &format!("//! | {wide} |\n/// {wide}\n")), [2]);
    let template =
        format!("r##\"<rect fill=\"#c00\" {wide}/>\"##,\n\"<rect {wide}/>\"\nr#\"{wide}\"#\n");
    assert_eq!(lines("a.rs", &template), [2, 3]);
    assert_eq!(lines("a.rs", &format!("r#\"<a/>\"#, {wide}\n")), [1]);
    assert_eq!(wide_lines("a.rs", &format!("// {}", "é".repeat(97)), 100), []);
}

#[test]
fn a_private_word_is_found_in_documentation_comments_and_strings_and_not_in_code() {
    let rust = "/// Whoever reads\nlet nobody = 1; // shall\nprintln!(\"nobody, {nobody}\");\n";
    let read = words("a.rs", rust);
    let found = |word: &str| {
        read.iter().filter(|(_, said)| has_word(said, word)).map(|(at, _)| *at).collect::<Vec<_>>()
    };
    assert_eq!((found("whoever"), found("nobody")), (vec![1], vec![3]));
    assert_eq!(found("shall"), [2]);
    assert!(!has_word("shallow", "shall") && has_word("it shall.", "shall"));
}
