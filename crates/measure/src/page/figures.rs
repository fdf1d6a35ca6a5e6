// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the page draws of runs: percentiles, histograms, latencies over time, the largest of each
//! second, and all worst ones at a glance. Pure.

use super::axis::{Axis, Towards, number, round_number};
use super::curve::{self, range_us};
use super::figure::{Figure, Label, Layer, Panel, Rule};
use super::marks::Mark;
use super::pen::Pen;
use super::shown::Shown;
use super::style::of_place;
use super::timeline::{Timeline, WORST};
use super::words::origin;
use crate::histogram::{Latencies, Quantile};
use crate::run::{Experiment, Run};
use crate::spaces::Drawing;
use crate::told::{counted, grouped, instant, short_us, us};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What the values of an experiment are.
pub const fn values(experiment: Experiment) -> &'static str {
    match experiment {
        Experiment::Latency => "latency",
        Experiment::Overhead => "time beyond the base time",
    }
}

fn title(shown: &[&Shown], what: &str) -> String {
    let values = match shown[0].experiment() {
        Experiment::Latency => "Latency",
        Experiment::Overhead => "Overhead",
    };
    format!("{values}, {}: {what}", shown[0].load())
}

fn runs<'a>(shown: &[&Shown<'a>]) -> Vec<&'a Run> {
    shown.iter().map(|one| one.run).collect()
}

fn latencies<'a>(shown: &'a [&Shown]) -> impl Iterator<Item = &'a Latencies> {
    shown.iter().map(|one| &one.run.latencies)
}

/// An axis for all values of runs.
fn values_axis(shown: &[&Shown], limit_ns: Option<u64>) -> Axis {
    let (low, high) = range_us(latencies(shown)).unwrap_or((1.0, 10.0));
    let limit_us = limit_ns.map_or(high, |ns| ns.max(1) as f64 / 1e3);
    Axis::log(low.min(limit_us), high.max(limit_us))
}

/// Draws the limit, where it lies on this axis.
fn rule(axis: &Axis, limit_ns: Option<u64>, is_upright: bool) -> Option<Rule> {
    let rule = |ns: u64| {
        let (us, name) = (ns as f64 / 1e3, format!("limit {} us", short_us(ns)));
        (us <= axis.high() * 1.000_001).then(|| Rule { place: axis.place(us), is_upright, name })
    };
    limit_ns.and_then(rule)
}

fn label(one: &Shown, end: Option<(f64, f64)>) -> Label {
    let (text, short) = (one.label.clone(), one.short.clone());
    Label { end, text, short, style: one.style() }
}

/// A figure of one plot.
fn of_one(title: String, x: Axis, x_name: &str, y_name: String, panel: Panel) -> Figure {
    Figure {
        title,
        x,
        x_name: x_name.to_owned(),
        y_name,
        panels: vec![panel],
        caption: String::new(),
    }
}

fn panel(y: Axis, height: f64, rule: Option<Rule>) -> Panel {
    Panel { name: None, y: Some(y), height, layers: vec![], labels: vec![], marks: vec![], rule }
}

