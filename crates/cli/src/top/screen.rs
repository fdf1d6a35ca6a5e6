// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `asmp top` shows, and how it is laid out.

use super::look::{Look, Rates, Seen, rates};
use asmp_host::Cpu;
use asmp_host::clock::utc;
use asmp_host::shown::{cut, shown};
use asmp_measure::compare::us;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use std::collections::{BTreeMap, VecDeque};

/// Looks whose sums are drawn, and seconds of latencies.
pub const MOST_KEPT: usize = 30;

const HEAD: [&str; 9] =
    ["PARTITION", "CPU", "TICK/s", "DEVICE/s", "IPI/s", "SOFTIRQ/s", "LAST", "TASKS", "STATE"];

/// The last look, what came before it, and which partition is chosen.
pub struct Screen {
    now: Look,
    rates: BTreeMap<Cpu, Rates>,
    sums: BTreeMap<Cpu, VecDeque<f64>>,
    /// Its name: partitions come and go.
    chosen: Option<String>,
}

impl Screen {
    pub fn new(now: Look) -> Self {
        Self { now, rates: BTreeMap::new(), sums: BTreeMap::new(), chosen: None }
    }

    /// A later look.
    pub fn next(&mut self, next: Look) {
        self.rates = rates(&self.now, &next);
        self.sums.retain(|cpu, _| self.rates.contains_key(cpu));
        for (cpu, rates) in &self.rates {
            let sums = self.sums.entry(*cpu).or_default();
            sums.push_back(rates.sum());
            if sums.len() > MOST_KEPT {
                sums.pop_front();
            }
        }
        self.now = next;
    }

    pub fn partitions(&self) -> &[Seen] {
        &self.now.partitions
    }

    /// Of no partition.
    pub fn violations(&self) -> &[String] {
        &self.now.violations
    }

    fn place(&self) -> usize {
        let chosen = self.chosen.as_ref();
        let place = |name: &String| self.now.partitions.iter().position(|one| one.name == *name);
        chosen.and_then(place).unwrap_or(0)
    }

    /// Who holds the partitions, in words.
    pub fn held(&self) -> &str {
        &self.now.held
    }

    /// Chooses the next partition, or the one before.
    pub fn select(&mut self, by: isize) {
        let last = self.now.partitions.len().saturating_sub(1);
        let place = self.place().saturating_add_signed(by).min(last);
        self.chosen = self.now.partitions.get(place).map(|one| one.name.clone());
    }

    /// The table with its head: a row for each CPU.
    pub fn rows(&self) -> Vec<[String; 9]> {
        let mut rows = vec![HEAD.map(str::to_owned)];
        for partition in &self.now.partitions {
            for (number, cpu) in partition.cpus.iter().enumerate() {
                let first = |text: String| if number == 0 { text } else { String::new() };
                let rate = |of: fn(&Rates) -> f64| {
                    self.rates.get(&cpu).map_or_else(|| "-".to_owned(), |rates| a_second(of(rates)))
                };
                let sums = self.sums.get(&cpu);
                rows.push([
                    first(partition.name.clone()),
                    cpu.to_string(),
                    rate(|rates| rates.ticks),
                    rate(|rates| rates.devices),
                    rate(|rates| rates.ipis),
                    rate(|rates| rates.softirqs),
                    sums.map(bars).unwrap_or_default(),
                    first((partition.tasks.len() + partition.more_tasks).to_string()),
                    first(state_of(partition, self.now.blind)),
                ]);
            }
        }
        rows
    }

    pub fn draw(&self, frame: &mut Frame) {
        let rows = self.rows();
        let below = self.details();
        let violations = violated(&self.now.violations);
        let [head, of_none, table, details, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(violations.len() as u16),
            Constraint::Length(rows.len() as u16 + 1),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let count = self.now.partitions.len();
        let partitions = if count == 1 { "partition" } else { "partitions" };
        let (time, held) = (utc(self.now.at_s), shown(&self.now.held));
        let title = format!("{time} UTC   {count} {partitions}   {held}");
        frame.render_widget(Paragraph::new(title).style(bold()), head);
        frame.render_widget(Paragraph::new(violations), of_none);
        self.draw_table(frame, table, &rows);
        frame.render_widget(Paragraph::new(below), details);
        frame.render_widget(Paragraph::new("q ends   arrows choose a partition"), foot);
    }

    fn draw_table(&self, frame: &mut Frame, area: Rect, rows: &[[String; 9]]) {
        let width = |column: usize| {
            rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0) as u16
        };
        let widths: Vec<Constraint> =
            (0..9).map(|column| Constraint::Length(width(column))).collect();
        let chosen = self.now.partitions.get(self.place()).map(|one| one.name.as_str());
        let row = |cells: &[String; 9]| {
            let cells_of: Vec<Cell> = cells.iter().map(|cell| Cell::from(cell.clone())).collect();
            let style = match chosen == Some(cells[0].as_str()) {
                true => Style::new().add_modifier(Modifier::REVERSED),
                false => Style::new(),
            };
            Row::new(cells_of).style(style)
        };
        let head = rows.first().map(row).unwrap_or_default().style(bold());
        let body = rows.iter().skip(1).map(row);
        frame.render_widget(Table::new(body, widths).header(head).column_spacing(2), area);
    }

