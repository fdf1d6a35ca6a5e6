// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of a random set, compiled by this machine's compiler, says what the set says. Sets
//! that no board can run are refused in a line.

use asmp_analysis::file::{from_toml, no_measurement};
use asmp_analysis::simulate::Random;
use asmp_analysis::{Arrival, Late, Workload};
use asmp_yartek::{Clock, Rate, Refusal, Table};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Sets of the round trip; a compiler starts for each.
const SETS: u64 = 25;

/// Prints the table that it is linked with, one value a line.
const READER: &str = r#"
#include "yartek.h"
#include <inttypes.h>
#include <stdio.h>
extern const char yk_banner[];
void yk_spin(const struct yk_job *job) { (void)job; puts("yk_spin"); }
int main(void)
{
	const struct yk_table *table = &yk_table;
	puts(yk_banner);
	printf("%" PRIu32 " %" PRIu32 "\n", table->tasks_count, table->lines_count);
	for (uint32_t n = 0; n < table->tasks_count; n++) {
		const struct yk_task_def *def = &table->task_defs[n];
		def->run(0);
		printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %d\n", def->period,
		       def->offset, def->deadline, def->budget, def->most, (int)def->late,
		       def->arrivals != 0);
		/* All that it points to is there, and each has its own. */
		table->tasks[n].start = n;
		for (uint32_t other = 0; def->arrivals && other < n; other++)
			if (table->task_defs[other].arrivals == def->arrivals)
				puts("shared arrivals");
		if (def->arrivals)
			def->arrivals->came = n;
	}
	for (uint32_t n = 0; n < table->lines_count; n++) {
		table->line_defs[n].service(n);
		printf("%" PRIu32 "\n", table->line_defs[n].most);
		table->lines[n].raised = n;
	}
	return 0;
}
"#;

fn pit() -> Rate {
    Rate::new(83_333_333, 64).expect("above 0")
}

