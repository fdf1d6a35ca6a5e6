// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds for a board and runs it, where this machine has what that needs.

use asmp_analysis::Task;
use asmp_yartek::{Application, Machine, Output, ToolError, build, run};
use std::fmt::Write;
use std::time::Duration;

/// A guest that takes longer hangs.
const WALL: Duration = Duration::from_secs(240);

pub struct Board {
    pub name: &'static str,
    qemu: Vec<String>,
    compiler: String,
    flags: Vec<String>,
    ticks_per_us: f64,
}

pub struct Line {
    pub service: &'static str,
    pub most: u32,
}

const FILES: [(&str, &str); 2] = [
    ("mps2-an385", include_str!("../../../../yartek/port/mps2-an385/board.toml")),
    ("mcf5208evb", include_str!("../../../../yartek/port/mcf5208evb/board.toml")),
];

fn board((name, text): (&'static str, &str)) -> Board {
    let file: toml::Table = text.parse().expect("TOML");
    let words = |key: &str| {
        let words = file[key].as_array().expect("a list").iter();
        words.map(|word| word.as_str().expect("a word").to_owned()).collect()
    };
    let number = |key: &str| file[key].as_integer().expect("a number") as f64;
    Board {
        name,
        qemu: words("machine"),
        compiler: file["compiler"].as_str().expect("a text").to_owned(),
        flags: words("flags"),
        ticks_per_us: number("ticks_per_s_num") / number("ticks_per_s_den") / 1e6,
    }
}

/// Does it on each board that this machine has compiler and QEMU of.
pub fn each(test: impl Fn(&Board)) {
    for board in FILES.map(board) {
        match board.lacks() {
            None => test(&board),
            Some(why) if std::env::var_os("ASMP_CI").is_some() => panic!("{}: {why}", board.name),
            Some(why) => println!("skipped: {}: {why}", board.name),
        }
    }
}

impl Board {
    fn machine(&self) -> Machine<'_> {
        Machine { port: self.name, qemu: &self.qemu, compiler: &self.compiler, flags: &self.flags }
    }

    fn lacks(&self) -> Option<ToolError> {
        asmp_yartek::missing(&self.machine()).err()
    }

    fn ticks(&self, us: u64) -> u64 {
        (us as f64 * self.ticks_per_us).round() as u64
    }

    /// Of tasks with their entries and policies, times in microseconds.
    pub fn table(&self, tasks: &[(&str, Task, &str)], lines: &[Line]) -> String {
        let mut text = "#include \"yartek.h\"\n".to_owned();
        let mut line = |line: String| writeln!(text, "{line}").expect("a text grows");
        for (entry, _, _) in tasks.iter().filter(|(entry, _, _)| *entry != "yk_spin") {
            line(format!("void {entry}(const struct yk_job *job);"));
        }
        for Line { service, .. } in lines {
            line(format!("void {service}(uint32_t raises);"));
        }
        line("static const struct yk_task_def task_defs[] = {".to_owned());
        for (entry, task, late) in tasks {
            let [period, deadline, offset, budget] = [
                task.period_ticks,
                task.deadline_ticks,
                task.offset_ticks.unwrap_or(0),
                task.cost_ticks(),
            ]
            .map(|us| self.ticks(us));
            line(format!(
                "{{ .run = {entry}, .period = {period}, .deadline = {deadline}, .offset = {offset}, \
                 .budget = {budget}, .late = {late} }},"
            ));
        }
        line(format!("}};\nstatic struct yk_task tasks[{}];", tasks.len()));
        line("static const struct yk_line_def line_defs[] = {".to_owned());
        for Line { service, most } in lines {
            line(format!("{{ .service = {service}, .most = {most} }},"));
        }
        line(format!("}};\nstatic struct yk_line lines[{}];", lines.len()));
        line("const struct yk_table yk_table = { task_defs, tasks,".to_owned());
        line(format!("{}, line_defs, lines, {} }};", tasks.len(), lines.len()));
        text
    }

    /// Runs until so many microseconds after the epoch.
    pub fn run(&self, application: Application, table: &str, until_us: u64) -> Output {
        let dir = tempfile::tempdir().expect("a directory");
        let image = dir.path().join("image.elf");
        build(&self.machine(), application, table, &image).expect("an image");
        run(&self.qemu, &image, self.ticks(until_us), WALL).expect("a run")
    }
}
