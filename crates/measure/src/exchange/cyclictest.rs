// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cyclictest's histogram: a bucket a line, one column a thread, trailers with `#`. With `-H`
//! (`--histofall`) there is one more column, the sum of the others; it has no trailers of minima
//! and averages, and is no thread.

use super::rows::Rows;
use super::{Column, shown};
use std::fmt::Write;

/// As `cyclictest -h` prints it, one thread.
pub fn to_cyclictest(rows: &Rows) -> String {
    let mut text = String::from("# Histogram\n");
    for us in 0..rows.end {
        let _ = writeln!(text, "{us:06} {:06}", rows.counts.get(&us).copied().unwrap_or(0));
    }
    let _ = writeln!(text, "# Total: {:09}", rows.within());
    for (name, value) in [("Min", rows.min), ("Avg", rows.avg), ("Max", rows.max)] {
        // What an import does not say is left out.
        if let Some(value) = value {
            let _ = writeln!(text, "# {name} Latencies: {value:05}");
        }
    }
    let _ = writeln!(text, "# Histogram Overflows: {:05}", rows.overflow);
    text
}

const OVERFLOWS: &str = "Histogram Overflows";

/// Without what moves the cursor: cyclictest without `-q` goes back to its first line so.
fn plain(mut line: &str) -> &str {
    while let Some(sequence) = line.strip_prefix("\u{1b}[") {
        let mut end = sequence.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').chars();
        end.next();
        line = end.as_str();
    }
    line
}

/// A file may end with this line: no digit is missing where five begin with a 0, as of `%05`.
fn ends_with_overflows(line: &str) -> bool {
    let last = line.split_whitespace().next_back().unwrap_or_default();
    let is_line = line.strip_prefix("# ").is_some_and(|trailer| trailer.starts_with(OVERFLOWS));
    is_line && last.len() == 5 && last.starts_with('0')
}

/// Errors: the shortest or the average that the tool says is none of these rows. An export of asmp
/// may have its rows late by a bucket, 1/1024 of the value. The average is of the overflow too,
/// which is known of a whole file.
fn check_min_and_average(rows: &Rows, column: &str, is_whole: bool) -> Result<(), String> {
    let is_near = |said: u64, row: u128| row <= u128::from(said) + u128::from(said / 1024) + 1;
    if let (Some(min), Some(first)) = (rows.min, rows.counts.keys().next())
        && (min > *first || !is_near(min, u128::from(*first)))
    {
        return Err(format!("{column}: its first row is {first}, and its minimum {min}"));
    }
    let product = |value: u64, count: u64| u128::from(value) * u128::from(count);
    let sum = |sum: u128, (us, count): (&u64, &u64)| sum.saturating_add(product(*us, *count));
    let within = rows.counts.iter().fold(0, sum);
    let at_least = within.saturating_add(product(rows.end, rows.overflow));
    let at_most = within.saturating_add(product(rows.max.unwrap_or(u64::MAX), rows.overflow));
    let count: u128 = rows.counts.values().copied().map(u128::from).sum();
    let count = count + u128::from(rows.overflow);
    let (Some(avg), Some(least), Some(most)) =
        (rows.avg.filter(|_| is_whole), at_least.checked_div(count), at_most.checked_div(count))
    else {
        return Ok(());
    };
    let (bound, value) = match (u128::from(avg) > most, is_near(avg, least)) {
        (true, _) => ("at most", most),
        (_, false) => ("at least", least),
        (false, true) => return Ok(()),
    };
    Err(format!("{column}: its rows have an average of {bound} {value}, and `Avg` says {avg}"))
}

