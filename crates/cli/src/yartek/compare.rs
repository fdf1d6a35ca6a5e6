// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek compare`: a board against the simulator.

use super::drawn::{self, Drawn, MOST_DRAWN};
use super::guest::{self, Set, show};
use super::project::Project;
use super::{board_help, board_of};
use crate::analyze::files::{print_json, tasks, write};
use crate::duration::duration;
use crate::exit::{DIFFERENT, UNEXPECTED, USAGE, failure};
use crate::output::svg_file;
use anyhow::Result;
use asmp_analysis::{Late, Task, TimeBase};
use asmp_yartek::{Application, Board, Comparison, Order, Ran, Serial, Trace, expect};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task set in TOML or CSV, or a directory
    ///
    /// `asmp help analysis` describes the file. Sporadic tasks come as often as they may. A
    /// directory has one task set, *.toml; the application in it does not run: each task keeps the
    /// CPU for its cost. Example: asmp yartek compare robot.toml --board mcf5208evb
    #[arg(value_name = "tasks.toml|DIR")]
    file: PathBuf,
    /// The board [default: the one that the file names]
    #[arg(long, value_name = "NAME", long_help = board_help("the one that the file names"))]
    board: Option<String>,
    /// Time of the board
    ///
    /// A number with its unit: ns, us, ms, s, min or h. Jobs that begin before are compared.
    /// Example: --for 12s
    #[arg(long = "for", value_name = "TIME", default_value = "12s", value_parser = duration)]
    time: Duration,
    /// Draw both schedules as an SVG: the simulator's, and below it the board's
    ///
    /// An SVG file. If it cannot be written, the old file stays as it was. Example: --gantt
    /// both.svg
    #[arg(long, value_name = "FILE", value_parser = svg_file())]
    gantt: Option<PathBuf>,
    /// Print JSON
    ///
    /// The object has `schema`, `board`, `jobs` (in the same order), `order` (`same`, `hangs`,
    /// `differs` or `ends`), `difference`, `early`, `over`, `latest` and `missed`. Example: asmp
    /// yartek compare robot.toml --board mps2-an385 --json
    #[arg(long)]
    json: bool,
}

/// What is compared: names, and how times are shown.
struct Sight<'a> {
    board: &'a Board,
    tasks: &'a [Task],
    /// Tasks are of `late = "skip"` or `"fault"`.
    drops: bool,
}

pub fn compare(args: &Args) -> Result<u8> {
    let project = Project::at(&args.file)?;
    let path = &project.tasks;
    let file = tasks(path)?;
    project.keep(&file.inputs, &[("--gantt", args.gantt.as_deref())])?;
    let board = board_of(&file, path, args.board.as_deref())?;
    let set = Set::of(&guest::spinning(&file), &board, path)?;
    let tasks = &set.tasks;
    let expected = expect(tasks, set.ticks(args.time), board.dispatch_milli_ticks(tasks.len()))
        .map_err(|stop| file.undecided(stop))?;
    if expected.jobs().is_empty() {
        let what = format!("{}: no job begins within --for", path.display());
        return Err(failure(USAGE, format!("{what}: give a longer time")));
    }
    let dir = tempfile::tempdir().map_err(|error| failure(UNEXPECTED, error.to_string()))?;
    let image = dir.path().join("image.elf");
    guest::build(&set, &board, Application::Spin, &image)?;
    let guest = guest::run(&image, &board, expected.until_ticks, tasks.len(), Serial::Nowhere)?;
    let found = expected.compare(tasks, &guest.trace);
    let drops = set.table.tasks.iter().any(|task| task.late != Late::Finish);
    let sight = Sight { board: &board, tasks, drops };
    if args.json {
        print_json(sight.json(&found), TimeBase::NANOSECONDS)?;
    } else {
        println!("{}", sight.text(&found));
    }
    let jobs = guest.trace.jobs.iter().take(expected.jobs().len());
    draw(args, &sight, expected.jobs().to_vec(), jobs.copied().collect())?;
    match guest.trouble {
        Some(trouble) => Err(guest::failed(&trouble)),
        None if found.is_equal() && found.missed == 0 => Ok(0),
        None => Ok(DIFFERENT),
    }
}