/// Median, 99 % and worst of all runs of an experiment, load by load.
pub fn glance(shown: &[&Shown], limit_ns: Option<u64>) -> Figure {
    let quantiles = |one: &Shown| [2, 100].map(|one_in| one.run.latencies.quantile(one_in));
    let figures = |one: &Shown| {
        let known = |quantile| match quantile {
            Quantile::At { ns } => Some(ns),
            _ => None,
        };
        let [median, p99] = quantiles(one).map(known);
        [median, p99, one.run.latencies.max_ns()].map(|ns| ns.map(|ns| ns.max(1) as f64 / 1e3))
    };
    let limit_us = limit_ns.map(|ns| ns.max(1) as f64 / 1e3);
    let all = || shown.iter().flat_map(|one| figures(one)).flatten().chain(limit_us);
    let x = Axis::log(all().fold(f64::MAX, f64::min).min(1e9), all().fold(0.0, f64::max));
    let loads: BTreeSet<_> = shown.iter().map(|one| one.load()).collect();
    let panels = loads.into_iter().enumerate().map(|(at, load)| {
        let mut rule = rule(&x, limit_ns, true);
        // Its name is there once.
        rule.iter_mut().filter(|_| at > 0).for_each(|rule| rule.name.clear());
        let rows: Vec<&&Shown> = shown.iter().filter(|one| one.load() == load).collect();
        let (mut layers, mut labels) = (Vec::new(), Vec::new());
        for (at, one) in rows.iter().enumerate() {
            let y = 1.0 - (at as f64 + 0.5) / rows.len() as f64;
            let places = figures(one).map(|us| us.map(|us| x.place(us)));
            let mut pen = Pen::default();
            places.iter().flatten().for_each(|place| pen.step(y, *place));
            let style = one.style();
            layers.push(Layer::Line { style, path: pen.path() });
            for (place, pixels) in places.iter().zip([4.0, 7.0, 11.0]) {
                let path = Pen::dots(place.map(|x| (x, y)));
                layers.push(Layer::Dots { style, path, pixels });
            }
            labels.push(label(one, Some((1.0, y))));
        }
        let height = rows.len() as f64 * 20.0;
        let name = Some(load.to_string());
        Panel { name, y: None, height, layers, labels, marks: vec![], rule }
    });
    let what = values(shown[0].experiment());
    let all_quantiles: Vec<Quantile> = shown.iter().flat_map(|one| quantiles(one)).collect();
    let supported = match all_quantiles.contains(&Quantile::Unsupported) {
        true => ", where n supports it",
        false => "",
    };
    let beyond = match all_quantiles.iter().any(|one| matches!(one, Quantile::AtLeast { .. })) {
        true => " One beyond the last bucket of another tool's histogram has no dot.",
        false => "",
    };
    Figure {
        title: format!("{}{} at a glance", what[..1].to_uppercase(), &what[1..]),
        panels: panels.collect(),
        x,
        x_name: format!("{what}, us"),
        y_name: String::new(),
        caption: format!(
            "The largest dot of a line is the worst {}, the middle one 99 %, the smallest the \
             median{supported}.{beyond} {}",
            one_of(shown),
            origin(&runs(shown))
        ),
    }
}

/// The worst instants lie at the right: 1 - P on a logarithmic scale, as HdrHistogram draws it.
pub fn percentiles(shown: &[&Shown], limit_ns: Option<u64>) -> Figure {
    let most = latencies(shown).map(Latencies::instants).max().unwrap_or(0);
    let (x, y) = (Axis::percentiles(most), values_axis(shown, limit_ns));
    let mut panel = panel(y.clone(), 300.0, rule(&y, limit_ns, false));
    let (mut ends, instant) = (Vec::new(), one_of(shown));
    for one in shown {
        let style = one.style();
        let curve = curve::percentiles(&one.run.latencies, &x, &y);
        panel.layers.push(Layer::Line { style, path: curve.path });
        let path = Pen::dots(curve.end);
        panel.layers.push(Layer::Dots { style, path, pixels: 8.0 });
        // Beyond the last bucket the longest alone is known: the line does not reach it.
        let end = match one.run.latencies.beyond() {
            Some(_) => curve.last.or(curve.end),
            None => curve.end.or(curve.last),
        };
        panel.labels.push(label(one, end));
        if let Some(beyond) = one.run.latencies.beyond() {
            ends.push(format!(
                " Of {} of {} only the shortest possible time is known, {} us: the line ends \
                 there.",
                counted(beyond.instants, instant),
                one.label,
                short_us(beyond.from_ns)
            ));
        }
    }
    let what = values(shown[0].experiment());
    let mut figure = of_one(
        title(shown, "percentiles"),
        x,
        &format!("part of the {instant}s at or below"),
        format!("{what}, us"),
        panel,
    );
    figure.caption = format!(
        "A line shows which {what} a part of the {instant}s does not exceed. It ends at the worst \
         of n {instant}s, the dot.{} {}",
        ends.concat(),
        origin(&runs(shown))
    );
    figure
}

