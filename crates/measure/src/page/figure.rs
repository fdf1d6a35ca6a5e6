// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A figure as SVG in two layouts, one for wide and one for narrow pages: a figure that is scaled
//! down to a phone cannot be read. The data is there once; the layouts differ in axes and labels.
//! Pure.

use super::axis::{Axis, Tick, with_room};
use super::marks::{Mark, merged};
use super::pen::{HEIGHT, WIDTH};
use super::style::{INK, PAGE, Style};
use super::words::escape;
use std::fmt::Write;

/// Panels below each other with one x axis.
#[derive(Debug)]
pub struct Figure {
    pub title: String,
    pub x: Axis,
    pub x_name: String,
    pub y_name: String,
    pub panels: Vec<Panel>,
    /// What the figure shows, in sentences.
    pub caption: String,
}

/// One plot.
#[derive(Debug)]
pub struct Panel {
    pub name: Option<String>,
    /// `None` where each row has its label.
    pub y: Option<Axis>,
    /// In pixels, at least.
    pub height: f64,
    pub layers: Vec<Layer>,
    pub labels: Vec<Label>,
    pub marks: Vec<Mark>,
    pub rule: Option<Rule>,
}

/// A value that is told apart, with its name; an empty one is not written.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub place: f64,
    /// Its axis is x.
    pub is_upright: bool,
    pub name: String,
}

/// What is drawn of the data, by [`super::pen::Pen`].
#[derive(Debug)]
pub enum Layer {
    Line {
        style: Style,
        path: String,
    },
    /// Thin lines below dots, as pale as they can be.
    Ranges {
        style: Style,
        path: String,
    },
    Dots {
        style: Style,
        path: String,
        pixels: f64,
    },
}

/// A name at the end of a line.
#[derive(Debug)]
pub struct Label {
    /// Where the line ends; `None`: the label stands as high as there is room.
    pub end: Option<(f64, f64)>,
    pub text: String,
    /// In place of the text, where one of the figure is too long.
    pub short: String,
    pub style: Style,
}

/// Sizes in the SVG's own units.
#[derive(Debug, Clone, Copy)]
struct Layout {
    class: &'static str,
    width: f64,
    left: f64,
    /// Room for labels, at most.
    right: f64,
    font: f64,
    has_short_labels: bool,
}

/// From 820 pixels of the page on, and so with 788 of its 900: its text has 11.4 there.
const WIDE: Layout = Layout {
    class: "wide",
    width: 900.0,
    left: 76.0,
    right: 210.0,
    font: 13.0,
    has_short_labels: false,
};
/// Below; a page of 400 pixels leaves it 376.
const NARROW: Layout = Layout {
    class: "narrow",
    width: 376.0,
    left: 54.0,
    right: 122.0,
    font: 11.5,
    has_short_labels: false,
};

impl Layout {
    fn plot_width(&self) -> f64 {
        self.width - self.left - self.right
    }

    /// About as wide as a text is.
    fn text_width(&self, text: &str) -> f64 {
        text.chars().count() as f64 * self.font * 0.6
    }

    fn line(&self) -> f64 {
        self.font + 3.0
    }
}

/// From a line's end to its label, in pixels.
const LEADER: f64 = 22.0;

impl Figure {
    /// The figure as HTML. `id` tells it from the page's others.
    pub fn html(&self, id: &str) -> String {
        format!(
            "<figure>\n<h3>{}</h3>\n{}\n{}\n<figcaption>{}</figcaption>\n</figure>\n",
            escape(&self.title),
            self.svg(&WIDE, id, true),
            self.svg(&NARROW, id, false),
            escape(&self.caption)
        )
    }

