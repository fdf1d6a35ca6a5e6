// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The examples below each `--help`, and in section EXAMPLES of each manual page.
//!
//! A command line is indented by two spaces, what it does by six; `manual.rs` reads that form.

use clap::Command;
use clap::builder::StyledStr;

pub const CPUS: &str = "CPUs: 1-3,5 · last · last:2 · 2-N · all · \"all-but 0\" · 0xe    Topics: \
                        asmp help topics";

pub const ASMP: &str = "\
Examples:
  sudo asmp check
      Show what this machine supports.
  sudo asmp run --cpus 3 --policy fifo:80 -- ./app
      Run ./app alone on CPU 3 as a real-time task, and restore everything when it ends.
  sudo asmp create motion --cpus 2-3
      Make a partition that stays.
  sudo asmp noise motion -t 10s --table
      Count what disturbs it.

`asmp help topics` lists the topics: concepts, the partitions file, asmpd, the policy of users,
partitions as files, sharing, analysis, exit codes, environment and others.";

pub const RUN: &str = "\
Examples:
  sudo asmp run --cpus 3 -- ./app
      Run ./app alone on CPU 3.
  sudo asmp run --cpus 2-3 --irq eth1 --policy fifo:80 -- ./app --verbose
      Route the lines of eth1 to CPUs 2 and 3, and run ./app there as SCHED_FIFO 80.";

pub const EXEC: &str = "\
Examples:
  sudo asmp exec motion -- ./tool
      Run ./tool on the CPUs of partition motion.
  sudo asmp exec motion --policy rr:10 -- ./tool
      The same as SCHED_RR 10.";

pub const CLASS: &str = "\
Examples:
  sudo asmp class rt1:20 -- ./vision
      Run ./vision on the CPUs that partitions share, before other tasks.
  sudo asmp class rt1:30 --pid 4711
      Let process 4711 and its children go first.
  sudo asmp class --pid 4711
      Show the class of each of its threads.";

pub const PLAN: &str = "\
Examples:
  sudo asmp plan create motion --cpus 2-3
      Show what `asmp create` would write.
  sudo asmp plan --json destroy motion
      The steps of `asmp destroy` as JSON.";

pub const PLAN_RUN: &str = "\
Examples:
  sudo asmp plan run --cpus 3 -- ./app
      Show what `asmp run` would write before it starts ./app.";

/// A change as `asmp plan` shows it.
pub fn of_plan(change: Command) -> Command {
    if change.get_name() == "run" {
        return change;
    }
    let text = |text: Option<&StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    let about = text(change.get_about());
    let long = text(change.get_long_about());
    let examples = text(change.get_after_long_help());
    let mut lines: Vec<&str> = Vec::new();
    for line in examples.lines() {
        let command = line.strip_prefix("  sudo asmp ").or(line.strip_prefix("  asmp "));
        // Some are examples of `asmp plan` already.
        let command = command.map(|rest| rest.trim_start_matches("plan "));
        if let Some(command) = command.filter(|command| !lines.contains(command)) {
            lines.push(command);
        }
    }
    let example =
        |command: &&str| format!("  asmp plan {command}\n      Show what that would change.\n");
    let examples: String = lines.iter().map(example).collect();
    let examples = format!("Examples:\n{examples}");
    let name = change.get_name().to_owned();
    change
        .about(format!("Show what `asmp {name}` would change: {about}"))
        .long_about(format!(
            "Show what `asmp {name}` would change, and change nothing\n\nThe change: {long}"
        ))
        .after_long_help(examples)
}

pub const STATUS: &str = "\
Examples:
  asmp status
      Show all partitions.
  asmp status motion || sudo asmp repair motion
      Repair the partition if something violates it.";

pub const EVENTS: &str = "\
Examples:
  asmp events
      Show the last events, the oldest first.
  asmp events --follow --json
      Print each event as it comes, for another program.";

pub const TOP: &str = "\
Examples:
  asmp top
      Show the partitions until q is pressed.
  asmp top --once --every 10s
      Count for ten seconds and print a table.";

pub const WEB: &str = "\
Examples:
  sudo asmp web
      Print the address of a page that shows and changes partitions.
  asmp web --reports .
      Only look, also at the pages in this directory.";

/// clap's own shows no --cpus.
pub const NOISE_USAGE: &str = "\
asmp noise [OPTIONS] <NAME>
       asmp noise [OPTIONS] --cpus <LIST>";

pub const NOISE: &str = "\
Examples:
  sudo asmp noise motion -t 10s --table
      Count for 10 seconds on the CPUs of partition motion.
  sudo asmp noise --cpus 3 --json
      Count for a second on CPU 3, whether or not it is in a partition.";

pub const CHECK: &str = "\
Examples:
  sudo asmp check
      Show what this machine supports and what still makes noise.
  asmp check --json
      The same as JSON, with all facts about the machine.";

pub const MEASURE: &str = "\
Examples:
  sudo asmp measure latency --load mixed
      Measure wake-up latency under load, for every kind of task.
  asmp measure report before -o page.html
      Draw the figures of earlier runs.";