/// Writes the picture that was asked for.
fn draw(args: &Args, sight: &Sight, simulator: Vec<Ran>, guest: Vec<Ran>) -> Result<()> {
    let Some(path) = &args.gantt else { return Ok(()) };
    let of = |jobs| {
        let trace = Trace { jobs, ..Trace::default() };
        Drawn::of(sight.board, Some(sight.tasks), &trace, MOST_DRAWN, &args.file)
    };
    let title = format!("yartek on {}", sight.board.name);
    let both = [("simulator", &of(simulator)?), (&*title, &of(guest)?)];
    write(path, &drawn::svg(&both, args.time))
}

impl Sight<'_> {
    fn job(&self, task: usize, activation: u64) -> String {
        format!("{} (activation {activation})", self.tasks[task].name)
    }

    fn of(&self, ran: Ran) -> String {
        self.job(ran.task, ran.activation)
    }

    fn text(&self, found: &Comparison) -> String {
        let show = |ticks| show(self.board, ticks);
        let same = format!("{} jobs, same order", found.jobs);
        let missed = format!("{} deadlines missed", found.missed);
        let why = match found.order {
            Order::Differs { at, guest, simulator } => Some(format!(
                "job {at}: the board runs {}, the simulator {}",
                self.of(guest),
                self.of(simulator)
            )),
            Order::Hangs { at, guest, simulator, by_ticks } => Some(format!(
                "job {at} hangs on the kernel's own time: the board runs {}, which started {} \
                 after the simulator had chosen {}: either order is right",
                self.of(guest),
                show(by_ticks),
                self.of(simulator)
            )),
            Order::Ends { at, simulator } => {
                Some(format!("job {at}: the board no longer runs {}", self.of(simulator)))
            }
            Order::Same => None,
        };
        let why = why.or_else(|| {
            let (ran, by_ticks) = found.early?;
            let (job, by) = (self.of(ran), show(by_ticks));
            Some(format!("{job} began {by} before the simulator's"))
        });
        let why = why.or_else(|| {
            let over = found.over?;
            let (late, bound) = (show(over.late_ticks), show(over.bound_ticks));
            let job = self.job(over.task, over.activation);
            Some(format!("{job} began {late} after the simulator's, over its bound of {bound}"))
        });
        if let Some(why) = why {
            let of_late = match self.drops {
                true => "\nthe simulator plays no late = \"skip\" or \"fault\": it drops no job",
                false => "",
            };
            return format!("different after {same}, {missed}\n{why}{of_late}");
        }
        let latest = found.latest.map_or(String::new(), |latest| {
            let (late, bound) = (show(latest.late_ticks), show(latest.bound_ticks));
            format!(", latest {late} after the simulator's start (bound {bound})")
        });
        format!("{same}{latest}, {missed}")
    }

    fn json(&self, found: &Comparison) -> Value {
        let ns = |ticks| self.board.rate().ns_up(ticks);
        let job = |ran: Ran| {
            json!({
                "task": self.tasks[ran.task].name, "activation": ran.activation,
                "start_ns": ns(ran.start_ticks), "begun_ns": ns(ran.begun_ticks),
                "end_ns": ns(ran.end_ticks),
            })
        };
        let lateness = |late: asmp_yartek::Lateness| {
            json!({
                "task": self.tasks[late.task].name, "activation": late.activation,
                "late_ns": ns(late.late_ticks), "bound_ns": ns(late.bound_ticks),
            })
        };
        let (order, difference) = match found.order {
            Order::Same => ("same", Value::Null),
            Order::Hangs { at, guest, simulator, by_ticks } => (
                "hangs",
                json!({
                    "job": at, "board": job(guest), "simulator": job(simulator),
                    "by_ns": ns(by_ticks),
                }),
            ),
            Order::Differs { at, guest, simulator } => {
                ("differs", json!({ "job": at, "board": job(guest), "simulator": job(simulator) }))
            }
            Order::Ends { at, simulator } => {
                ("ends", json!({ "job": at, "board": null, "simulator": job(simulator) }))
            }
        };
        json!({
            "board": self.board.name, "jobs": found.jobs, "order": order,
            "difference": difference,
            "early": found.early.map(|(ran, by_ticks)| {
                json!({ "board": job(ran), "by_ns": ns(by_ticks) })
            }),
            "over": found.over.map(lateness), "latest": found.latest.map(lateness),
            "missed": found.missed,
        })
    }
}