    fn svg(&self, layout: &Layout, id: &str, with_data: bool) -> String {
        let room = |of: fn(&Label) -> &str| {
            let labels = self.panels.iter().flat_map(|panel| &panel.labels);
            let longest = labels.map(|label| layout.text_width(of(label))).fold(0.0, f64::max);
            longest + LEADER + 8.0
        };
        let whole = room(|label| &label.text);
        let has_short_labels = whole > layout.right;
        let wanted = if has_short_labels { room(|label| &label.short) } else { whole };
        let layout = &Layout { right: layout.right.min(wanted), has_short_labels, ..*layout };
        let mut body = String::new();
        let mut top = 2.0;
        if !self.y_name.is_empty() {
            text(&mut body, (0.0, layout.font), "start", &self.y_name);
            top = layout.line() + 8.0;
        }
        for (at, panel) in self.panels.iter().enumerate() {
            if let Some(name) = &panel.name {
                let _ = write!(
                    body,
                    r#"<text x="{}" y="{:.0}" font-weight="600">{}</text>"#,
                    layout.left,
                    top + layout.font,
                    escape(name)
                );
                top += layout.line() + 6.0;
            }
            if let Some(Rule { place, is_upright: true, name }) = &panel.rule
                && !name.is_empty()
            {
                // Behind what else stands in its line.
                let (least, y) = match &panel.name {
                    Some(of) => (layout.left + layout.text_width(of) + 12.0, top - 6.0 - 3.0),
                    None => (layout.text_width(&self.y_name) + 12.0, layout.font),
                };
                let width = layout.text_width(name);
                let middle = layout.left + place * layout.plot_width();
                let x = (middle - width / 2.0).min(layout.width - width - 2.0).max(least);
                text(&mut body, (x, y), "start", name);
            }
            let height = panel.height.max((panel.labels.len() as f64 + 0.5) * layout.line());
            let id = format!("{id}-{at}");
            if with_data {
                let _ = write!(body, "{}", panel.symbol(&id));
            }
            panel.draw(&mut body, layout, self, &id, (top, height));
            top += height + layout.font + 3.0;
        }
        let ticks = with_room(&self.x.ticks, layout.plot_width(), |tick| {
            layout.text_width(&tick.label) / 2.0 + 4.0
        });
        for Tick { place, label } in ticks {
            let x = layout.left + place * layout.plot_width();
            text(&mut body, (x, top + 1.0), "middle", label);
        }
        top += layout.line() + 9.0;
        let middle = layout.left + layout.plot_width() / 2.0;
        text(&mut body, (middle, top - 6.0), "middle", &self.x_name);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"{}\" role=\"img\" \
             viewBox=\"0 0 {} {:.0}\" font-family=\"system-ui,sans-serif\" font-size=\"{}\" \
             fill=\"{INK}\" stroke-linejoin=\"round\"><title>{}</title>{body}</svg>",
            layout.class,
            layout.width,
            top + 2.0,
            layout.font,
            escape(&self.title)
        )
    }
}

