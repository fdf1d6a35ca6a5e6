// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtla timerlat hist`: columns `IRQ-NNN Thr-NNN Usr-NNN`, rows that have a count, and lines at
//! the end. The header says the unit: microseconds, or with `--nano` nanoseconds.

use super::rows::Rows;
use super::{Column, named, shown};
use std::fmt::Write;

/// As rtla prints it, one column.
pub fn to_rtla(rows: &Rows, heading: &str) -> String {
    let mut text = String::from("# RTLA timerlat histogram\n# Time unit is microseconds (us)\n");
    let _ = writeln!(text, "Index   {heading}");
    for (us, count) in &rows.counts {
        let _ = writeln!(text, "{us:<8}{count:>7}");
    }
    // Where the rows end is where the overflow begins.
    let last = rows.end.checked_sub(1).filter(|_| rows.overflow > 0);
    if let Some(last) = last.filter(|last| !rows.counts.contains_key(last)) {
        let _ = writeln!(text, "{last:<8}{:>7}", 0);
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

/// The columns of `rtla timerlat hist`, by their headings. Errors: the line that is none of it.
pub fn from_rtla(text: &str) -> Result<Vec<Column>, String> {
    let mut columns: Vec<(String, Rows)> = Vec::new();
    let (mut unit_ns, mut end, mut counted, mut is_whole) = (1000, 0, Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        let bad = || {
            let line = shown(line);
            format!("line {}: expected output of rtla timerlat hist, found {line}", number + 1)
        };
        if let Some(unit) = line.trim().strip_prefix("# Time unit is ") {
            unit_ns = match unit {
                "microseconds (us)" => 1000,
                "nanoseconds (ns)" => 1,
                _ => return Err(bad()),
            };
        }
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if first == "Index" {
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
        let words = words.map(|word| match word {
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
        // After it: the same once more for all columns together, or what ended the tracing.
        if first == "max:" {
            is_whole = true;
            break;
        }
    }
    if columns.is_empty() {
        return Err("expected output of rtla timerlat hist, found no line `Index …`".to_owned());
    }
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
    let column = |(name, mut rows): (String, Rows)| {
        rows.end = end;
        let why = "cut short, or with --no-summary: it has no line `max:`";
        let partial = (!is_whole).then(|| why.to_owned());
        Column { name, latencies: rows.latencies(unit_ns), partial }
    };
    Ok(columns.into_iter().map(column).collect())
}