    /// Of the chosen partition: who made it, what violates it, and its tasks.
    fn details(&self) -> Text<'_> {
        let Some(partition) = self.now.partitions.get(self.place()) else {
            return Text::from("there are no partitions: `asmp create` makes one");
        };
        let mut lines = vec![Line::styled(
            format!("{}: made by {}", partition.name, shown(&partition.created_by)),
            bold(),
        )];
        lines.extend(violated(&partition.violations));
        lines.extend(latency(&partition.worst_ns).map(Line::from));
        let task = |one: &super::look::Inside| {
            let command = shown(&one.command).into_owned();
            Line::from(format!("{:>8}  {:<12}  {}", one.tid, one.policy, cut(&command, 40)))
        };
        lines.extend(partition.tasks.iter().map(task));
        if partition.more_tasks > 0 {
            lines.push(Line::from(format!("and {} more", partition.more_tasks)));
        }
        Text::from(lines)
    }
}

fn violated(violations: &[String]) -> Vec<Line<'static>> {
    let line = |what: &String| Line::from(format!("violated: {}", shown(what)));
    violations.iter().map(line).collect()
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn state_of(partition: &Seen, blind: bool) -> String {
    match partition.violations.len() {
        0 if blind => "unknown".to_owned(),
        0 if partition.unchecked => "not checked".to_owned(),
        0 => "holds".to_owned(),
        1 => "1 violation".to_owned(),
        count => format!("{count} violations"),
    }
}

/// The worst latency of the last seconds and that of each of them; `None` where none is measured.
pub fn latency(worst_ns: &[u64]) -> Option<String> {
    let worst = us(*worst_ns.iter().max()?);
    let seconds = worst_ns.len();
    let bars = bars(&worst_ns.iter().map(|ns| *ns as f64).collect());
    Some(format!("latency: worst {worst} us in {seconds} s  {bars}"))
}