/// Counts by microseconds, as cyclictest's histograms are drawn: the whole, and before it the part
/// where most runs are, if one is much longer than the others. The axis ends where the buckets do:
/// what an import has beyond its last one is counted in the caption.
pub fn histograms(shown: &[&Shown], limit_ns: Option<u64>) -> Vec<Figure> {
    let high_us = |one: &&Shown| {
        let latencies = &one.run.latencies;
        let beyond = latencies.beyond().map(|beyond| beyond.from_ns);
        Some(latencies.exact().max_ns.or(beyond)?.max(1) as f64 / 1e3)
    };
    let highs = || shown.iter().filter_map(high_us);
    let (least, most) = (highs().fold(f64::MAX, f64::min), highs().fold(0.0, f64::max));
    // 99.9 % of a middling run, where its n supports it.
    let usual_us = |one: &&Shown| match one.run.latencies.quantile(1000) {
        Quantile::At { ns } => Some(ns as f64 / 1e3),
        _ => high_us(one),
    };
    let mut usual: Vec<f64> = shown.iter().filter_map(usual_us).collect();
    usual.sort_by(f64::total_cmp);
    let middle = usual.get((usual.len() - 1) / 2).copied().unwrap_or(most);
    let part_us = round_number((middle * 1.5).max(least * 1.1), Towards::End);
    // The last bucket is whole, and holds the worst.
    let width_us = curve::bucket_ns(most, latencies(shown)) / 1e3;
    let whole_us = ((most / width_us).floor() + 1.0) * width_us;
    let whole = histogram(shown, limit_ns, (whole_us, width_us * 1e3), "histogram");
    match most > part_us * 3.0 {
        true => {
            let name = format!("histogram up to {} us", number(part_us));
            let width_ns = curve::bucket_ns(part_us, latencies(shown));
            vec![histogram(shown, limit_ns, (part_us, width_ns), &name), whole]
        }
        false => vec![whole],
    }
}

fn histogram(
    shown: &[&Shown],
    limit_ns: Option<u64>,
    (to_us, width_ns): (f64, f64),
    name: &str,
) -> Figure {
    let most = latencies(shown).map(|latencies| curve::most(latencies, width_ns)).max();
    let (x, y) = (Axis::linear(to_us), Axis::counts(most.unwrap_or(1)));
    let mut panel = panel(y.clone(), 280.0, rule(&x, limit_ns, true));
    let (mut outside, mut has_dot) = (Vec::new(), false);
    let far_limit = match (limit_ns, &panel.rule) {
        (Some(ns), None) => format!(" The limit, {} us, lies beyond the axis.", short_us(ns)),
        _ => String::new(),
    };
    let instant = one_of(shown);
    for one in shown {
        let style = one.style();
        let (curve, beyond) = curve::histogram(&one.run.latencies, width_ns, &x, &y);
        panel.layers.push(Layer::Line { style, path: curve.path });
        has_dot |= curve.end.is_some();
        let path = Pen::dots(curve.end);
        panel.layers.push(Layer::Dots { style, path, pixels: 8.0 });
        panel.labels.push(label(one, None));
        if beyond > 0 {
            let worst = one.run.latencies.max_ns();
            let worst = worst.map_or_else(
                || "worst not known".to_owned(),
                |ns| format!("worst {} us", us(ns as f64)),
            );
            outside.push(format!("{}: {} ({worst})", one.label, grouped(beyond)));
        }
    }
    let outside = match outside.is_empty() {
        true => String::new(),
        false => format!(" Counted beyond the axis: {}.", outside.join("; ")),
    };
    let what = values(shown[0].experiment());
    let dot = match has_dot {
        true => format!(" A dot marks the bucket of the worst {instant}."),
        false => String::new(),
    };
    let y_name = format!("{instant}s in a bucket");
    let mut figure = of_one(title(shown, name), x, &format!("{what}, us"), y_name, panel);
    figure.caption = format!(
        "A bucket is {} us wide.{dot}{outside}{far_limit} {}",
        short_us(width_ns as u64),
        origin(&runs(shown))
    );
    figure
}

fn with_times<'a>(shown: &'a [&'a Shown<'a>]) -> Vec<(&'a Shown<'a>, &'a Timeline)> {
    shown.iter().filter_map(|one| Some((*one, one.timeline.as_ref()?))).collect()
}

/// `None` where no run has times.
fn time_axis(times: &[(&Shown, &Timeline)]) -> Option<Axis> {
    let length_ns = times.iter().map(|(_, timeline)| timeline.length_ns).max()?;
    Some(Axis::linear(length_ns as f64 / 1e9))
}

