// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report as one page: verdict, what was measured, tables and figures. It needs no network and
//! no script, and reads on wide and narrow pages, light, dark and printed.
//!
//! A reader meets the worst first. Every time is in microseconds.

mod axis;
mod curve;
mod figure;
mod figures;
mod marks;
mod pen;
mod shown;
mod style;
mod table;
mod timeline;
mod top;
mod words;

use crate::report;
use crate::run::{Experiment, Run, RunError};
use crate::spaces;
use figure::Figure;
use shown::Shown;
use std::collections::BTreeSet;
use std::fmt::Write;
use words::escape;

/// The page of all runs. Errors: samples that were read before can no longer be read.
pub fn html(runs: &[Run], limit_ns: Option<u64>) -> Result<String, RunError> {
    Ok(document(runs, &shown::shown(runs)?, limit_ns))
}

fn document(runs: &[Run], shown: &[Shown], limit_ns: Option<u64>) -> String {
    let mut page = Page::default();
    page.text.push_str(HEAD);
    let _ = write!(page.text, "<style>\n{}</style></head><body><main>\n", style::SHEET);
    page.text.push_str("<h1>asmp measure</h1>\n<ul class=\"verdict\">\n");
    for verdict in top::verdicts(&report::rows(runs, limit_ns)) {
        let mut said = verdict.iter().map(|sentence| escape(sentence));
        let best = said.next().unwrap_or_default();
        let _ =
            writeln!(page.text, "<li><b>{best}</b><br>{}</li>", Vec::from_iter(said).join("<br>"));
    }
    page.text.push_str("</ul>\n");
    page.text.push_str(&top::facts(runs));
    for experiment in [Experiment::Latency, Experiment::Overhead] {
        let of: Vec<&Shown> = shown.iter().filter(|one| one.experiment() == experiment).collect();
        if !of.is_empty() {
            page.experiment(&of, limit_ns);
        }
    }
    page.spaces(runs, limit_ns);
    page.text.push_str(
        "<h2>Provenance</h2>\n<p class=\"note\">Of each run its run.json, without the worst \
         samples.</p>\n",
    );
    for run in runs {
        let _ = writeln!(
            page.text,
            "<details><summary>{} ({})</summary><pre>{}</pre></details>",
            escape(&run.name()),
            escape(&run.dir.display().to_string()),
            escape(&provenance(run))
        );
    }
    page.text.push_str("</main></body></html>\n");
    page.text
}

/// The page as it grows.
#[derive(Default)]
struct Page {
    text: String,
    figures: usize,
}

impl Page {
    fn figure(&mut self, figure: &Figure) {
        self.figures += 1;
        self.text.push_str(&figure.html(&format!("f{}", self.figures)));
    }

    fn experiment(&mut self, shown: &[&Shown], limit_ns: Option<u64>) {
        let what = match shown[0].experiment() {
            Experiment::Latency => "Latency",
            Experiment::Overhead => "Overhead",
        };
        let _ = writeln!(self.text, "<h2>{what}</h2>");
        self.text.push_str(&table::runs(shown, limit_ns));
        let drawn: Vec<&Shown> = shown.iter().copied().filter(|one| one.has_instants()).collect();
        if drawn.is_empty() {
            return;
        }
        self.figure(&figures::glance(&drawn, limit_ns));
        let loads: BTreeSet<_> = drawn.iter().map(|one| one.load()).collect();
        for load in loads {
            let of: Vec<&Shown> = drawn.iter().copied().filter(|one| one.load() == load).collect();
            let _ = writeln!(self.text, "<h2>{what}, {}</h2>", escape(&load.to_string()));
            self.figure(&figures::percentiles(&of, limit_ns));
            figures::histograms(&of, limit_ns).iter().for_each(|figure| self.figure(figure));
            for figure in [figures::over_time(&of, limit_ns), figures::largest(&of, limit_ns)] {
                figure.iter().for_each(|figure| self.figure(figure));
            }
            if let Some(missing) = figures::without_times(&of) {
                let _ = writeln!(self.text, "<p class=\"note\">{}</p>", escape(&missing));
            }
            for one in &of {
                let unread = one.timeline.as_ref().and_then(|times| times.unread.as_ref());
                if let Some(why) = unread {
                    let words = format!(
                        "{}: the samples cannot be read, so its seconds are shown over time: {}.",
                        one.label,
                        crate::noise::shown(why)
                    );
                    let _ = writeln!(self.text, "<p class=\"note\">{}</p>", escape(&words));
                }
            }
            let worst = table::worst(&of);
            if !worst.is_empty() {
                let _ = writeln!(self.text, "<h3>The worst samples and their causes</h3>\n{worst}");
            }
        }
    }

    fn spaces(&mut self, runs: &[Run], limit_ns: Option<u64>) {
        let spaces = spaces::spaces(runs);
        if spaces.is_empty() {
            return;
        }
        self.text.push_str("<h2>Address spaces</h2>\n");
        self.text.push_str(&table::spaces(&spaces));
        for drawing in spaces::figures(runs) {
            self.figure(&figures::space(&drawing, limit_ns));
        }
    }
}

/// `run.json` without the worst samples, of which the tables have what is shown.
fn provenance(run: &Run) -> String {
    let mut of = run.provenance.clone();
    of.worst.clear();
    let text = serde_json::to_string_pretty(&of).unwrap_or_default();
    // It is the last key.
    text.replace(",\n  \"worst\": []\n}", "\n}")
}

const HEAD: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>asmp measure</title>
"#;

#[cfg(test)]
mod tests;
