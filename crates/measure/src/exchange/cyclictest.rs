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

/// One column for each thread of cyclictest's output, which does not say its unit: a row is a
/// microsecond, with `-N` a nanosecond. Errors: the line that is none of it, and last lines that
/// the rows contradict.
pub fn from_cyclictest(text: &str, unit_ns: Option<u64>) -> Result<Vec<Column>, String> {
    let mut columns: Vec<Rows> = Vec::new();
    let mut minima = None;
    let (mut end, mut is_sum, mut is_whole) = (0, true, false);
    let mut totals: Vec<u64> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let bad = |why: &str| {
            let line = shown(line);
            format!("line {}: expected output of cyclictest -h, found {line}{why}", number + 1)
        };
        if let Some(trailer) = line.strip_prefix("# ") {
            let Some((name, values)) = trailer.split_once(':') else { continue };
            let words = values.split_whitespace();
            if name == "Total" {
                let all = words.map(str::parse).collect::<Result<_, _>>();
                totals = all.map_err(|_| bad(""))?;
                continue;
            }
            // A line that is cut has fewer values than threads, or no end.
            is_whole |= name == "Histogram Overflows"
                && text.ends_with('\n')
                && words.clone().count() >= minima.unwrap_or(columns.len());
            let set: fn(&mut Rows, u64) = match name {
                "Min Latencies" => |rows, value| rows.min = Some(value),
                "Avg Latencies" => |rows, value| rows.avg = Some(value),
                "Max Latencies" => |rows, value| rows.max = Some(value),
                "Histogram Overflows" => |rows, value| rows.overflow = value,
                _ => continue,
            };
            if name == "Min Latencies" {
                minima = Some(words.clone().count());
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
            return Err(bad(""));
        }
    }
    if columns.is_empty() {
        return Err("expected output of cyclictest -h, found no bucket".to_owned());
    }
    // Threads have minima each; of a file without trailers the counts say it.
    let threads = match minima {
        Some(minima) if minima + 1 == columns.len() && is_sum => minima,
        None if columns.len() > 2 && is_sum => columns.len() - 1,
        Some(minima) if minima != columns.len() => {
            let counts = columns.len();
            return Err(format!("expected {counts} minima, one a column, found {minima}"));
        }
        _ => columns.len(),
    };
    columns.truncate(threads);
    let why = "cut short: it has no line \"Histogram Overflows\"";
    let column = |(thread, mut rows): (usize, Rows)| {
        rows.end = end;
        let name = format!("thread-{thread}");
        rows.check_max(&name, is_whole)?;
        let (found, said) = (rows.within(), totals.get(thread));
        if let Some(total) = said.filter(|total| **total != found) {
            return Err(format!("{name}: its rows have {found} samples, and `Total` says {total}"));
        }
        let latencies = rows.latencies(unit_ns.unwrap_or(1000));
        Ok(Column { name, latencies, partial: (!is_whole).then(|| why.to_owned()) })
    };
    columns.into_iter().enumerate().map(column).collect()
}