pub const ANALYZE: &str = "\
Examples:
  asmp analyze tasks.toml
      Try every policy, one line each.
  asmp analyze tasks.toml --policy np-edf
      Show response times and the tightest task under one policy.";

pub const SIMULATE: &str = "\
Examples:
  asmp simulate tasks.toml --policy edf --for 10s --seed 7
      Simulate ten seconds with random offsets.
  asmp simulate tasks.toml --policy np-edf --offsets worst --gantt worst.svg
      Draw the worst schedule.";

pub const YARTEK_RUN: &str = "\
Examples:
  asmp yartek run robot.toml --board mps2-an385 --for 2s
      Run two seconds of the board's time.
  asmp yartek run robot.toml --board mcf5208evb --trace robot.json --gantt robot.svg
      Write what ran for Perfetto, and draw it.
  asmp yartek run yartek/app/shell --serial pty --for 5min
      Run an application for five minutes, with its serial line at a pseudoterminal.
  asmp yartek run motor --for 1s
      Run a project: its task set with its application.";

pub const YARTEK_COMPARE: &str = "\
Examples:
  asmp yartek compare robot.toml --board mcf5208evb --for 12s
      Compare twelve seconds of the board's time with the simulator.
  asmp yartek compare robot.toml --board mcf5208evb --for 1s --gantt both.svg
      Draw the simulator's schedule, and below it the board's.
  asmp yartek compare robot.toml --board mps2-an385 --json
      Print jobs, order, lateness and misses as JSON.";

pub const YARTEK_MAP: &str = "\
Examples:
  asmp yartek map tcp:5555 -o map.svg
      Draw the map of a robot that runs with --serial tcp:5555.
  asmp yartek map printed.txt -o map.svg
      Draw the last map that a robot has printed.";

pub const YARTEK_PROGRAM: &str = "\
Examples:
  asmp yartek program count.c --image shell.elf --to tcp:5555
      Send it to the board that runs shell.elf with --serial tcp:5555, as the file count.
  asmp yartek program count.c --image shell.elf -o count.txt
      Write the lines of the shell that make the file, to be sent by a terminal program.";

pub const YARTEK_BENCH: &str = "\
Examples:
  asmp yartek bench --board mps2-an385
      Print the instructions that the kernel needs, beside the paper's cycles.
  asmp yartek bench --board mcf5208evb --json
      Print the same figures as JSON.";

pub const BOOT: &str = "\
Examples:
  asmp boot show
      Show the candidate CPUs of this boot.
  sudo asmp boot enable --cpus 1-3
      Make CPUs 1 to 3 candidates from the next boot on.";

pub const BOOT_SHOW: &str = "\
Examples:
  asmp boot show
      Show nohz_full= and rcu_nocbs= of this boot, and the drop-in.";

pub const BOOT_ENABLE: &str = "\
Examples:
  asmp boot enable --cpus 1-3 --dry-run
      Show the drop-in.
  sudo asmp boot enable --cpus 1-3
      Write it; then run update-grub and reboot.";

pub const BOOT_DISABLE: &str = "\
Examples:
  sudo asmp boot disable
      Remove the drop-in; then run update-grub.";

pub const HELP: &str = "\
Examples:
  asmp help topics
      List the topics.
  asmp help measure latency
      Print the help of a subcommand.";

pub const MAN: &str = "\
Examples:
  asmp man create | man -l -
      Read asmp-create(8).
  sudo asmp man --all /usr/local/share/man
      Write every page.";

pub const COMPLETIONS: &str = "\
Examples:
  asmp completions bash > /etc/bash_completion.d/asmp
      Install the completions for bash.";

pub const CREATE: &str = "\
Examples:
  sudo asmp create motion --cpus 2-3
      Shield CPUs 2 and 3.
  sudo asmp create motion --cpus last --irq eth1 --irq-priority 90
      Shield the last free CPU and route the lines of eth1 there.
  sudo asmp create motion --count 2 --near eth1 --whole-cores
      Let asmp choose two CPUs: whole cores near the network card.
  sudo asmp create motion --cpus 3 --tick require-off
      Make the partition only if its tick is proven to stop.";

pub const DESTROY: &str = "\
Examples:
  sudo asmp destroy motion
      End one partition.
  sudo asmp destroy --all --force
      End every partition; tasks that became real-time inside become SCHED_OTHER.";

pub const ADD: &str = "\
Examples:
  sudo asmp add motion --pid 4711
      Move process 4711 with all its threads into the partition.
  sudo asmp add motion --tid 4713 --irq eth1
      Move one thread and the lines of eth1.";

pub const REMOVE: &str = "\
Examples:
  sudo asmp remove motion --pid 4711
      Move process 4711 back to where it came from.
  sudo asmp remove motion --irq eth1
      Give the lines of eth1 back to the system.";

pub const MOVE: &str = "\
Examples:
  sudo asmp move motion --pid 4711 --to audio
      Move process 4711 from partition motion to partition audio.";

pub const RESIZE: &str = "\
Examples:
  sudo asmp resize motion --cpus 3
      Let the partition keep CPU 3 alone.";

