// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run as a picture, like figure 7 of Yartek: a row a task, a thin row of what is left for
//! background work, time to the right. A release is an arrow up, a deadline a red arrow down. SVG
//! text; its size is that of the record.

use super::model::Owner;
use super::record::Record;
use super::run::Run;
use crate::time::TimeBase;
use std::fmt::Write;

const LEFT: f64 = 150.0;
const WIDTH: f64 = 1000.0;
const ROW: f64 = 26.0;
const BAR: f64 = 16.0;
const TOP: f64 = 34.0;
/// Colours that people with the usual kinds of colour blindness tell apart (Okabe, Ito).
const COLOURS: [&str; 7] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A round step that gives about ten marks.
fn step_ns(length_ns: u64) -> u64 {
    let mut power: u64 = 1;
    loop {
        for factor in [1, 2, 5] {
            let step = power.saturating_mul(factor);
            if length_ns / step.max(1) <= 12 {
                return step.max(1);
            }
        }
        power = power.saturating_mul(10);
    }
}

/// One of the schedules of a picture.
#[derive(Clone, Copy)]
pub struct Schedule<'a> {
    pub title: &'a str,
    pub run: &'a Run,
    pub record: &'a Record,
}

impl Schedule<'_> {
    fn rows(&self) -> usize {
        self.run.names.len() + self.run.cpus.len()
    }

    fn height(&self) -> f64 {
        TOP + ROW * self.rows() as f64 + 40.0
    }
}

/// From 0 to `until_ticks`; a note says what the record does not have.
pub fn gantt_svg(
    run: &Run,
    record: &Record,
    until_ticks: u64,
    title: &str,
    time: TimeBase,
) -> String {
    gantts_svg(&[Schedule { title, run, record }], until_ticks, time)
}

