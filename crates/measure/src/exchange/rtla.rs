// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtla timerlat hist`: columns `IRQ-NNN Thr-NNN Usr-NNN`, rows that have a count, and lines at
//! the end. The header says the unit: microseconds, or with `--nano` nanoseconds. rtla prints
//! `%-6d` and `%9d`: a count of nine digits has no space before it. Nothing says how wide rows are
//! (`-b`): at most as wide as the divisor that all their places have in common.

use super::rows::{Rows, most_width};
use super::{Column, named, shown};
use std::collections::BTreeSet;
use std::fmt::Write;

/// As rtla prints it, one column.
pub fn to_rtla(rows: &Rows, heading: &str) -> String {
    let mut text = String::from("# RTLA timerlat histogram\n# Time unit is microseconds (us)\n");
    let _ = writeln!(text, "Index   {heading}");
    let width = rows.spread + 1;
    let mut places: BTreeSet<u64> = rows.counts.keys().copied().collect();
    // Where the rows end is where the overflow begins.
    let last = rows.end.checked_sub(1).filter(|_| rows.overflow > 0);
    places.extend(last.map(|last| last / width * width));
    // An empty row, if it takes one to say how wide they are.
    if most_width(places.iter().copied()) > width {
        places.insert(width);
    }
    for us in places {
        let _ = writeln!(text, "{us:<8}{:>7}", rows.counts.get(&us).unwrap_or(&0));
    }
    let line = |name: &str, value: Option<u64>| {
        value.map_or_else(
            || format!("{name:<8}{:>7}\n", "-"),
            |value| format!("{name:<8}{value:>7}\n"),
        )
    };
    text.push_str(&line("over:", Some(rows.overflow)));
    text.push_str(&line("count:", Some(rows.instants())));
    text.push_str(&line("min:", rows.min));
    text.push_str(&line("avg:", rows.avg));
    text.push_str(&line("max:", rows.max));
    text
}

/// As long are an index and a count without a space at least.
const JOINED: usize = 6 + 9;

/// The first word and the rest. After the name of a last line there may be no space.
fn split(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    let end = line.find(|c: char| c == ':' || c.is_whitespace()).unwrap_or(line.len());
    line.split_at(end + usize::from(line[end..].starts_with(':')))
}

/// Digits that are an index, not below `end`, and a count: two `int` of C. `None` where there are
/// two ways to part them.
fn parted(digits: &str, end: u64) -> Option<(&str, &str)> {
    let is_int = |word: &str| !word.starts_with('0') && word.parse::<i32>().is_ok();
    let mut ways = (6..=digits.len() - 9).map(|at| digits.split_at(at)).filter(|(index, count)| {
        is_int(index) && is_int(count) && index.parse::<u64>().is_ok_and(|index| index >= end)
    });
    ways.next().filter(|_| ways.next().is_none())
}

