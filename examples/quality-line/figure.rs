// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figure 2 of the paper, drawn of what happened: which task ran on which CPU, around the moment
//! when the number of defect tasks first grew. Pure.

use crate::report::{Machine, Report};
use crate::scene;
use crate::trace::{Class, Span};
use asmp_rt::thread::Cpu;
use std::fmt::Write;

/// Pixels.
const LEFT: f64 = 100.0;
const WIDE: f64 = 1000.0;
const TOP: f64 = 64.0;
const ROW: f64 = 46.0;
const BOX: f64 = 34.0;
/// Of a letter, at most.
const LETTER: f64 = 7.0;
/// What is drawn.
const BEFORE_NS: u64 = 50_000_000;
const WINDOW_NS: u64 = 200_000_000;
const TICK_NS: u64 = 25_000_000;

fn colour(class: Class) -> &'static str {
    match class {
        Class::Camera => "#b2182b",
        Class::Filter => "#ef8a62",
        Class::Defect => "#fddbc7",
        Class::Linux => "#92c5de",
    }
}

fn meaning(class: Class) -> &'static str {
    match class {
        Class::Camera => "RT0: cameras (hard)",
        Class::Filter => "RT1: filters",
        Class::Defect => "RT2: defect tasks",
        Class::Linux => "Linux: statistics",
    }
}

/// Places of instants on the x axis.
struct Window {
    from_ns: u64,
}

impl Window {
    fn x(&self, at_ns: u64) -> f64 {
        let from_start_ns = at_ns.clamp(self.from_ns, self.from_ns + WINDOW_NS) - self.from_ns;
        LEFT + WIDE * from_start_ns as f64 / WINDOW_NS as f64
    }

    fn shows(&self, span: &Span) -> bool {
        span.to_ns > self.from_ns && span.from_ns < self.from_ns + WINDOW_NS
    }
}

pub fn svg(report: &Report, machine: &Machine) -> String {
    let grew = report.teams.windows(2).find(|teams| teams[1].tasks > teams[0].tasks);
    let began_ns = report.teams.first().map_or(0, |team| team.at_ns);
    let change_ns = grew.map_or(began_ns + BEFORE_NS, |teams| teams[1].at_ns);
    let window = Window { from_ns: change_ns.saturating_sub(BEFORE_NS) };

    let rows = machine.online.len() as f64;
    let bottom = TOP + rows * ROW;
    let (width, height) = (LEFT + WIDE + 30.0, bottom + 80.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>Tasks of a production line on real-time and other CPUs</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">Which task ran on which CPU</text>\n"
    );
    for (row, cpu) in machine.online.iter().enumerate() {
        let kind = if machine.real_time.contains(cpu) { "RT" } else { "NRT" };
        draw_row(&mut svg, report, &window, TOP + row as f64 * ROW, (cpu, kind));
    }
    if let Some([before, after]) = grew.and_then(|teams| teams.first_chunk::<2>()) {
        let (x, y) = (window.x(change_ns), TOP - 8.0);
        let name = |team: &crate::report::Team| {
            let (product, tasks) = (scene::product(team.run).name, team.tasks);
            format!("{product}: {tasks} defect task{}", if tasks == 1 { "" } else { "s" })
        };
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {:.1}V{bottom}\" stroke=\"black\" stroke-dasharray=\"4 3\"/>\n\
             <text x=\"{:.1}\" y=\"{y}\" text-anchor=\"end\">{}</text>\n\
             <text x=\"{:.1}\" y=\"{y}\">{}</text>",
            y - 12.0,
            x - 6.0,
            name(before),
            x + 6.0,
            name(after)
        );
    }
    draw_axis(&mut svg, &window, bottom);
    for (place, class) in Class::ALL.into_iter().enumerate() {
        let (x, y) = (LEFT + 200.0 * place as f64, bottom + 52.0);
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\" fill=\"{}\" stroke=\"#444\"/>\n\
             <text x=\"{}\" y=\"{}\">{}</text>",
            colour(class),
            x + 20.0,
            y + 12.0,
            meaning(class)
        );
    }
    svg + "</svg>\n"
}

/// One CPU, and all that ran on it.
fn draw_row(svg: &mut String, report: &Report, window: &Window, y: f64, row: (Cpu, &str)) {
    let (cpu, kind) = row;
    let (low, end) = (y + BOX, LEFT + WIDE);
    let _ = writeln!(
        svg,
        "<g id=\"cpu{cpu}\">\n<text x=\"{}\" y=\"{}\" text-anchor=\"end\">CPU {cpu} ({kind})\
         </text>\n<path d=\"M{LEFT} {low}H{end}\" stroke=\"#999\"/>",
        LEFT - 8.0,
        y + BOX / 2.0 + 4.0
    );
    // The cameras last: theirs are the smallest boxes.
    for trace in report.traces.iter().rev() {
        let here = trace.spans.iter().filter(|span| span.cpu == cpu && window.shows(span));
        for span in here.filter(|span| span.to_ns > span.from_ns) {
            let (from, to) = (window.x(span.from_ns), window.x(span.to_ns));
            let (name, class) = (&trace.name, trace.class);
            let _ = writeln!(
                svg,
                "<rect class=\"{}\" x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{BOX}\" \
                 fill=\"{}\" stroke=\"#444\" stroke-width=\"0.4\"><title>{name}</title></rect>",
                class.name(),
                (to - from).max(1.0),
                colour(class)
            );
            if let Some(label) = label(name, to - from) {
                let fill = if class == Class::Camera { "white" } else { "black" };
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\" \
                     fill=\"{fill}\">{label}</text>",
                    f64::midpoint(from, to),
                    y + BOX / 2.0 + 4.0
                );
            }
        }
    }
    svg.push_str("</g>\n");
}

/// The name, or its first letter and number, or nothing: what has room in so many pixels.
fn label(name: &str, pixels: f64) -> Option<String> {
    let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let short = format!("{}{digits}", &name[..1]);
    let fits = |text: &String| text.len() as f64 * LETTER + 4.0 <= pixels;
    [name.to_owned(), short].into_iter().find(fits)
}

/// Time in ms from the left edge on.
fn draw_axis(svg: &mut String, window: &Window, y: f64) {
    for at_ns in (0..=WINDOW_NS).step_by(TICK_NS as usize) {
        let x = window.x(window.from_ns + at_ns);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {:.1}v6\" stroke=\"#444\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} ms</text>",
            y,
            y + 22.0,
            at_ns / 1_000_000
        );
    }
}