/// Which runs lack times, and why.
pub fn without_times(shown: &[&Shown]) -> Option<String> {
    let without: Vec<&str> =
        shown.iter().filter(|one| one.timeline.is_none()).map(|one| one.label.as_str()).collect();
    (!without.is_empty()).then(|| {
        format!(
            "No times are known of {}: an imported histogram says how often, and not when.",
            without.join(", ")
        )
    })
}

/// `instant` or `turn`.
const fn one_of(shown: &[&Shown]) -> &'static str {
    instant(shown[0].experiment())
}

fn time_name(shown: &[&Shown]) -> String {
    format!("time since the run's first {}, s", one_of(shown))
}

/// A row of dots for each run, all with the same axes; the worst have the numbers of their causes.
pub fn over_time(shown: &[&Shown], limit_ns: Option<u64>) -> Option<Figure> {
    let times = with_times(shown);
    let (x, y) = (time_axis(&times)?, values_axis(shown, limit_ns));
    let panels = times.iter().enumerate().map(|(at, (one, timeline))| {
        let mut panel = panel(y.clone(), 72.0, rule(&y, limit_ns, false));
        // Its name is there once.
        panel.rule.iter_mut().filter(|_| at > 0).for_each(|rule| rule.name.clear());
        let style = one.style();
        let ranges = timeline.columns.iter().map(|(at, column)| {
            let middle = *at as f64 + if timeline.has_samples { 0.0 } else { 0.5 };
            let x = x.place(middle * timeline.column_ns as f64 / 1e9);
            (x, [column.low_ns, column.high_ns].map(|ns| y.place(ns as f64 / 1e3)))
        });
        let highest = Pen::dots(ranges.clone().map(|(x, [_, high])| (x, high)));
        panel.layers.push(Layer::Ranges { style, path: Pen::ranges(ranges) });
        panel.layers.push(Layer::Dots { style, path: highest, pixels: 2.8 });
        panel.labels.push(label(one, Some((1.0, 0.5))));
        let base_ns = one.run.base_ns();
        for (number, worst) in (1..).zip(one.run.provenance.worst.iter().take(WORST)) {
            if let Some(at_ns) = timeline.worst_ns.get(&worst.index) {
                let value_us = worst.value_ns.saturating_sub(base_ns) as f64 / 1e3;
                let (x, y) = (x.place(*at_ns as f64 / 1e9), y.place(value_us));
                panel.marks.push(Mark { x, y, number });
            }
        }
        panel
    });
    let panels: Vec<Panel> = panels.collect();
    let has_marks = panels.iter().any(|panel| !panel.marks.is_empty());
    let numbers = match has_marks {
        true => {
            " Numbers: the worst, see below. The thick ring is 1; where several stand together, \
             their numbers go from left to right."
        }
        false => "",
    };
    let what = values(shown[0].experiment());
    Some(Figure {
        title: title(shown, "over time"),
        x,
        x_name: time_name(shown),
        y_name: format!("{what}, us"),
        panels,
        caption: format!(
            "All rows have the same axes.{}{numbers} {}",
            dots(&times),
            origin(&runs(shown))
        ),
    })
}

/// What a dot over time and the line below it are: of runs that keep their samples, and of those
/// that keep only seconds.
fn dots(times: &[(&Shown, &Timeline)]) -> String {
    let mut told = String::new();
    let all_rough = times.iter().all(|(_, timeline)| !timeline.has_samples);
    if !all_rough {
        told.push_str(
            " A run has up to 240 columns: the dot is the highest sample of each, and a pale line \
             goes down to the lowest.",
        );
    }
    let mut rough: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (one, timeline) in times.iter().filter(|(_, timeline)| !timeline.has_samples) {
        rough.entry(timeline.column_ns).or_default().push(&one.label);
    }
    let alike = all_rough && rough.len() == 1;
    for (column_ns, labels) in rough {
        let of = match alike {
            true => " A dot is".to_owned(),
            false => format!(" Of {} a dot is", labels.join(", ")),
        };
        let each = each(column_ns / 1_000_000_000);
        let _ = write!(
            told,
            "{of} the highest of each {each}, and a pale line goes down to the lowest."
        );
    }
    told
}

/// `second` or `4 seconds`.
fn each(seconds: u64) -> String {
    match seconds {
        1 => "second".to_owned(),
        _ => format!("{} seconds", grouped(seconds)),
    }
}