pub const MODE: &str = "\
Examples:
  sudo asmp mode motion shared
      Let other tasks use the CPUs of the partition while they are in user mode.
  sudo asmp mode motion isolated
      Keep them off again.";

pub const APPLY: &str = "\
Examples:
  asmp plan apply partitions.toml
      Show what would change.
  sudo asmp apply partitions.toml
      Change it.
  sudo asmp apply /etc/asmp
      Change what the files of a directory say, as asmp.service does at boot.";

pub const REPAIR: &str = "\
Examples:
  sudo asmp repair
      Write every setting that has drifted.";

pub const RESTORE: &str = "\
Examples:
  sudo asmp restore
      End every partition and restore every setting.";

pub const MEASURE_LATENCY: &str = "\
Examples:
  sudo asmp measure latency --kinds normal,partition --load idle,mixed -o before
      Compare SCHED_OTHER with a partition, idle and under load.
  sudo asmp measure latency --kinds partition --explain 3
      Show the three worst samples with their causes.";

pub const MEASURE_SPACES: &str = "\
Examples:
  sudo asmp measure spaces
      Measure idle, under load, and with dirty caches.
  sudo asmp measure spaces --load idle --samples 300
      A short run on an idle machine.";

pub const MEASURE_OVERHEAD: &str = "\
Examples:
  sudo asmp measure overhead --load mixed
      Measure how much of a loop's time the system takes under load.
  sudo asmp measure overhead --iterations 40 --work 50ms
      A short run.";

pub const MEASURE_REPORT: &str = "\
Examples:
  asmp measure report before
      Print the tables.
  asmp measure report before after -o page.html
      Draw the figures of both on one page.";

pub const MEASURE_COMPARE: &str = "\
Examples:
  asmp measure compare before after
      Show what changed, and how sure that is.
  asmp measure compare on-6.12 on-7.2 --across kernel
      Compare the same runs on two kernels.
  asmp measure compare series --kinds normal,partition
      Compare two kinds of one series, by its rounds.";

pub const MEASURE_AB: &str = "\
Examples:
  sudo asmp measure ab --knob tick,irqs,dl-server --load mixed
      Find out which of three steps help under load.";

pub const MEASURE_EXPORT: &str = "\
Examples:
  asmp measure export before/mixed-partition --to cyclictest
      Print a run as a histogram of cyclictest.
  asmp measure export before --to json
      Print figures and histograms of all runs as one JSON document.
  asmp measure export before --to prometheus
      Print figures of all runs for Prometheus.";

pub const MEASURE_IMPORT: &str = "\
Examples:
  asmp measure import hist.txt --from cyclictest -o theirs --kernel 7.2.13 --kind partition
      Import a histogram that cyclictest printed.
  asmp measure import app.hlog --from hdr --unit us -o app --kernel 7.2.13 --kind partition
      Import each tag of a log of HdrHistogram, whose values are microseconds, as a run.";

pub const ANALYZE_BUDGETS: &str = "\
Examples:
  asmp analyze budgets tasks.toml
      Show the budget of each task and by how much it may grow.";

pub const ANALYZE_PLACE: &str = "\
Examples:
  asmp analyze place tasks.toml --cpus 1-3
      Place the tasks on CPUs 1 to 3, each on the first that takes it.
  asmp analyze place tasks.toml --cpus 1-3 --by bfd-partitioned
      Keep the tasks of one application together.";

pub const ANALYZE_GRAPH: &str = "\
Examples:
  asmp analyze graph flow.toml
      Show firings, buffer sizes and one schedule.
  asmp analyze graph flow.toml --svg flow.svg
      Draw the graph.";

pub const YARTEK: &str = "\
Examples:
  asmp yartek new motor --board mps2-an385
      Make a project that builds and runs.
  asmp yartek check robot.toml --board mcf5208evb
      Will it meet its deadlines on this board, kernel and interrupts included?
  asmp yartek compare robot.toml --board mcf5208evb
      Run the task set on the board in QEMU, and compare each job with the simulator's.
  asmp yartek build robot.toml --board mcf5208evb -o robot.elf
      Make an image of it.";

pub const YARTEK_NEW: &str = "\
Examples:
  asmp yartek new motor --board mps2-an385
      Make the directory motor with a project for this board.";

pub const YARTEK_CHECK: &str = "\
Examples:
  asmp yartek check robot.toml --board mcf5208evb
      Prove the set on this board.
  asmp yartek check motor
      Prove the set of a project, on the board that its file names.
  asmp yartek check robot.toml --json
      The same as JSON, on the board that the file names.";

pub const YARTEK_BUILD: &str = "\
Examples:
  asmp yartek build robot.toml --board mcf5208evb -o robot.elf
      Tasks without entry spin for their cost, so that any file runs.
  asmp yartek build motor
      Make the image of a project, motor/motor.elf.
  asmp yartek build robot.toml --app main.c --app sonar.c -o robot.elf
      With the functions that the file names as entries.
  asmp yartek build robot.toml --board mps2-an385 --table table.c
      Write the table alone.";