/// Schedules one below the other, on one scale of time.
pub fn gantts_svg(schedules: &[Schedule], until_ticks: u64, time: TimeBase) -> String {
    let height: f64 = schedules.iter().map(Schedule::height).sum();
    let width = LEFT + WIDTH + 30.0;
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">"#
    );
    let _ = writeln!(out, r#"<rect width="100%" height="100%" fill="white"/>"#);
    let mut below = 0.0;
    for schedule in schedules {
        let _ = writeln!(out, r#"<g transform="translate(0 {below})">"#);
        draw(&mut out, schedule, until_ticks.max(1), time);
        out.push_str("</g>\n");
        below += schedule.height();
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, schedule: &Schedule, until_ticks: u64, time: TimeBase) {
    let Schedule { title, run, record } = *schedule;
    let x = |ticks: u64| LEFT + WIDTH * (ticks.min(until_ticks) as f64 / until_ticks as f64);
    let cut = if record.is_cut { " (the record is full before the end)" } else { "" };
    let _ = writeln!(out, r#"<text x="8" y="18" font-size="13">{}{cut}</text>"#, escape(title));
    let bottom = TOP + ROW * schedule.rows() as f64;
    let step = step_ns(until_ticks / time.ticks_per_ns()).saturating_mul(time.ticks_per_ns());
    let mut mark = 0;
    while mark <= until_ticks {
        let at = x(mark);
        let _ = writeln!(out, r##"<path d="M{at:.2} {TOP}V{bottom}" stroke="#ddd"/>"##);
        let _ = writeln!(
            out,
            r#"<text x="{at:.2}" y="{:.1}" text-anchor="middle">{}</text>"#,
            bottom + 15.0,
            time.show(mark)
        );
        let Some(next) = mark.checked_add(step) else { break };
        mark = next;
    }
    let y_of = |row: usize| TOP + ROW * row as f64;
    for (stream, name) in run.names.iter().enumerate() {
        let y = y_of(stream);
        let _ = writeln!(out, r#"<text x="8" y="{:.1}">{}</text>"#, y + 15.0, escape(name));
        let _ = writeln!(
            out,
            r##"<path d="M{LEFT} {0:.1}H{1:.1}" stroke="#999"/>"##,
            y + 4.0 + BAR,
            LEFT + WIDTH
        );
    }
    for segment in record.segments.iter().filter(|segment| segment.from_ticks < until_ticks) {
        let colour = match run.owners[segment.stream] {
            Owner::Task(task) => COLOURS[task % COLOURS.len()],
            _ => "#777",
        };
        let (from, to) = (x(segment.from_ticks), x(segment.to_ticks));
        let _ = writeln!(
            out,
            r#"<rect x="{from:.2}" y="{:.1}" width="{:.2}" height="{BAR}" fill="{colour}"><title>{} job {}: {} to {}</title></rect>"#,
            y_of(segment.stream) + 4.0,
            (to - from).max(0.3),
            escape(&run.names[segment.stream]),
            segment.job,
            time.show(segment.from_ticks),
            time.show(segment.to_ticks)
        );
    }
    for release in record.releases.iter().filter(|release| release.at_ticks < until_ticks) {
        let (at, y) = (x(release.at_ticks), y_of(release.stream));
        let _ = writeln!(
            out,
            r#"<path d="M{at:.2} {:.1}V{:.1}m-2.5 4l2.5 -4l2.5 4" stroke="black" fill="none" stroke-width="0.8"/>"#,
            y + 4.0 + BAR,
            y + 1.0
        );
    }
    for deadline in record.deadlines.iter().filter(|deadline| deadline.at_ticks <= until_ticks) {
        let (at, y) = (x(deadline.at_ticks), y_of(deadline.stream));
        let _ = writeln!(
            out,
            r##"<path d="M{at:.2} {:.1}V{:.1}m-2.5 -4l2.5 4l2.5 -4" stroke="#c00" fill="none" stroke-width="0.8"><title>{} job {} is due at {}</title></path>"##,
            y + 1.0,
            y + 4.0 + BAR,
            escape(&run.names[deadline.stream]),
            deadline.job,
            time.show(deadline.at_ticks)
        );
    }
    for miss in record.misses.iter().filter(|miss| miss.at_ticks < until_ticks) {
        let (at, y) = (x(miss.at_ticks), y_of(miss.stream) + 4.0);
        let _ = writeln!(
            out,
            r##"<path d="M{:.2} {y:.1}l6 {BAR}m0 -{BAR}l-6 {BAR}" stroke="#c00" stroke-width="2"><title>deadline missed</title></path>"##,
            at - 3.0
        );
    }
    idle(out, run, record, until_ticks, &x);
}

/// What no real-time job and no handler uses: thin and pale, beside the bars of the tasks.
fn idle(out: &mut String, run: &Run, record: &Record, until_ticks: u64, x: &dyn Fn(u64) -> f64) {
    for (core, cpu) in run.cpus.iter().enumerate() {
        let y = TOP + ROW * (run.names.len() + core) as f64;
        let _ = writeln!(out, r#"<text x="8" y="{:.1}">free on CPU {cpu}</text>"#, y + 15.0);
        let mut draw = |from: u64, to: u64| {
            let width = x(to) - x(from);
            let _ = writeln!(
                out,
                r##"<rect x="{:.2}" y="{:.1}" width="{width:.2}" height="{:.1}" fill="#ddd"/>"##,
                x(from),
                y + 4.0 + BAR * 0.75,
                BAR / 4.0
            );
        };
        let mut free_ticks = 0;
        let real = |stream: usize| {
            matches!(run.owners[stream], Owner::Task(_) | Owner::Handler(_) | Owner::Section(_))
        };
        for segment in
            record.segments.iter().filter(|segment| segment.core == core && real(segment.stream))
        {
            if segment.from_ticks > free_ticks && free_ticks < until_ticks {
                draw(free_ticks, segment.from_ticks.min(until_ticks));
            }
            free_ticks = free_ticks.max(segment.to_ticks);
        }
        if free_ticks < until_ticks && !record.is_cut {
            draw(free_ticks, until_ticks);
        }
    }
}
