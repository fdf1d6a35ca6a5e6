// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The papers' figures as SVG (crate plotters): scatter (ASMP-Linux figs 6, 10), inverse
//! distribution (7, 11), maxima side by side (8, 9), density on a logarithmic scale (L4RTL figs 3,
//! 4).
//!
//! Axes always reach beyond the extremes: no point is cut. Where there are more samples than dots
//! are worth drawing, each column keeps its lowest and its highest.

use crate::histogram::Latencies;
use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::error::Error;
use std::ops::Range;

const SIZE: (u32, u32) = (900, 420);
/// Columns of a scatter plot, as many as it has room for; two dots each.
const COLUMNS: u64 = 400;
/// Readable on a light and on a dark page.
const COLOURS: [RGBColor; 6] = [
    RGBColor(214, 69, 65),
    RGBColor(224, 138, 30),
    RGBColor(56, 142, 60),
    RGBColor(31, 119, 180),
    RGBColor(142, 68, 173),
    RGBColor(120, 120, 120),
];
const GRID: RGBColor = RGBColor(150, 150, 150);

type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;
type Drawn = Result<String, Box<dyn Error>>;

/// Named latencies.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    pub name: &'a str,
    pub latencies: &'a Latencies,
}

/// The extremes of each column of so many values, as they come: number of the sample, and value.
#[derive(Debug)]
pub struct Columns {
    width: u64,
    values: u64,
    points: Vec<(u64, u64)>,
    low: (u64, u64),
    high: (u64, u64),
}

impl Columns {
    pub fn of(values: u64) -> Self {
        let width = values.div_ceil(COLUMNS).max(1);
        Self { width, values: 0, points: Vec::new(), low: (0, 0), high: (0, 0) }
    }

    pub fn push(&mut self, value: u64) {
        let point = (self.values, value);
        if self.values.is_multiple_of(self.width) {
            self.end_column();
            (self.low, self.high) = (point, point);
        }
        self.low = if value < self.low.1 { point } else { self.low };
        self.high = if value > self.high.1 { point } else { self.high };
        self.values += 1;
    }

    fn end_column(&mut self) {
        if self.values > 0 {
            self.points.push(self.low);
            self.points.extend((self.low != self.high).then_some(self.high));
        }
    }
}

/// The unit that suits a largest value, and its length in ns.
pub fn unit(max_ns: u64) -> (&'static str, f64) {
    match max_ns {
        0..20_000 => ("ns", 1.0),
        20_000..20_000_000 => ("us", 1e3),
        20_000_000..20_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    }
}

fn svg(draw: impl FnOnce(&DrawingArea<SVGBackend, Shift>) -> Result<(), Box<dyn Error>>) -> Drawn {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw(&area)?;
        area.present()?;
    }
    Ok(text)
}

/// A linear range that reaches a little beyond both ends.
fn around(low: f64, high: f64) -> Range<f64> {
    let margin = ((high - low) * 0.05).max(high.abs() * 0.01).max(1e-9);
    (low - margin).max(0.0)..high + margin
}

/// A logarithmic range that reaches beyond both ends.
fn log_around(low: f64, high: f64) -> Range<f64> {
    low.max(1e-12) / 1.3..high.max(low.max(1e-12)) * 1.3
}

/// The axes of a figure below its title.
fn frame<'a, 'b, X: AsRangedCoord, Y: AsRangedCoord>(
    area: &'a DrawingArea<SVGBackend<'b>, Shift>,
    title: &str,
    x: X,
    y: Y,
) -> Result<Chart<'a, 'b, X::CoordDescType, Y::CoordDescType>, Box<dyn Error>> {
    let chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)?;
    Ok(chart)
}

/// Draws the grid and the labels of the axes.
fn grid<'b, X, Y>(mesh: &mut MeshStyle<'_, '_, X, Y, SVGBackend<'b>>) -> Result<(), Box<dyn Error>>
where
    X: Ranged + ValueFormatter<X::ValueType>,
    Y: Ranged + ValueFormatter<Y::ValueType>,
{
    mesh.bold_line_style(GRID.mix(0.4)).light_line_style(TRANSPARENT).draw()?;
    Ok(())
}