/// The columns of `rtla timerlat hist`, by their headings. `unit_ns`: what the caller says of a
/// file without the line that says it. Errors: the line that is none of it, and a second table.
pub fn from_rtla(text: &str, unit_ns: Option<u64>) -> Result<Vec<Column>, String> {
    let mut columns: Vec<(String, Rows)> = Vec::new();
    let (mut said_ns, mut end, mut counted, mut is_whole) = (None, 0, Vec::new(), false);
    let mut places = Vec::new();
    let mut why = "cut short, or with --no-summary: it has no line `max:`";
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if !line.ends_with('\n') {
            // Its last number may be cut too.
            why = "cut short: its last line has no end";
            break;
        }
        let line = line.trim_end();
        let bad = || {
            let line = shown(line);
            format!("line {}: expected output of rtla timerlat hist, found {line}", number + 1)
        };
        let (mut first, rest) = split(line);
        let is_heading = first == "Index";
        if !columns.is_empty() && (is_heading || line.starts_with("# RTLA timerlat histogram")) {
            let number = number + 1;
            return Err(format!("line {number}: a second table begins: import them one by one"));
        }
        // After it: the same once more for all columns together, or what ended the tracing.
        if is_whole || first.is_empty() {
            continue;
        }
        if let Some(unit) = line.trim().strip_prefix("# Time unit is ") {
            said_ns = match unit {
                "microseconds (us)" => Some(1000),
                "nanoseconds (ns)" => Some(1),
                _ => return Err(bad()),
            };
        }
        let mut words: Vec<&str> = rest.split_whitespace().collect();
        if is_heading {
            if words.is_empty() {
                let number = number + 1;
                return Err(format!("line {number}: `Index` has no column: rtla saw no latency"));
            }
            for heading in words {
                let name = named(heading).ok_or_else(bad)?;
                if columns.iter().any(|(other, _)| *other == name) {
                    return Err(bad());
                }
                columns.push((name, Rows::default()));
            }
            continue;
        }
        // Before the table: titles.
        if columns.is_empty() || first.starts_with('#') {
            continue;
        }
        let is_joined = first.len() >= JOINED && first.bytes().all(|byte| byte.is_ascii_digit());
        if is_joined && words.len() + 1 == columns.len() {
            let hint = ": put a space between index and count";
            let (index, count) = parted(first, end).ok_or_else(|| bad() + hint)?;
            first = index;
            words.insert(0, count);
        }
        let words = words.into_iter().map(|word| match word {
            "-" => Ok(None),
            word => word.parse::<u64>().map(Some).map_err(|_| bad()),
        });
        let values: Vec<Option<u64>> = words.collect::<Result<_, _>>()?;
        if values.len() != columns.len() {
            return Err(bad());
        }
        if first == "count:" {
            counted.clone_from(&values);
        }
        let index = first.parse::<u64>();
        if let Ok(index) = index {
            // Each row once, upwards.
            end = index.checked_add(1).filter(|_| index >= end).ok_or_else(bad)?;
            places.push(index);
        }
        for ((_, rows), value) in columns.iter_mut().zip(values) {
            let Some(value) = value else { continue };
            match (first, &index) {
                (_, Ok(_)) if value == 0 => {}
                (_, Ok(index)) => _ = rows.counts.insert(*index, value),
                ("over:", _) => rows.overflow = value,
                ("min:", _) => rows.min = Some(value),
                ("avg:", _) => rows.avg = Some(value),
                ("max:", _) => rows.max = Some(value),
                _ => {}
            }
        }
        is_whole = first == "max:";
    }
    if columns.is_empty() {
        return Err("expected output of rtla timerlat hist, found no line `Index …`".to_owned());
    }
    let unit_ns = match (said_ns, unit_ns) {
        (Some(said_ns), Some(unit_ns)) if said_ns != unit_ns => {
            return Err(
                "its line `# Time unit is …` says another unit: leave --unit out".to_owned()
            );
        }
        (Some(unit_ns), _) | (None, Some(unit_ns)) => unit_ns,
        (None, None) => {
            let why = "it does not say its unit: the line `# Time unit is …` is missing";
            return Err(format!("{why}: say --unit us, or --unit ns after rtla --nano"));
        }
    };
    for (name, rows) in &columns {
        // A row may be wider than a unit: a maximum above the last is none of an overflow.
        let last = rows.counts.keys().next_back();
        if let (Some(max), Some(last)) = (rows.max, last)
            && max < *last
        {
            return Err(format!("{name}: its last row is {last}, and `max:` says {max}"));
        }
    }
    for ((name, rows), count) in columns.iter().zip(counted) {
        if let Some(count) = count.filter(|count| *count != rows.instants()) {
            let found = rows.instants();
            return Err(format!(
                "{name}: its rows have {found} samples, and `count:` says {count}"
            ));
        }
    }
    // A single row at 0 reaches to the least, or further.
    let least = columns.iter().filter(|(_, rows)| !rows.counts.is_empty());
    let least = least.filter_map(|(_, rows)| rows.min).max().unwrap_or(0);
    let spread = most_width(places).checked_sub(1).unwrap_or(least);
    let column = |(name, rows): (String, Rows)| {
        let rows = Rows { end, spread, ..rows };
        let latencies = rows.latencies(unit_ns).map_err(|error| format!("{name}: {error}"))?;
        let partial = (!is_whole).then(|| why.to_owned());
        Ok(Column { name, latencies, partial })
    };
    columns.into_iter().map(column).collect()
}