/// One column for each thread of cyclictest's output, which does not say its unit: a row is a
/// microsecond, with `-N` a nanosecond. Errors: the line that is none of it, a second histogram,
/// and last lines that the rows contradict.
pub fn from_cyclictest(text: &str, unit_ns: Option<u64>) -> Result<Vec<Column>, String> {
    let mut columns: Vec<Rows> = Vec::new();
    let mut minima = None;
    let (mut end, mut is_sum, mut has_title) = (0, true, false);
    let mut cut = Some("it has no line \"Histogram Overflows\"");
    let mut totals: Vec<u64> = Vec::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let has_end = line.ends_with('\n');
        let line = plain(line.trim_end());
        if !has_end && !ends_with_overflows(line) {
            // Its last number may be cut too.
            cut = cut.map(|_| "its last line has no end");
            continue;
        }
        let bad = |why: &str| {
            let line = shown(line);
            format!("line {}: expected output of cyclictest -h, found {line}{why}", number + 1)
        };
        if let Some(trailer) = line.strip_prefix("# ") {
            if trailer == "Histogram" && std::mem::replace(&mut has_title, true) {
                let number = number + 1;
                return Err(format!("line {number}: a second histogram: import them one by one"));
            }
            let Some((name, values)) = trailer.split_once(':') else { continue };
            let words = values.split_whitespace();
            if name == "Total" {
                let all = words.map(str::parse).collect::<Result<_, _>>();
                totals = all.map_err(|_| bad(""))?;
                continue;
            }
            let set: fn(&mut Rows, u64) = match name {
                "Min Latencies" => |rows, value| rows.min = Some(value),
                "Avg Latencies" => |rows, value| rows.avg = Some(value),
                "Max Latencies" => |rows, value| rows.max = Some(value),
                OVERFLOWS => |rows, value| rows.overflow = value,
                _ => continue,
            };
            if columns.is_empty() {
                // rt-tests 2 leaves empty rows out: here all lie beyond the last.
                columns.resize(words.clone().count(), Rows::default());
            }
            if name == "Min Latencies" {
                minima = Some(words.clone().count());
            }
            if name == OVERFLOWS && cut.is_some() {
                let has_all = words.clone().count() >= minima.unwrap_or(columns.len());
                cut = (!has_all).then_some("its line \"Histogram Overflows\" lacks a thread");
            }
            for (rows, word) in columns.iter_mut().zip(words) {
                set(rows, word.parse().map_err(|_| bad(""))?);
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let words = line.split_whitespace().map(str::parse::<u64>);
            let words: Vec<u64> = words.collect::<Result<_, _>>().map_err(|_| bad(""))?;
            let Some((us, counts)) = words.split_first() else { continue };
            if columns.is_empty() {
                columns.resize(counts.len(), Rows::default());
            }
            if counts.is_empty() || counts.len() != columns.len() {
                return Err(bad(&format!(": {} columns before it", columns.len())));
            }
            if *us < end {
                return Err(bad(": a microsecond that has had its line"));
            }
            end = us.checked_add(1).ok_or_else(|| bad(""))?;
            let (last, others) = counts.split_last().unwrap_or((&0, &[]));
            is_sum &= others.iter().try_fold(0u64, |sum, one| sum.checked_add(*one)) == Some(*last);
            for (rows, count) in columns.iter_mut().zip(counts) {
                if *count > 0 {
                    rows.counts.insert(*us, *count);
                }
            }
        } else if !line.trim().is_empty() && !line.starts_with(['#', '/', 'T', 'p']) {
            return Err(bad(match line.chars().next() {
                Some('{') => ": JSON is not read",
                Some('W' | 'F') => ": leave what it wrote to standard error out",
                _ => "",
            }));
        }
    }
    if end == 0 && columns.iter().all(|rows| rows.overflow == 0) {
        let found = "found no bucket and no overflow";
        return Err(format!("expected output of cyclictest -h, {found}"));
    }
    // Threads have minima each; of a file without trailers the counts say it. One thread has a sum
    // too, which is the same again; two threads that are alike are rarer than a file that was cut.
    let (is_whole, counts) = (cut.is_none(), columns.len());
    let has_sum = is_sum && end > 0 && (counts > 2 || (counts == 2 && !is_whole));
    let threads = match minima {
        Some(minima) if minima + 1 == columns.len() && is_sum => minima,
        None if has_sum => columns.len() - 1,
        Some(minima) if minima != columns.len() => {
            return Err(format!("expected {counts} minima, one a column, found {minima}"));
        }
        _ => columns.len(),
    };
    columns.truncate(threads);
    let no_run = if threads < counts { "; its last column, the sum of all, is no run" } else { "" };
    let partial = cut.map(|why| format!("cut short: {why}{no_run}"));
    let column = |(thread, mut rows): (usize, Rows)| {
        rows.end = end;
        let name = format!("thread-{thread}");
        rows.check_max(&name, is_whole)?;
        check_min_and_average(&rows, &name, is_whole)?;
        // Without the line that counts them: one at least.
        let last = rows.counts.keys().next_back().copied();
        if !is_whole && rows.max > last && last.is_some() {
            rows.overflow = rows.overflow.max(1);
        }
        let (found, said) = (rows.within(), totals.get(thread));
        if let Some(total) = said.filter(|total| **total != found) {
            return Err(format!("{name}: its rows have {found} samples, and `Total` says {total}"));
        }
        let latencies = rows.latencies(unit_ns.unwrap_or(1000));
        let latencies = latencies.map_err(|error| format!("{name}: {error}"))?;
        Ok(Column { name, latencies, partial: partial.clone() })
    };
    columns.into_iter().enumerate().map(column).collect()
}