/// Value by number of the sample.
pub fn scatter(title: &str, name: &str, mut columns: Columns) -> Drawn {
    columns.end_column();
    let Columns { points, values: count, .. } = columns;
    let values = || points.iter().map(|(_, value)| *value);
    let (low, high) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
    let (unit, length) = unit(high);
    svg(|area| {
        let mut chart = frame(
            area,
            title,
            around(0.0, count.max(1) as f64),
            around(low as f64 / length, high as f64 / length),
        )?;
        grid(chart.configure_mesh().x_desc("sample").y_desc(unit))?;
        chart
            .draw_series(points.iter().map(|(at, value)| {
                Circle::new((*at as f64, *value as f64 / length), 1, COLOURS[3].filled())
            }))?
            .label(name)
            .legend(|(x, y)| Circle::new((x + 8, y), 3, COLOURS[3].filled()));
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

/// The threshold (y) that an instant stays at or below with a probability (x).
pub fn inverse_distribution(title: &str, series: &[Series]) -> Drawn {
    let (low, high) = extremes(series);
    let (unit, length) = unit(high);
    svg(|area| {
        let mut chart = frame(
            area,
            title,
            0.0..1.02,
            log_around(low.max(1) as f64 / length, high.max(1) as f64 / length).log_scale(),
        )?;
        grid(chart.configure_mesh().x_desc("probability of an instant at or below").y_desc(unit))?;
        for (one, colour) in series.iter().zip(COLOURS.iter().cycle()) {
            let line = line(one.latencies);
            let line = line.into_iter().map(|(part, ns)| (part, ns.max(1) as f64 / length));
            chart
                .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
                .label(one.name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
                });
        }
        legend(&mut chart, SeriesLabelPosition::UpperLeft)
    })
}

/// Parts of the instants, and the latency that none of the part exceeds: at most a thousand points,
/// and the last.
fn line(latencies: &Latencies) -> Vec<(f64, u64)> {
    let (count, max_ns) = (latencies.instants() as f64, latencies.exact().max_ns);
    let (mut before, mut last) = (0, -1.0);
    let mut points = Vec::new();
    let mut buckets = latencies.buckets().peekable();
    while let Some(bucket) = buckets.next() {
        before += bucket.instants;
        let part = before as f64 / count;
        if part - last >= 0.001 || buckets.peek().is_none() {
            points.push((part, max_ns.map_or(bucket.to_ns, |max_ns| max_ns.min(bucket.to_ns))));
            last = part;
        }
    }
    points
}

/// How often each value came, both axes logarithmic.
pub fn density(title: &str, series: &[Series]) -> Drawn {
    let (low, high) = extremes(series);
    let (unit, length) = unit(high);
    let range = log_around(low.max(1) as f64, high.max(1) as f64);
    let buckets = 120;
    let (from, ratio) = (range.start, (range.end / range.start).powf(1.0 / f64::from(buckets)));
    let counted: Vec<Vec<(f64, f64)>> = series
        .iter()
        .map(|one| {
            let mut counts = vec![0u64; buckets as usize];
            for bucket in one.latencies.buckets() {
                let at = (bucket.from_ns.max(1) as f64 / from).ln() / ratio.ln();
                if let Some(count) = counts.get_mut((at as usize).min(buckets as usize - 1)) {
                    *count += bucket.instants;
                }
            }
            let place = |at: usize| from * ratio.powf(at as f64 + 0.5) / length;
            let total = one.latencies.instants() as f64;
            counts
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
                .map(|(at, count)| (place(at), *count as f64 / total))
                .collect()
        })
        .collect();
    let least = counted.iter().flatten().map(|(_, part)| *part).fold(1.0, f64::min);
    svg(|area| {
        let mut chart = frame(
            area,
            title,
            (range.start / length..range.end / length).log_scale(),
            log_around(least, 1.0).log_scale(),
        )?;
        grid(
            chart
                .configure_mesh()
                .x_desc(unit)
                .x_labels(6)
                .y_desc("part of the instants")
                .y_label_formatter(&|part| format!("{part:.0e}")),
        )?;
        for ((one, points), colour) in series.iter().zip(&counted).zip(COLOURS.iter().cycle()) {
            chart
                .draw_series(points.iter().map(|point| Circle::new(*point, 2, colour.filled())))?
                .label(one.name)
                .legend(move |(x, y)| Circle::new((x + 8, y), 3, colour.filled()));
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

/// The largest sample of each kind by load.
pub fn maxima(
    title: &str,
    loads: &[String],
    kinds: &[String],
    max_ns: &[(usize, usize, u64)],
) -> Drawn {
    let high = max_ns.iter().map(|(_, _, max)| *max).max().unwrap_or(1).max(1);
    let low = max_ns.iter().map(|(_, _, max)| *max).min().unwrap_or(1).max(1);
    let (unit, length) = unit(high);
    // Whole decades, so that at least two of them carry their number.
    let floor = 10f64.powf((low as f64 / length).log10().ceil() - 1.0) / 1.01;
    let top = 10f64.powf((high as f64 / length).log10().floor() + 1.0) * 1.01;
    svg(|area| {
        let mut chart = frame(area, title, -0.1..loads.len() as f64, (floor..top).log_scale())?;
        let name = |x: &f64| {
            let at = (*x - 0.4).round();
            let here = (*x - 0.4 - at).abs() < 0.11 && at >= 0.0;
            loads.get(at as usize).filter(|_| here).cloned().unwrap_or_default()
        };
        grid(
            chart
                .configure_mesh()
                .disable_x_mesh()
                .x_labels(loads.len() * 10)
                .x_label_formatter(&name)
                .y_desc(format!("largest sample, {unit}")),
        )?;
        let width = 0.8 / kinds.len().max(1) as f64;
        for ((kind, name), colour) in kinds.iter().enumerate().zip(COLOURS.iter().cycle()) {
            let bars = max_ns.iter().filter(|(_, of, _)| *of == kind).map(|(load, _, max)| {
                let left = *load as f64 + kind as f64 * width;
                Rectangle::new(
                    [(left, floor), (left + width * 0.9, (*max).max(1) as f64 / length)],
                    colour.filled(),
                )
            });
            chart.draw_series(bars)?.label(name).legend(move |(x, y)| {
                Rectangle::new([(x + 4, y - 4), (x + 14, y + 4)], colour.filled())
            });
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

fn extremes(series: &[Series]) -> (u64, u64) {
    let all = || series.iter().map(|one| one.latencies.exact());
    let low = all().filter_map(|exact| exact.min_ns).min();
    (low.unwrap_or(0), all().filter_map(|exact| exact.max_ns).max().unwrap_or(0))
}

fn legend<'a, 'b: 'a, C: CoordTranslate>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, C>,
    position: SeriesLabelPosition,
) -> Result<(), Box<dyn Error>> {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(TRANSPARENT)
        .draw()
        .map_err(|error| error.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Centres of the dots, in pixels.
    fn dots(svg: &str) -> Vec<(f64, f64)> {
        svg.split("<circle ")
            .skip(1)
            .map(|element| {
                let number = |name: &str| -> f64 {
                    let start = element.find(&format!("{name}=\"")).unwrap() + name.len() + 2;
                    element[start..].split('"').next().unwrap().parse().unwrap()
                };
                (number("cx"), number("cy"))
            })
            .collect()
    }

    #[test]
    fn a_scatter_has_a_dot_for_each_sample_inside_the_picture() {
        let values = [5, 10, 1_000_000, 7];
        let mut columns = Columns::of(4);
        values.into_iter().for_each(|value| columns.push(value));
        let svg = scatter("title & more", "MIX/Aoff", columns).unwrap();
        let dots = dots(&svg);
        // One more in the legend.
        assert_eq!(dots.len(), values.len() + 1);
        assert!(
            dots.iter().all(|(x, y)| (70.0..900.0).contains(x) && (10.0..380.0).contains(y)),
            "{dots:?}"
        );
        assert!(svg.contains("title &amp; more") && svg.contains("MIX/Aoff") && svg.contains("us"));
    }

    #[test]
    fn thinning_keeps_the_extremes() {
        let mut values = vec![100; 100_000];
        values[77_777] = 1;
        values[33_333] = 999;
        let mut columns = Columns::of(100_000);
        values.into_iter().for_each(|value| columns.push(value));
        columns.end_column();
        let points = columns.points;
        assert!(points.len() as u64 <= 2 * COLUMNS);
        assert!(points.contains(&(77_777, 1)) && points.contains(&(33_333, 999)));
    }

    #[test]
    fn every_run_is_drawn_also_where_there_are_more_than_colours() {
        let names: Vec<String> = (0..9).map(|run| format!("run-{run}")).collect();
        let latencies = Latencies::of(1..100);
        let series: Vec<Series> =
            names.iter().map(|name| Series { name, latencies: &latencies }).collect();
        for svg in [inverse_distribution("t", &series), density("t", &series)] {
            let svg = svg.unwrap();
            assert!(names.iter().all(|name| svg.contains(name.as_str())), "{svg}");
        }
    }

    #[test]
    fn every_figure_can_be_drawn_of_one_sample_of_zero() {
        let zero = Latencies::of([0]);
        let series = [Series { name: "IDL/N", latencies: &zero }];
        assert!(inverse_distribution("t", &series).unwrap().contains("IDL/N"));
        assert!(density("t", &series).unwrap().contains("IDL/N"));
        let mut columns = Columns::of(1);
        columns.push(0);
        assert!(scatter("t", "IDL/N", columns).unwrap().contains("IDL/N"));
        let names = ["IDL".to_owned()];
        assert!(maxima("t", &names, &["N".to_owned()], &[(0, 0, 0)]).unwrap().contains("IDL"));
    }
}