/// The largest of each second, all runs on one axis.
pub fn largest(shown: &[&Shown], limit_ns: Option<u64>) -> Option<Figure> {
    let times = with_times(shown);
    // Each is 1 or a power of 2.
    let seconds = times.iter().map(|(_, timeline)| timeline.group_s).max()?;
    let end_s = |timeline: &Timeline| timeline.end_ns as f64 / 1e9;
    let x = Axis::linear(times.iter().map(|(_, timeline)| end_s(timeline)).fold(0.0, f64::max));
    let maxima: Vec<_> = times
        .iter()
        .map(|(one, timeline)| (one, end_s(timeline), timeline.largest_of(seconds)))
        .collect();
    let all_ns = || maxima.iter().flat_map(|(_, _, largest)| largest.values()).chain(&limit_ns);
    let ends = (all_ns().min().copied(), all_ns().max().copied());
    let us = |ns: Option<u64>| ns.unwrap_or(1).max(1) as f64 / 1e3;
    let y = Axis::log(us(ends.0), us(ends.1));
    let mut panel = panel(y.clone(), 170.0, rule(&y, limit_ns, false));
    let mut is_cut = false;
    for (one, end_s, largest) in &maxima {
        let (mut pen, mut end, style) = (Pen::default(), None, one.style());
        let mut next = None;
        for (second, ns) in largest {
            let whole_s = (second + seconds) as f64;
            is_cut |= *end_s < whole_s;
            let (from, to) = (x.place(*second as f64), x.place(end_s.min(whole_s)));
            let height = y.place(*ns as f64 / 1e3);
            if next != Some(*second) {
                pen.move_to(from, height);
            }
            pen.step(height, to);
            next = Some(second + seconds);
            end = Some((to, height));
        }
        panel.layers.push(Layer::Line { style, path: pen.path() });
        panel.labels.push(label(one, end));
    }
    let what = values(shown[0].experiment());
    let each = each(seconds);
    let name = format!("largest of each {each}");
    let y_name = format!("{what}, us");
    let mut figure = of_one(title(shown, &name), x, &time_name(shown), y_name, panel);
    let missed = match shown[0].experiment() {
        Experiment::Latency => ", missed instants included",
        Experiment::Overhead => "",
    };
    figure.caption = format!(
        "A step is the largest {what} of each {each}{missed}.{} A gap has no {}. {}",
        if is_cut { " The last one is shorter: it ends with its run." } else { "" },
        one_of(shown),
        origin(&runs(shown))
    );
    Some(figure)
}

/// L4RTL's figures 3 and 4: times of a handler in the kernel and of one in an address space.
pub fn space(drawing: &Drawing, limit_ns: Option<u64>) -> Figure {
    let all = || drawing.panels.iter().flat_map(|panel| panel.times.iter().map(|(_, time)| time));
    let (low, high) = range_us(all()).unwrap_or((1.0, 10.0));
    let limit_us = limit_ns.map_or(high, |ns| ns.max(1) as f64 / 1e3);
    let x = Axis::log(low.min(limit_us), high.max(limit_us));
    let y = Axis::log(all().map(curve::least_part).fold(1.0, f64::min) / 1.5, 1.0);
    let panels = drawing.panels.iter().map(|of| {
        // A part of the time has no limit.
        let limit = rule(&x, limit_ns, true).filter(|_| of.is_whole);
        let mut panel = panel(y.clone(), 150.0, limit);
        panel.name = Some(of.name.to_owned());
        for (place, time) in &of.times {
            let style = of_place(*place);
            let curve = curve::density(time, &x, &y);
            panel.layers.push(Layer::Line { style, path: curve.path });
            panel.layers.push(Layer::Dots { style, path: Pen::dots(curve.end), pixels: 8.0 });
            let text = place.word().to_owned();
            panel.labels.push(Label { end: None, short: text.clone(), text, style });
        }
        panel
    });
    Figure {
        title: format!("Event to handler, {}/{}", drawing.load, drawing.kind),
        panels: panels.collect(),
        x,
        x_name: "time, us".to_owned(),
        y_name: "part of the samples in a bucket".to_owned(),
        caption: format!(
            "kernel: the handler is a thread of the kernel; user: it has an address space of its \
             own. A bucket is 12 % wider than the one before. A dot marks the bucket of the \
             largest. {}",
            origin(&drawing.runs)
        ),
    }
}
