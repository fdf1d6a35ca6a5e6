// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables as HTML; on a narrow page each row becomes a card. A sentence below explains each column.
//! Pure.

use super::shown::Shown;
use super::style::Style;
use super::timeline::WORST;
use super::words::escape;
use crate::histogram::ALL_PERCENTILES;
use crate::noise::shown as printable;
use crate::report;
use crate::run::Experiment;
use crate::spaces::{Handler, Space, missed_told};
use crate::summary::Summary;
use crate::told::{above, grouped, instant, short_us, us};
use std::fmt::Write;

/// A column: its heading, and the sentence that explains it.
struct Column {
    name: String,
    sentence: String,
    /// Of its numbers, where each row is a card; empty of what has none.
    unit: &'static str,
}

fn column(name: &str, sentence: &str) -> Column {
    Column { name: name.to_owned(), sentence: sentence.to_owned(), unit: "" }
}

/// Of times in microseconds.
fn of_us(name: &str, sentence: &str) -> Column {
    Column { unit: "us", ..column(name, sentence) }
}

/// Cells are HTML. A row of one cell is a heading of the rows below it. `is_words`: the last column
/// has sentences.
fn table(columns: &[Column], rows: &[Vec<String>], is_words: bool) -> String {
    let words = if is_words { " class=\"words\"" } else { "" };
    let mut html = format!("<table{words}>\n<thead><tr>");
    for column in columns {
        let _ = write!(html, "<th scope=\"col\">{}</th>", escape(&column.name));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        if let [group] = row.as_slice() {
            let all = columns.len();
            let _ = writeln!(
                html,
                "<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"{all}\">{group}</th></tr>"
            );
            continue;
        }
        let _ = write!(html, "<tr><th scope=\"row\">{}</th>", row[0]);
        for (at, (cell, column)) in row.iter().zip(columns).enumerate().skip(1) {
            let words = if at + 1 == row.len() { words } else { "" };
            let unit = match column.unit {
                "" => String::new(),
                _ if *cell == or_none(None) => String::new(),
                unit => format!(" data-unit=\"{unit}\""),
            };
            let name = escape(&column.name);
            let _ = write!(html, "<td{words}{unit} data-name=\"{name}\">{cell}</td>");
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table>\n<p class=\"note\">");
    for column in columns {
        let _ = write!(html, "<b>{}</b>: {} ", escape(&column.name), escape(&column.sentence));
    }
    html + "</p>\n"
}

/// How a kind's line looks.
pub fn swatch(style: Style) -> String {
    let dash = if style.dash.is_empty() {
        String::new()
    } else {
        format!(" stroke-dasharray=\"{}\"", style.dash)
    };
    format!(
        "<svg class=\"swatch\" viewBox=\"0 0 30 8\" aria-hidden=\"true\"><path d=\"M0 4h30\" \
         stroke=\"{}\" stroke-width=\"{}\"{dash}/></svg>",
        style.colour, style.pixels
    )
}

fn or_none(ns: Option<f64>) -> String {
    ns.map_or_else(|| "–".to_owned(), us)
}

/// The figures of all runs of an experiment, load by load.
pub fn runs(shown: &[&Shown], limit_ns: Option<u64>) -> String {
    let overhead = shown[0].experiment() == Experiment::Overhead;
    let instant = instant(shown[0].experiment());
    let [shortest, longest] = match overhead {
        true => ["the least of all turns.", "the most of all turns."],
        false => ["the shortest of all instants.", "the longest of all instants."],
    };
    let of_all = match overhead {
        true => "how much longer a turn took than an undisturbed one: the mean of all turns.",
        false => "the mean of all instants.",
    };
    let summaries: Vec<Summary> = shown.iter().map(|one| one.run.summary()).collect();
    let is_supported = |name: &str| summaries.iter().any(|one| one.percentile(name).is_some());
    let percentiles: Vec<_> = ALL_PERCENTILES.iter().filter(|one| is_supported(one.name)).collect();
    let mut columns = vec![
        column("Run", "its number and kind, and what tells it from others. All times are in us."),
        of_us("Mean", of_all),
        of_us("Stdev", "their standard deviation."),
        of_us("Min", shortest),
    ];
    columns.extend(percentiles.iter().map(|one| {
        let one_in = grouped(one.one_in);
        of_us(one.name, &format!("at most one in {one_in} {instant}s took longer."))
    }));
    let is_open = |summary: &Summary| summary.percentiles.iter().any(|one| one.or_more);
    if let Some(last) = columns.last_mut().filter(|_| summaries.iter().any(is_open)) {
        last.sentence.push_str(" ≥: beyond the last bucket of the other tool's histogram.");
    }
    columns.push(of_us("Max", longest));
    if overhead {
        let sentence = "the most that interrupts, ticks and other tasks took of one turn; the \
                        rest is the hypervisor's or the hardware's.";
        columns.push(of_us("System", sentence));
    }
    let missed = match summaries.iter().all(|one| one.missed.is_some()) {
        true => "instants that passed while the task was still late for an earlier one.",
        false => {
            "instants that passed while the task was still late for an earlier one; not known of \
             an import, whose figures are of samples alone."
        }
    };
    columns.extend(match overhead {
        true => [
            column("n", "the turns; all figures are of all of them."),
            column("Missed", "always 0: a loop has no instants."),
            column("Lost", "turns that found the ring full; their times are not known."),
        ],
        false => [
            column(
                "n",
                "the instants, those sampled and those missed; all figures are of all of them.",
            ),
            column("Missed", missed),
            column("Lost", "samples that found the ring full; their times are not known."),
        ],
    });
    if let Some(limit_ns) = limit_ns {
        let name = format!("> {}", short_us(limit_ns));
        let sentence = "how many took longer; two numbers where a bucket reaches across.";
        columns.push(column(&name, sentence));
    }
    let mut rows = Vec::new();
    let mut load = None;
    for (one, summary) in shown.iter().zip(&summaries) {
        if load != Some(one.load()) {
            load = Some(one.load());
            rows.push(vec![escape(&one.load().to_string())]);
        }
        let mut row = vec![heading(one)];
        let [min, max] = [summary.min_ns, summary.max_ns].map(|ns| or_none(ns.map(|ns| ns as f64)));
        row.extend([or_none(summary.average_ns), or_none(summary.deviation_ns), min]);
        row.extend(percentiles.iter().map(|percentile| {
            summary.percentile(percentile.name).map_or_else(
                || or_none(None),
                |one| format!("{}{}", if one.or_more { "≥ " } else { "" }, us(one.ns as f64)),
            )
        }));
        row.push(max);
        if overhead {
            row.push(or_none(one.system_max_ns.map(|ns| ns as f64)));
        }
        let counts = [Some(summary.instants), summary.missed, Some(summary.lost)];
        row.extend(counts.map(|count| count.map_or_else(|| or_none(None), grouped)));
        row.extend(limit_ns.map(|limit_ns| above(one.run.latencies.above(limit_ns))));
        rows.push(row);
    }
    table(&columns, &rows, false)
}

fn heading(one: &Shown) -> String {
    let mut html = format!("{}{} {}", swatch(one.style()), one.number, escape(&one.name));
    if let Some(reason) = &one.run.provenance.partial {
        let _ = write!(html, " <small>partial: {}</small>", escape(&printable(reason)));
    }
    if !one.has_instants() {
        html.push_str("<br><small>no sample</small>");
    }
    html
}

/// The worst samples of runs, with their causes and the places of their numbers in the figure.
pub fn worst(shown: &[&Shown]) -> String {
    let mut rows = Vec::new();
    let mut notes = String::new();
    let (mut has_times, mut lacks_times, mut has_causes) = (false, false, false);
    for one in shown {
        let (provenance, base_ns) = (&one.run.provenance, one.run.base_ns());
        if let Some(reason) = &provenance.not_recorded {
            let reason = escape(&printable(reason));
            let _ = writeln!(
                notes,
                "<p class=\"note\">{}: causes were not recorded: {reason}.</p>",
                escape(&one.label)
            );
        }
        if provenance.lost_records > 0 {
            let _ = writeln!(
                notes,
                "<p class=\"note\">{}: {} records of the kernel were lost: causes are \
                 incomplete.</p>",
                escape(&one.label),
                grouped(provenance.lost_records)
            );
        }
        if provenance.worst.is_empty() {
            continue;
        }
        rows.push(vec![format!("{}{}", swatch(one.style()), escape(&one.label))]);
        for (number, worst) in (1..).zip(provenance.worst.iter().take(WORST)) {
            let at_ns = one.timeline.as_ref().and_then(|times| times.worst_ns.get(&worst.index));
            has_times |= at_ns.is_some();
            lacks_times |= at_ns.is_none();
            let at = at_ns.map_or_else(|| or_none(None), |ns| format!("{:.3}", *ns as f64 / 1e9));
            // Why there is none is said below, once.
            let cause = report::cause(worst, provenance);
            let mut cause = cause.map_or_else(String::new, |cause| escape(&printable(cause)));
            has_causes |= !cause.is_empty();
            // Those of the others are in run.json.
            if number == 1 && !worst.records.is_empty() {
                let records: Vec<String> =
                    worst.records.iter().map(|record| escape(&printable(record))).collect();
                let _ = write!(
                    cause,
                    "<details><summary>what the kernel recorded</summary><pre>{}</pre></details>",
                    records.join("\n")
                );
            }
            let beyond_ns = worst.value_ns.saturating_sub(base_ns);
            rows.push(vec![number.to_string(), us(beyond_ns as f64), at, cause]);
        }
    }
    if rows.is_empty() {
        return notes;
    }
    let instant = instant(shown[0].experiment());
    let took = match shown[0].experiment() {
        Experiment::Latency => "how long the sample took, in us.",
        Experiment::Overhead => "how much longer the turn took than an undisturbed one, in us.",
    };
    let mark = match has_times {
        true => "the number in the figure over time, 1 the worst.",
        false => "1 the worst.",
    };
    let mut at = format!("seconds since the run's first {instant}.");
    if lacks_times {
        at.push_str(" –: not known, or the sample was not kept.");
    }
    let mut columns =
        vec![column("Mark", mark), of_us("Took", took), Column { unit: "s", ..column("At", &at) }];
    match has_causes {
        true => columns.push(column("Cause", "what the kernel recorded on the CPU meanwhile.")),
        false => rows.iter_mut().for_each(|row| row.truncate(columns.len())),
    }
    table(&columns, &rows, has_causes) + &notes
}

/// What a separate address space costs.
pub fn spaces(spaces: &[Space]) -> String {
    let mut columns = vec![column(
        "Handler",
        "where the event is handled: a thread of the kernel, a task of user \
                space by the same tracer, or a program by clock_nanosleep. All times are in us.",
    )];
    let times = [
        ("irq", "until the interrupt's handler"),
        ("thread", "until the woken thread runs in the kernel"),
        ("user", "until it is in user space"),
        ("user − thread", "from the one to the other, sample by sample"),
    ];
    for (name, meaning) in times {
        for figure in ["p50", "p99", "max"] {
            let sentence = match figure {
                "p50" => format!("{meaning}: median,"),
                "p99" => "99 %,".to_owned(),
                _ => "worst.".to_owned(),
            };
            columns.push(of_us(&format!("{name} {figure}"), &sentence));
        }
    }
    columns.extend([
        column("n", "the samples; all times are of all of them."),
        column("Missed", "instants that passed while the thread was late for an earlier one."),
        column("Lost", "samples that found the ring full."),
    ]);
    let mut rows = Vec::new();
    let mut costs = String::new();
    for space in spaces {
        let name = format!("{}/{}", space.load, space.kind);
        rows.push(vec![escape(&name)]);
        rows.extend(space.handlers.iter().map(handler));
        for (what, cost) in [
            ("cost of the address space", &space.cost),
            ("the same from the interrupt on", &space.cost_from_interrupt),
        ] {
            let told: Vec<String> = cost.iter().map(|one| one.told()).collect();
            let told = match told.is_empty() {
                true => "not known: a run is missing, partial or too short".to_owned(),
                false => told.join("; "),
            };
            let _ = writeln!(costs, "<li>{}, {what}: {}.</li>", escape(&name), escape(&told));
        }
    }
    let table = table(&columns, &rows, false);
    let missed = missed_told(spaces).map_or_else(String::new, |told| told + " ");
    format!(
        "{table}<ul>\n{costs}</ul>\n<p class=\"note\">{missed}The cost is the latency of the user \
         thread less that of the kernel thread, of two runs a directory, over all directories; it \
         is sure only of several. It is an upper bound: the user thread's time holds the tracer's \
         own line and one system call's entry as well.</p>\n"
    )
}

fn handler(handler: &Handler) -> Vec<String> {
    let place = handler.place.word();
    let partial = if handler.partial.is_some() { " <small>partial</small>" } else { "" };
    let mut row = vec![format!("{place}{partial}")];
    for summary in [&handler.irq, &handler.thread, &handler.user, &handler.user_less_thread] {
        let percentile = |name: &str| Some(summary.as_ref()?.percentile(name)?.ns as f64);
        let max_ns = summary.as_ref().and_then(|summary| summary.max_ns);
        let figures = [percentile("p50"), percentile("p99"), max_ns.map(|ns| ns as f64)];
        row.extend(figures.map(or_none));
    }
    row.extend([handler.samples, handler.missed, handler.lost].map(grouped));
    row
}