/// 0 only where nothing came.
fn a_second(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

/// A bar for each sum, the highest for the largest; a space where nothing came.
fn bars(sums: &VecDeque<f64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = sums.iter().copied().fold(0.0, f64::max);
    let bar = |sum: &f64| match *sum > 0.0 {
        true => BARS[((sum / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
        false => ' ',
    };
    sums.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::look::Inside;
    use asmp_daemon::counts::Came;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn partition(name: &str, cpus: &str, violations: &[&str]) -> Seen {
        let app = |tid| Inside {
            tid,
            process: 7,
            command: format!("app\n{tid}"),
            policy: "fifo:80".into(),
        };
        Seen {
            name: name.into(),
            cpus: cpus.parse().unwrap(),
            created_by: "root: asmp create".into(),
            tasks: vec![app(7), app(8)],
            violations: violations.iter().map(|one| (*one).to_owned()).collect(),
            ..Seen::default()
        }
    }

    /// A look at `seconds` seconds, after so many ticks on CPU 2 and half of them on CPU 3.
    fn look(seconds: u64, ticks: u64) -> Look {
        let tick = |cpu, count| Came { cpu, kind: "tick", name: String::new(), count };
        Look {
            at_ns: seconds * 1_000_000_000,
            at_s: 1_000_000_000 + seconds,
            partitions: vec![
                partition("motion", "2-3", &[]),
                partition("audio", "1", &["IRQ 24 is on CPU 1"]),
            ],
            came: vec![tick(1, 0), tick(2, ticks), tick(3, ticks / 2)],
            held: "held by asmpd: 2 repaired".into(),
            blind: false,
            violations: Vec::new(),
        }
    }

    fn drawn(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let lines: Vec<String> = terminal
            .backend()
            .buffer()
            .content()
            .chunks(width.into())
            .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>())
            .collect();
        lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_guarantee_that_this_user_may_not_see_does_not_hold() {
        let unseen = Seen { unchecked: true, ..partition("motion", "2-3", &[]) };
        assert_eq!(state_of(&unseen, false), "not checked");
        assert_eq!(state_of(&Seen { unchecked: false, ..unseen.clone() }, false), "holds");
        let broken = Seen { violations: vec!["IRQ 24 is on CPU 1".into()], ..unseen };
        assert_eq!(state_of(&broken, false), "1 violation");
    }

    #[test]
    fn the_screen_has_each_cpu_and_the_tasks_of_the_chosen_partition() {
        let mut screen = Screen::new(look(0, 0));
        screen.next(look(1, 500));
        screen.next(look(2, 504));
        let text = drawn(&screen, 90, 14);
        let expected = "\
2001-09-09 01:46:42 UTC   2 partitions   held by asmpd: 2 repaired
PARTITION  CPU  TICK/s  DEVICE/s  IPI/s  SOFTIRQ/s  LAST  TASKS  STATE
motion     2    4.0     0         0      0          █▁    2      holds
           3    2.0     0         0      0          █▁
audio      1    0       0         0      0                2      1 violation

motion: made by root: asmp create
       7  fifo:80       app\\n7
       8  fifo:80       app\\n8




q ends   arrows choose a partition";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn where_asmpd_cannot_look_no_partition_is_said_to_hold() {
        let screen = Screen::new(Look { blind: true, ..look(0, 0) });
        let rows = screen.rows();
        assert_eq!([&*rows[1][8], &*rows[3][8]], ["unknown", "1 violation"]);
    }

    #[test]
    fn arrows_choose_a_partition_and_stop_at_the_ends() {
        let mut screen = Screen::new(look(0, 0));
        screen.select(-1);
        assert!(drawn(&screen, 90, 14).contains("motion: made by"));
        screen.select(1);
        screen.select(1);
        let text = drawn(&screen, 90, 14);
        assert!(
            text.contains("audio: made by") && text.contains("violated: IRQ 24 is on"),
            "{text}"
        );
        // It stays chosen while others come and go, and where it is gone, the first is.
        let mut later = look(1, 0);
        later.partitions.remove(0);
        screen.next(later);
        assert!(drawn(&screen, 90, 14).contains("audio: made by"));
        screen.next(Look { partitions: vec![partition("b", "1", &[])], ..look(2, 0) });
        assert!(drawn(&screen, 90, 14).contains("b: made by"));
        screen.next(Look { partitions: Vec::new(), ..look(3, 0) });
        screen.select(1);
        assert!(drawn(&screen, 90, 14).contains("there are no partitions"));
    }

    #[test]
    fn the_worst_latency_of_each_second_is_drawn_where_it_is_measured() {
        let mut measured = look(0, 0);
        measured.partitions[0].worst_ns = vec![1_000, 41_216, 20_000];
        let text = drawn(&Screen::new(measured), 90, 14);
        assert!(text.contains("\nlatency: worst 41.2 us in 3 s  ▁█▄\n"), "{text}");
        assert!(!drawn(&Screen::new(look(0, 0)), 90, 14).contains("latency"));
    }

    #[test]
    fn what_is_violated_and_of_no_partition_is_above_all() {
        let mut violated = look(0, 0);
        violated.violations = vec!["a change was interrupted".into(), "/a has no state".into()];
        let text = drawn(&Screen::new(violated.clone()), 90, 14);
        let lines: Vec<&str> = text.lines().skip(1).take(3).collect();
        let expected = ["violated: a change was interrupted", "violated: /a has no state"];
        assert!(lines[..2] == expected && lines[2].starts_with("PARTITION"), "{text}");
        violated.partitions.clear();
        assert!(drawn(&Screen::new(violated), 90, 14).contains(expected[0]));
    }

    #[test]
    fn a_small_terminal_shows_what_fits() {
        let mut screen = Screen::new(look(0, 0));
        screen.next(look(1, 5));
        for (width, height) in [(1, 1), (20, 3), (79, 2), (400, 100)] {
            drawn(&screen, width, height);
        }
    }

    #[test]
    fn bars_are_as_high_as_their_share_of_the_largest() {
        assert_eq!(bars(&[0.0, 1.0, 50.0, 100.0].into()), " ▁▄█");
        assert_eq!(bars(&[0.0, 0.0].into()), "  ");
        assert_eq!(
            [a_second(0.0), a_second(0.04), a_second(9.94), a_second(250.4)],
            ["0", "0.0", "9.9", "250"]
        );
    }
}
