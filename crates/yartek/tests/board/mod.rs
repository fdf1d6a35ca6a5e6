// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds for a board and runs it, where this machine has what that needs.

#![allow(dead_code, reason = "tests and the example each use a part")]

use asmp_analysis::{Task, TimeBase};
use asmp_yartek::{Application, Clock, Machine, Output, Serial, ToolError, build, missing, run};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A guest that takes longer hangs.
fn wall() -> Duration {
    let is_long = ["YARTEK_RAISES", "YARTEK_JOBS"].map(|name| std::env::var_os(name).is_some());
    Duration::from_secs(if is_long.contains(&true) { 3600 } else { 600 })
}

/// A board, with what tests ask of it.
pub struct Board(pub asmp_yartek::Board);

/// One of `yartek/test`.
pub fn c_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../yartek/test").join(name)
}

/// What a guest printed behind a name, in decimal.
pub fn number(output: &Output, name: &str) -> u64 {
    let mut lines = output.console.lines().filter_map(|line| line.strip_prefix(name));
    let number = lines.next().and_then(|rest| rest.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no number {name} in {}", output.console))
}

pub struct Line {
    pub service: &'static str,
    pub most: u32,
}

/// Does it on each board that this machine has compiler and QEMU of.
pub fn each(test: impl Fn(&Board)) {
    for board in asmp_yartek::Board::all() {
        match missing(&board.machine()) {
            Ok(()) => test(&Board(board)),
            Err(why) if std::env::var_os("ASMP_CI").is_some() => panic!("{}: {why}", board.name),
            Err(why) => println!("skipped: {}: {why}", board.name),
        }
    }
}

impl Board {
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A moment: so many microseconds after the epoch.
    pub fn ticks(&self, us: u64) -> u64 {
        self.0.rate().ticks_of_ps(us * 1_000_000)
    }

    /// Instructions that fit into so many ticks.
    pub fn instructions_up(&self, ticks: u64) -> u64 {
        let ns = self.0.rate().ns_up(ticks).expect("a short time");
        (ns * 1000).div_ceil(self.0.instruction_ps)
    }

    /// The same tasks in ticks of the board. Theirs are in microseconds.
    pub fn in_ticks(&self, tasks: &[Task]) -> Vec<Task> {
        let in_ns = |task: &Task| {
            let [cost, period, deadline, offset] = [
                task.cost_ticks(),
                task.period_ticks,
                task.deadline_ticks,
                task.offset_ticks.unwrap_or(0),
            ]
            .map(|us| us * 1000);
            Task::new(task.name.clone(), cost, period).deadline(deadline).offset(offset)
        };
        let tasks: Vec<Task> = tasks.iter().map(in_ns).collect();
        let clock = Clock::of(&tasks, TimeBase::NANOSECONDS, self.0.rate());
        let (_, times) = clock.expect("times that the board can count");
        let in_ticks = times.iter().zip(&tasks).map(|(times, task)| {
            Task::new(task.name.clone(), times.cost_ticks, times.period_ticks)
                .deadline(times.deadline_ticks)
                .offset(times.offset_ticks)
        });
        in_ticks.collect()
    }

    /// Of tasks with their entries and policies, times in microseconds.
    pub fn table(&self, tasks: &[(&str, Task, &str)], lines: &[Line]) -> String {
        let in_us: Vec<Task> = tasks.iter().map(|(_, task, _)| task.clone()).collect();
        let in_ticks = self.in_ticks(&in_us);
        let mut text = "#include \"yartek.h\"\n".to_owned();
        let mut line = |line: String| writeln!(text, "{line}").expect("a text grows");
        for (entry, _, _) in tasks.iter().filter(|(entry, _, _)| *entry != "yk_spin") {
            line(format!("void {entry}(const struct yk_job *job);"));
        }
        for Line { service, .. } in lines {
            line(format!("void {service}(uint32_t raises);"));
        }
        line("static const struct yk_task_def task_defs[] = {".to_owned());
        for ((entry, _, late), task) in tasks.iter().zip(in_ticks) {
            let (period, deadline) = (task.period_ticks, task.deadline_ticks);
            let (offset, budget) = (task.offset_ticks.unwrap_or(0), task.cost_ticks());
            line(format!(
                "{{ .run = {entry}, .period = {period}, .deadline = {deadline}, \
                 .offset = {offset}, .budget = {budget}, .late = {late} }},"
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

    /// Runs until so many ticks after the epoch.
    pub fn run(&self, application: Application, table: &str, until_ticks: u64) -> Output {
        self.run_with(&[], application, table, until_ticks)
    }

    /// The same, with more words for the compiler.
    pub fn run_with(
        &self,
        words: &[&str],
        application: Application,
        table: &str,
        until_ticks: u64,
    ) -> Output {
        let mut output = None;
        let machine = self.0.machine();
        let built = self.build(words, application, table, &mut |image| {
            let ran = run(&machine, image, until_ticks, wall(), Serial::Nowhere);
            output = Some(ran.expect("a run"));
        });
        built.expect("an image");
        output.expect("an image that was run")
    }

    /// Gives an image to `then`.
    pub fn build(
        &self,
        words: &[&str],
        application: Application,
        table: &str,
        then: &mut dyn FnMut(&Path),
    ) -> Result<(), ToolError> {
        let dir = tempfile::tempdir().expect("a directory");
        let image = dir.path().join("image.elf");
        let machine = self.0.machine();
        let words = words.iter().map(|word| (*word).to_owned());
        let flags: Vec<String> = machine.flags.iter().cloned().chain(words).collect();
        build(&Machine { flags: &flags, ..machine }, application, table, &image)?;
        then(&image);
        Ok(())
    }
}
