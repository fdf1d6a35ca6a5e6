// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The small part of Markdown that docs/man is written in, as roff for manual pages and as plain
//! text.
//!
//! Headings (`#`, `##`), paragraphs, lists (`- term: text`, continued by two spaces), literal lines
//! (indented by four spaces), and within a line `code` and **bold**. Nothing else.

use std::fmt::Write as _;

/// A line of the source, by its form.
enum Line<'a> {
    Section(&'a str),
    Subsection(&'a str),
    Item { term: &'a str, text: &'a str },
    Literal(&'a str),
    Blank,
    Text(&'a str),
}

/// The form of a line; `continues`: the line before is part of a list item.
fn form(line: &str, continues: bool) -> Line<'_> {
    if let Some(heading) = line.strip_prefix("## ") {
        return Line::Subsection(heading);
    }
    if let Some(heading) = line.strip_prefix("# ") {
        return Line::Section(heading);
    }
    if let Some(item) = line.strip_prefix("- ") {
        let (term, text) = item.split_once(": ").unwrap_or((item, ""));
        return Line::Item { term, text };
    }
    match (line.strip_prefix("    "), line.trim()) {
        (_, "") => Line::Blank,
        (Some(literal), _) if !continues => Line::Literal(literal),
        (_, text) => Line::Text(text),
    }
}

/// Goes through the lines with their form.
fn lines(source: &str, mut take: impl FnMut(Line)) {
    let mut continues = false;
    for line in source.lines() {
        let line = form(line, continues);
        continues = match &line {
            Line::Item { .. } => true,
            Line::Text(_) => continues,
            _ => false,
        };
        take(line);
    }
}

/// The body of a manual page, without its `.TH`.
pub fn to_roff(source: &str) -> String {
    let mut roff = String::new();
    let (mut literal, mut blank) = (false, false);
    lines(source, |line| {
        if literal && !matches!(line, Line::Literal(_) | Line::Blank) {
            roff.push_str(".EE\n.RE\n");
            literal = false;
        }
        match line {
            Line::Section(heading) => _ = writeln!(roff, ".SH {}", heading.to_uppercase()),
            Line::Subsection(heading) => _ = writeln!(roff, ".SS {}", inline(heading)),
            Line::Item { term, text } => {
                let _ = writeln!(roff, ".TP\n\\fB{}\\fR\n{}", inline(term), guarded(&inline(text)));
            }
            Line::Literal(text) => {
                match (literal, blank) {
                    (false, _) => roff.push_str(".PP\n.RS 4\n.EX\n"),
                    (true, true) => roff.push('\n'),
                    (true, false) => {}
                }
                literal = true;
                let _ = writeln!(roff, "{}", guarded(&escaped(text)));
            }
            Line::Blank => {}
            Line::Text(text) => {
                let after_heading = roff.lines().last().is_none_or(|last| last.starts_with(".S"));
                if blank && !after_heading {
                    roff.push_str(".PP\n");
                }
                let _ = writeln!(roff, "{}", guarded(&inline(text)));
            }
        }
        blank = matches!(line, Line::Blank);
    });
    if literal {
        roff.push_str(".EE\n.RE\n");
    }
    roff
}

/// For a terminal: list items indented, lines filled. Code keeps its backquotes, which say where it
/// begins and ends.
pub fn to_text(source: &str) -> String {
    let mut text = Filled::default();
    lines(source, |line| {
        let plain = |marked: &str| marked.replace("**", "");
        match line {
            Line::Section(heading) | Line::Subsection(heading) => {
                text.line(&plain(heading));
            }
            Line::Item { term, text: says } if term.len() <= 3 => {
                text.begin(&format!("  {term:<3}"), "      ");
                text.words(&plain(says));
            }
            Line::Item { term, text: says } => {
                text.line(&format!("  {}", plain(term)));
                text.begin("     ", "      ");
                text.words(&plain(says));
            }
            Line::Literal(literal) => text.line(&format!("      {literal}")),
            Line::Blank => text.line(""),
            Line::Text(more) => {
                if text.open.is_none() {
                    text.begin(" ", "  ");
                }
                text.words(&plain(more));
            }
        }
    });
    text.end();
    text.done
}

/// Lines for a terminal, of which the last may get more words.
#[derive(Default)]
struct Filled {
    done: String,
    /// The line, and how the next one of the paragraph begins.
    open: Option<(String, &'static str)>,
}

impl Filled {
    const COLUMNS: usize = 79;

    fn end(&mut self) {
        if let Some((line, _)) = self.open.take() {
            self.line(&line);
        }
    }

    /// A line that stays as it is.
    fn line(&mut self, line: &str) {
        self.end();
        self.done.push_str(line);
        self.done.push('\n');
    }

    /// A paragraph: how its first line begins, and how the others do.
    fn begin(&mut self, first: &str, others: &'static str) {
        self.end();
        self.open = Some((first.to_owned(), others));
    }

    fn words(&mut self, text: &str) {
        let Some((mut line, others)) = self.open.take() else { return };
        for word in text.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > Self::COLUMNS {
                self.line(&line);
                line = format!("{others}{word}");
            } else {
                line.push(' ');
                line.push_str(word);
            }
        }
        self.open = Some((line, others));
    }
}

/// Marks within a line: **bold**, and `code` bold too, as manual pages have it.
fn inline(text: &str) -> String {
    let mut roff = String::new();
    for (at, part) in text.replace("**", "`").split('`').enumerate() {
        let part = escaped(part);
        match at % 2 {
            0 => roff.push_str(&part),
            _ => _ = write!(roff, "\\fB{part}\\fR"),
        }
    }
    roff
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('^', "\\(ha")
        .replace('~', "\\(ti")
        .replace('\'', "\\(aq")
}

/// A dot at the start of a line would be a request.
fn guarded(line: &str) -> String {
    if line.starts_with('.') { format!("\\&{line}") } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "# NAME\na-b - says `x`\n\n- k = v: one\n  two\n\
                          - long: three\n\n    .lit 'x'\n\n    more\n\nend\n";

    #[test]
    fn roff_has_sections_items_and_literal_lines() {
        assert_eq!(
            to_roff(SOURCE),
            ".SH NAME\na\\-b \\- says \\fBx\\fR\n.TP\n\\fBk = v\\fR\none\ntwo\n.TP\n\\fBlong\\fR\n\
             three\n\
             .PP\n.RS 4\n.EX\n\\&.lit \\(aqx\\(aq\n\nmore\n.EE\n.RE\n.PP\nend\n"
        );
    }

    #[test]
    fn plain_text_is_filled_and_code_keeps_its_marks() {
        assert_eq!(
            to_text(SOURCE),
            "NAME\n  a-b - says `x`\n\n  k = v\n      one two\n  long\n      three\n\
             \n      .lit 'x'\n\n      more\n\n  end\n"
        );
        let long = to_text(&format!("- 7: {}\n", "word ".repeat(40)));
        assert!(long.lines().all(|line| line.len() <= 79), "{long}");
        assert_eq!(long.split_whitespace().count(), 41);
        assert!(
            long.starts_with("  7   word") && long.lines().nth(1).unwrap().starts_with("      w")
        );
    }
}