fn of(text: &str) -> Workload {
    from_toml(text, &no_measurement).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn random_set(seed: u64) -> String {
    let random = &mut Random::new(seed);
    let mut text = String::new();
    for at in 0..=random.up_to(31) {
        let period = (1 + random.up_to(40)) * 100;
        let cost = 1 + random.up_to(5);
        let name = ["t*/", "t\\\\", "t\u{e9}??/", "t"][random.up_to(3) as usize];
        let _ = writeln!(text, "[[task]]\nname = \"{name}{at}\"\ncost = '{cost} ms'");
        let is_sporadic = random.up_to(3) == 0;
        let _ =
            writeln!(text, "{} = '{period} ms'", if is_sporadic { "sporadic" } else { "period" });
        if random.up_to(1) == 0 {
            let _ = writeln!(text, "deadline = '{} ms'", (1 + random.up_to(50)) * 100);
        }
        if !is_sporadic && random.up_to(1) == 0 {
            let _ = writeln!(text, "offset = '{} ms'", random.up_to(30) * 100);
        }
        if random.up_to(1) == 0 {
            let _ = writeln!(text, "entry = 'do_{at}'");
        }
        if random.up_to(2) == 0 {
            let _ = writeln!(text, "most = '{} us'", cost * 1000 + random.up_to(999));
        }
        let late = ["finish", "skip", "fault"][random.up_to(2) as usize];
        let _ = writeln!(text, "late = '{late}'");
    }
    for at in 0..random.up_to(3) {
        let _ = writeln!(text, "[[interrupt]]\nname = 'i{at}'\nservice = '1 ms'\ngap = '3 ms'");
        if random.up_to(1) == 0 {
            let _ = writeln!(text, "most = {}", 1 + random.up_to(u64::from(u32::MAX) - 1));
        }
        if random.up_to(1) == 0 {
            let _ = writeln!(text, "entry = 'serve_{at}'");
        }
    }
    text
}

/// What the reader must print, from the set alone.
fn expected(workload: &Workload) -> String {
    let (_, times) = Clock::of(&workload.tasks, workload.time, pit()).expect("a clock");
    let mut text = format!("yartek: {} tasks, np-edf: schedulable\n", times.len());
    let _ = writeln!(text, "{} {}", times.len(), workload.interrupts.len());
    for (task, times) in workload.tasks.iter().zip(times) {
        let _ = writeln!(text, "{}", task.entry.as_deref().unwrap_or("yk_spin"));
        // Up to the next tick of 64 / 83333333 s.
        let most = task
            .most_ticks
            .map_or(0, |ns| (u128::from(ns) * 83_333_333).div_ceil(64 * 1_000_000_000));
        let late = [Late::Finish, Late::Skip, Late::Fault].iter().position(|one| *one == task.late);
        let _ = writeln!(
            text,
            "{} {} {} {} {most} {} {}",
            times.period_ticks,
            times.offset_ticks,
            times.deadline_ticks,
            times.cost_ticks,
            late.expect("one of three"),
            u8::from(task.arrival == Arrival::Sporadic)
        );
    }
    for (number, line) in workload.interrupts.iter().enumerate() {
        if let Some(entry) = &line.entry {
            let _ = writeln!(text, "{entry} {number}");
        }
        let _ = writeln!(text, "{}", line.most.unwrap_or(0));
    }
    text
}

/// Entries that print their names.
fn application(workload: &Workload) -> String {
    let mut text = "#include \"yartek.h\"\n#include <stdio.h>\n".to_owned();
    for entry in workload.tasks.iter().filter_map(|task| task.entry.as_ref()) {
        let _ = writeln!(text, "void {entry}(const struct yk_job *job);");
        let _ = writeln!(
            text,
            "void {entry}(const struct yk_job *job) {{ (void)job; puts(\"{entry}\"); }}"
        );
    }
    for entry in workload.interrupts.iter().filter_map(|line| line.entry.as_ref()) {
        let _ = writeln!(text, "void {entry}(uint32_t raises);");
        let body = format!("printf(\"{entry} %u\\n\", (unsigned)raises);");
        let _ = writeln!(text, "void {entry}(uint32_t raises) {{ {body} }}");
    }
    text
}

fn compiler() -> Option<String> {
    let name = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let is_there = Command::new(&name).arg("--version").output().is_ok();
    assert!(is_there || std::env::var_os("ASMP_CI").is_none(), "no {name} here");
    is_there.then_some(name)
}

/// Compiles table, reader and application, and gives what the reader prints.
fn read_back(compiler: &str, dir: &Path, table: &str, workload: &Workload) -> String {
    let parts = [("table.c", table), ("reader.c", READER), ("app.c", &application(workload))];
    for (name, text) in parts {
        std::fs::write(dir.join(name), text).expect("written");
    }
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../yartek/include");
    let program = dir.join("reader");
    let output = Command::new(compiler)
        .args(["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-I"])
        .arg(include)
        .args(parts.map(|(name, _)| dir.join(name)))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a compiler");
    assert!(output.status.success(), "{}\n{table}", String::from_utf8_lossy(&output.stderr));
    let printed = Command::new(program).output().expect("a reader");
    String::from_utf8(printed.stdout).expect("text")
}

#[test]
fn a_table_that_is_read_back_says_what_the_set_says() {
    let Some(compiler) = compiler() else {
        println!("skipped: tables read back: no C compiler here");
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    for seed in 0..SETS {
        let workload = of(&random_set(seed));
        let table = Table::of(&workload, pit()).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let source = table.source(Some("np-edf: schedulable"));
        let found = read_back(&compiler, dir.path(), &source, &workload);
        assert_eq!(found, expected(&workload), "seed {seed}:\n{source}");
    }
}

const TASK: &str = "[[task]]\nname = 'a'\ncost = '1 ms'\nperiod = '10 ms'\n";
const LINE: &str = "[[interrupt]]\nname = 'i'\nservice = '1 ms'\n";

fn refused(text: &str) -> String {
    let refusal = Table::of(&of(text), pit()).expect_err("a refusal").to_string();
    assert!(!refusal.contains('\n'), "{refusal}");
    refusal
}

#[test]
fn what_a_board_cannot_run_is_refused_with_its_cure() {
    let other = TASK.replace("'a'", "'b'");
    for (text, says) in [
        (format!("{TASK}jitter = '1 ms'\n"), "task a: jitter: a board releases each job at its"),
        (format!("{TASK}core = 1\n{other}core = 2\n"), "task b is on another core than task a"),
        (
            format!("{TASK}entry = 'go'\n{other}entry = 'go'\n"),
            "task a and task b both have the entry go: write a function for each",
        ),
        (
            format!("{TASK}entry = 'go'\n{LINE}most = 1\nentry = 'go'\n"),
            "task a and interrupt i both have the entry go",
        ),
        (
            format!("{TASK}{other}[[chain]]\nname = 'c'\ntasks = ['a', 'b']\ndeadline = '1 s'\n"),
            "chain c: on a board no task releases another",
        ),
        (
            format!("{TASK}offset = '1 us'\n"),
            "the offset of a (1 us) would be one tick of 768 ns, and the clock would be wrong by",
        ),
    ] {
        let said = refused(&text);
        assert!(said.starts_with(says), "{text}: {said}");
    }
    for entry in ["yk_run", "YK_X", "_start", "main", "uint32_t", "INT8_C", "bool", "SIZE_MAX"] {
        let said = refused(&format!("{TASK}entry = '{entry}'\n"));
        assert!(
            said.starts_with(&format!("task a: entry: C or the kernel has {entry} for")),
            "{said}"
        );
    }
    assert!(Table::of(&of(&format!("{TASK}entry = 'internal'\n")), pit()).is_ok());
}

#[test]
fn no_more_tasks_and_lines_than_a_board_has_bits_for() {
    let tasks = |count: usize| -> String {
        (0..count).map(|at| TASK.replace("'a'", &format!("'t{at}'"))).collect()
    };
    assert_eq!(Table::of(&of(&tasks(32)), pit()).expect("32 fit").tasks.len(), 32);
    assert!(refused(&tasks(33)).starts_with("33 tasks, and a board runs 32 at most"));
    let lines = |count: usize| format!("{TASK}{}", format!("{LINE}most = 1\n").repeat(count));
    assert_eq!(Table::of(&of(&lines(32)), pit()).expect("32 fit").lines.len(), 32);
    assert!(refused(&lines(33)).starts_with("33 interrupts, and a board serves 32 at most"));
}

/// The reader of files refuses it, too: this is for other callers.
#[test]
fn an_interrupt_with_neither_gap_nor_most_is_refused() {
    let mut workload = of(&format!("{TASK}{LINE}most = 1\n"));
    workload.interrupts[0].most = None;
    let refusal = Table::of(&workload, pit()).expect_err("nothing limits it");
    assert_eq!(refusal, Refusal::NoLimit { interrupt: "i".to_owned() });
}