impl Panel {
    /// The data, for both layouts.
    fn symbol(&self, id: &str) -> String {
        let mut text = format!(
            r#"<symbol id="{id}" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" style="overflow:visible">"#
        );
        for layer in &self.layers {
            let (style, path, rest) = match layer {
                Layer::Line { style, path } => (style, path, dashes(style)),
                Layer::Ranges { style, path } => {
                    (style, path, r#"stroke-width="1.2" stroke-opacity=".4""#.to_owned())
                }
                Layer::Dots { style, path, pixels } => {
                    (style, path, format!(r#"stroke-width="{pixels}" stroke-linecap="round""#))
                }
            };
            let _ = write!(
                text,
                r#"<path fill="none" stroke="{}" {rest} vector-effect="non-scaling-stroke" d="{path}"/>"#,
                style.colour
            );
        }
        text + "</symbol>"
    }

    fn draw(
        &self,
        body: &mut String,
        layout: &Layout,
        figure: &Figure,
        id: &str,
        (top, height): (f64, f64),
    ) {
        let (left, width) = (layout.left, layout.plot_width());
        let right = left + width;
        let y_of = |place: f64| top + (1.0 - place) * height;
        // The grid below the data.
        let mut grid = format!("M{left} {top:.1}v{height:.1}h{width}");
        for tick in &figure.x.ticks {
            let _ = write!(grid, "M{:.1} {top:.1}v{height:.1}", left + tick.place * width);
        }
        let room = layout.font / 2.0 + 1.0;
        for tick in self.y.iter().flat_map(|y| with_room(&y.ticks, height, |_| room)) {
            let y = y_of(tick.place);
            let _ = write!(grid, "M{left} {y:.1}h{width}");
            text(body, (left - 6.0, y + layout.font * 0.35), "end", &tick.label);
        }
        let _ =
            write!(body, r#"<path fill="none" stroke="{INK}" stroke-opacity=".16" d="{grid}"/>"#);
        // A double line, as nothing else is.
        for (rule, (colour, pixels)) in
            self.rule.iter().flat_map(|rule| [(INK, 4), (PAGE, 2)].map(|line| (rule, line)))
        {
            let path = match rule.is_upright {
                true => format!("M{:.1} {top:.1}v{height:.1}", left + rule.place * width),
                false => format!("M{left} {:.1}h{width}", y_of(rule.place)),
            };
            let _ = write!(
                body,
                r#"<path fill="none" stroke="{colour}" stroke-width="{pixels}" d="{path}"/>"#
            );
        }
        let _ = write!(
            body,
            r##"<use href="#{id}" x="{left}" y="{top:.1}" width="{width}" height="{height:.1}"/>"##
        );
        if let Some(Rule { place, is_upright: false, name }) = &self.rule
            && !name.is_empty()
        {
            // Above it, where there is room.
            let above = y_of(*place) - 5.0;
            let below = above + layout.font + 8.0;
            let y = if above - layout.font < top { below } else { above };
            text(body, (left + 4.0, y), "start", name);
        }
        for mark in merged(&self.marks, width, |text| layout.text_width(text)) {
            for ((x, y), number) in mark.points.iter().zip(&mark.numbers) {
                let thick = if *number == 1 { r#" stroke-width="3""# } else { "" };
                let _ = write!(
                    body,
                    r#"<circle cx="{:.1}" cy="{:.1}" r="4.5" fill="none" stroke="{INK}"{thick}/>"#,
                    left + x * width,
                    y_of(*y)
                );
            }
            let (start, y) = (left + mark.text_from, y_of(mark.points[0].1) + layout.font * 0.35);
            text(body, (start, y), "start", &mark.text());
        }
        let ends: Vec<Option<(f64, f64)>> = self
            .labels
            .iter()
            .map(|label| label.end.map(|(x, y)| (left + x * width, y_of(y))))
            .collect();
        let wanted = heights(&ends, top, right, layout.line());
        let places = spread(&wanted, layout.line(), (top, top + height));
        for ((label, end), place) in self.labels.iter().zip(ends).zip(places) {
            let colour = label.style.colour;
            // From an early end a pale line goes to the label's; the label itself has its style.
            let mut from_y = place;
            match end {
                Some((x, y)) if x < right - 1.0 => {
                    let _ = write!(
                        body,
                        r#"<path fill="none" stroke="{colour}" stroke-opacity=".5" d="M{x:.1} {y:.1}L{right} {place:.1}"/>"#
                    );
                }
                Some((_, y)) => from_y = y,
                None => {}
            }
            let _ = write!(
                body,
                r#"<path fill="none" stroke="{colour}" {} d="M{right} {from_y:.1}L{} {place:.1}"/>"#,
                dashes(&label.style),
                right + LEADER
            );
            let room = layout.right - LEADER - 3.0;
            let at = (right + LEADER + 3.0, place + layout.font * 0.35);
            let of = if layout.has_short_labels { &label.short } else { &label.text };
            text(body, at, "start", &cut(of, |text| layout.text_width(text) <= room));
        }
    }
}

fn dashes(style: &Style) -> String {
    let pixels = style.pixels;
    match style.dash {
        "" => format!(r#"stroke-width="{pixels}""#),
        dash => format!(r#"stroke-width="{pixels}" stroke-dasharray="{dash}""#),
    }
}

fn text(body: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let anchor = match anchor {
        "start" => String::new(),
        other => format!(r#" text-anchor="{other}""#),
    };
    let _ = write!(body, r#"<text x="{x:.1}" y="{y:.1}"{anchor}>{}</text>"#, escape(text));
}

/// As much of a text as there is room for.
fn cut(text: &str, fits: impl Fn(&str) -> bool) -> String {
    if fits(text) {
        return text.to_owned();
    }
    let mut kept: String = text.to_owned();
    while !kept.is_empty() && !fits(&format!("{kept}…")) {
        kept.pop();
    }
    kept + "…"
}

/// How high each label wants to stand: as its line's end, or at the top. Of lines that end early
/// and about equally high, the one that ends first wants the highest place: their leaders fan out
/// and do not cross.
fn heights(ends: &[Option<(f64, f64)>], top: f64, right: f64, gap: f64) -> Vec<f64> {
    let mut wanted: Vec<f64> = ends.iter().map(|end| end.map_or(top, |(_, y)| y)).collect();
    let mut early: Vec<(usize, (f64, f64))> = ends
        .iter()
        .enumerate()
        .filter_map(|(at, end)| Some((at, (*end)?)))
        .filter(|(_, (x, _))| *x < right - 1.0)
        .collect();
    early.sort_by(|(_, one), (_, other)| one.1.total_cmp(&other.1));
    for alike in early.chunk_by(|(_, one), (_, next)| next.1 - one.1 < gap / 2.0) {
        let mut alike = alike.to_vec();
        alike.sort_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
        let middle = alike.iter().map(|(_, end)| end.1).sum::<f64>() / alike.len() as f64;
        let first = middle - (alike.len() - 1) as f64 / 2.0 * gap;
        for (turn, (at, _)) in alike.iter().enumerate() {
            wanted[*at] = first + turn as f64 * gap;
        }
    }
    wanted
}

/// Places near those that are wanted, `gap` apart, between both ends as long as there is room.
fn spread(wanted: &[f64], gap: f64, (first, last): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    let mut places = wanted.to_vec();
    let mut least = first + gap / 2.0;
    for at in &order {
        places[*at] = places[*at].max(least);
        least = places[*at] + gap;
    }
    let mut most = last;
    for at in order.iter().rev() {
        places[*at] = places[*at].min(most);
        most = places[*at] - gap;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::style::of_kind;
    use crate::run::Kind;

    /// The values of an attribute, in order.
    fn numbers(svg: &str, element: &str, attribute: &str) -> Vec<f64> {
        let (start, attribute) = (format!("<{element} "), format!("{attribute}=\""));
        svg.split(&start)
            .skip(1)
            .map(|rest| {
                let rest = rest.split(&attribute).nth(1).unwrap();
                rest.split('"').next().unwrap().parse().unwrap()
            })
            .collect()
    }

    fn figure(labels: usize) -> Figure {
        let label = |at: usize| Label {
            end: Some((1.0, 0.5)),
            text: format!("{at} <partition-tick>"),
            short: format!("{at} <part>"),
            style: of_kind(Kind::PartitionTick),
        };
        Figure {
            title: "a <title> & more".into(),
            x: Axis::percentiles(10_000_000),
            x_name: "instants".into(),
            y_name: "latency, us".into(),
            panels: vec![Panel {
                name: None,
                y: Some(Axis::log(1.0, 1e6)),
                height: 100.0,
                layers: vec![Layer::Line {
                    style: of_kind(Kind::Partition),
                    path: "M0 0h9".into(),
                }],
                labels: (0..labels).map(label).collect(),
                marks: vec![],
                rule: Some(Rule { place: 0.5, is_upright: false, name: "limit".into() }),
            }],
            caption: String::new(),
        }
    }

    #[test]
    fn the_smallest_text_has_11_px_on_a_page_of_400() {
        // Padding of the page: 12 on each side when narrow, 16 when wide.
        const { assert!(NARROW.font * (400.0 - 24.0) / NARROW.width >= 11.0) };
        const { assert!(WIDE.font * (820.0 - 32.0) / WIDE.width >= 11.0) };
        // On A4, where the wide one is printed, 180 mm are left: 6.5 pt and more.
        const { assert!(WIDE.font * 680.0 / WIDE.width >= 6.5 / 72.0 * 96.0) };
        for layout in [WIDE, NARROW] {
            let svg = figure(2).svg(&layout, "f", true);
            assert_eq!(svg.matches("font-size").count(), 1, "one size in a figure: {svg}");
        }
    }

    #[test]
    fn the_data_is_there_once_for_both_layouts() {
        let html = figure(2).html("f");
        assert_eq!(html.matches("M0 0h9").count(), 1);
        assert_eq!(html.matches("href=\"#f-0\"").count(), 2);
    }

    #[test]
    fn every_label_stands_in_the_picture_and_on_no_other() {
        for layout in [WIDE, NARROW] {
            let svg = figure(30).svg(&layout, "f", true);
            let height: f64 = svg
                .split("viewBox=\"0 0 ")
                .nth(1)
                .unwrap()
                .split(['"', ' '])
                .nth(1)
                .unwrap()
                .parse()
                .unwrap();
            let labels: Vec<&str> =
                svg.split("<text ").filter(|text| text.contains("&lt;part")).collect();
            assert_eq!(labels.len(), 30, "{svg}");
            let ys = numbers(&svg, "text", "y");
            assert!(ys.iter().all(|y| (0.0..height).contains(y)), "{ys:?}");
            let of_labels: String = labels.iter().map(|text| format!("<text {text}")).collect();
            let mut ys = numbers(&of_labels, "text", "y");
            ys.sort_by(f64::total_cmp);
            // Places are written to a tenth of a pixel.
            let apart = |pair: &[f64]| pair[1] - pair[0] > layout.line() - 0.2;
            assert!(ys.len() == 30 && ys.windows(2).all(apart), "{ys:?}");
            let xs = numbers(&svg, "text", "x");
            assert!(xs.iter().all(|x| (0.0..layout.width).contains(x)), "{xs:?}");
        }
        let places = spread(&[50.0, 50.0, 51.0, 0.0, 99.0], 10.0, (0.0, 100.0));
        assert_eq!(places, [50.0, 60.0, 70.0, 5.0, 99.0]);
        assert_eq!(spread(&[9.0, 9.0], 5.0, (0.0, 10.0)), [5.0, 10.0]);
        assert_eq!(cut("partition-tick", |text| text.chars().count() <= 6), "parti…");
    }

    #[test]
    fn the_ring_of_the_worst_is_thick_among_others() {
        let mut figure = figure(1);
        let mark = |x: f64, number: usize| Mark { x, y: 0.5, number };
        figure.panels[0].marks = vec![mark(0.5, 1), mark(0.501, 2), mark(0.502, 3)];
        let svg = figure.svg(&WIDE, "f", true);
        let rings: Vec<&str> = svg.split("<circle ").skip(1).collect();
        let thick: Vec<bool> =
            rings.iter().map(|ring| ring.split('>').next().unwrap().contains("-width")).collect();
        assert_eq!(thick, [true, false, false]);
    }

    #[test]
    fn labels_of_lines_that_end_early_and_equally_high_fan_out_in_order() {
        let ends = [Some((30.0, 50.0)), Some((10.0, 51.0)), Some((20.0, 49.0)), Some((90.0, 50.0))];
        assert_eq!(heights(&ends, 0.0, 90.0, 10.0), [60.0, 40.0, 50.0, 50.0]);
        assert_eq!(heights(&[None], 7.0, 90.0, 10.0), [7.0]);
    }

    #[test]
    fn the_limit_has_a_line_of_its_own_along_either_axis() {
        let mut figure = figure(1);
        let double = |svg: &str| svg.matches(PAGE).count();
        assert_eq!(double(&figure.svg(&WIDE, "f", true)), 1);
        let rule = Rule { place: 1.0, is_upright: true, name: "limit 500 us".into() };
        figure.panels[0].rule = Some(rule);
        for layout in [WIDE, NARROW] {
            let svg = figure.svg(&layout, "f", true);
            let label = svg.split("<text ").find(|text| text.contains("limit 500 us")).unwrap();
            let x = numbers(&format!("<text {label}"), "text", "x")[0];
            assert!(double(&svg) == 1 && x > 0.0 && x + 80.0 < layout.width, "{svg}");
        }
        figure.panels[0].rule = None;
        assert_eq!(double(&figure.svg(&WIDE, "f", true)), 0);
    }

    #[test]
    fn text_that_looks_like_markup_is_escaped() {
        let html = figure(2).html("f");
        assert!(!html.contains("<partition") && !html.contains("<title> &"), "{html}");
        assert!(html.contains("a &lt;title&gt; &amp; more"), "{html}");
    }
}
