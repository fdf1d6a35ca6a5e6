// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line. Parsing touches nothing; clap's own errors exit with 2.

mod measure;
mod shape;

use crate::duration::{counting_time, duration};
use crate::examples;
use asmp_host::{CpuSpec, Schedule};
use asmp_shield::Mode;
use clap::{ArgGroup, Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use measure::{MOST_SAMPLES, Measure, Series, TimeSource, Unit};
pub use shape::Shape;

/// Turn CPUs of a running Linux machine into hard-real-time partitions
///
/// A partition is a set of CPUs, IRQ lines and tasks. The kernel keeps everything else off its
/// CPUs: other tasks, device interrupts, unbound kernel work and, where the boot allows it, the
/// timer tick. asmp makes a partition on an unmodified kernel, reads back every setting it writes,
/// and restores each original value afterwards. Changing partitions needs root; looking does not.
#[derive(Debug, Parser)]
#[command(name = "asmp", version, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = examples::CPUS)]
#[command(after_long_help = examples::ASMP)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(flatten)]
    Change(Change),
    /// Run a command in a new partition; remove the partition when the command ends
    ///
    /// Makes a partition, starts COMMAND in it, passes signals to it, and restores every setting
    /// when it ends. All children and threads of the command start inside the partition. The exit
    /// status is the command's, or 128 + N if signal N killed it. A signal before the start ends
    /// the run: every setting is restored and no command starts. Signals that were ignored at start
    /// (nohup) stay ignored. A user who is not root gets what asmp-policy(5) grants, from asmpd.
    ///
    /// A busy real-time thread keeps the rest of its program off a single CPU: such a program may
    /// neither start all its threads nor end. Give it a second CPU, or --kill-after.
    #[command(after_long_help = examples::RUN)]
    Run(Run),
    /// Run a command in an existing partition
    ///
    /// Enters partition NAME, sets the policy, and executes COMMAND in place of asmp. The partition
    /// stays when the command ends.
    #[command(after_long_help = examples::EXEC)]
    Exec(Exec),
    Class(crate::class::Args),
    /// Show the steps of a change without making it
    ///
    /// Prints each file that the change would write, with its old value, its new value and the
    /// reason. Also prints what this boot does not allow. Changes nothing and needs no root; it
    /// then names what only root may read.
    #[command(after_long_help = examples::PLAN, mut_subcommands = examples::of_plan)]
    Plan {
        /// Print the plan as JSON
        ///
        /// The object has `schema`, `kernel`, `chosen` (CPUs chosen for --count), `steps`,
        /// `cannot`, `affected`, `left_out` and `unreadable` (files that only root may read). Each
        /// step has its old and new value and the reason.
        /// Example: asmp plan --json create motion --cpus 3
        #[arg(long, global = true)]
        json: bool,
        #[command(subcommand)]
        change: Planned,
    },
    /// Show partitions as the kernel reports them now, and every violation
    ///
    /// Reads every setting back. `violated:` names a promise that no longer holds, with its cure.
    /// `stays:` names what the kernel keeps on these CPUs and lets no program move, and what cannot
    /// be checked. Exit code 7 if anything is violated.
    #[command(after_long_help = examples::STATUS, visible_alias = "list")]
    Status(crate::status::Args),
    #[command(after_long_help = examples::EVENTS)]
    Events(crate::events::Args),
    #[command(after_long_help = examples::TOP)]
    Top(crate::top::Args),
    #[command(after_long_help = examples::WEB)]
    Web(crate::web::Args),
    /// Count what disturbs CPUs: ticks, interrupts, IPIs, softirqs, foreign tasks
    ///
    /// Counts what the kernel does on a partition's CPUs while time passes. Tasks of the partition
    /// are not counted. A partition that holds shows zeros.
    ///
    /// A shared partition shows more: foreign tasks compute on its CPUs, and are counted. Lines
    /// below the table say how often these tasks entered the kernel there, and how often they left
    /// the CPUs while in it. A foreign task that may run on these CPUs alone is named: its system
    /// calls run there, and are in neither count.
    #[command(after_long_help = examples::NOISE, override_usage = examples::NOISE_USAGE)]
    Noise(Noise),
    /// Check the machine: supported features and remaining noise sources, each with a fix
    ///
    /// Each line is `ok`, `MISSING`, `optional` or `n/a`. `MISSING` means that partitions are
    /// impossible without it; the exit code is then 7. `optional` makes partitions quieter.
    #[command(after_long_help = examples::CHECK)]
    Check {
        /// Print the findings and all facts about the machine as JSON
        ///
        /// The object has `schema`, `kernel`, `items` and `facts`. Example: asmp check --json
        #[arg(long)]
        json: bool,
    },
    /// Measure latency and overhead; report and compare runs; convert other tools' formats
    ///
    /// The experiments run a probe on one CPU, under a load, inside and outside a partition. Each
    /// run is a directory with its samples and a record of how they were measured.
    #[command(subcommand, after_long_help = examples::MEASURE)]
    Measure(Measure),
    /// Test by computation whether a task set meets its deadlines
    ///
    /// Reads a file of tasks, computes worst response times, and changes nothing on the machine.
    /// The exit code is the verdict: see `asmp help exit-codes`.
    #[command(after_long_help = examples::ANALYZE)]
    Analyze(Analyze),
    /// Simulate a task set: response times, missed deadlines, charts
    ///
    /// The simulation is deterministic: the same file, options and seed give the same bytes. It
    /// finds missed deadlines; it does not prove that there are none. The exit code says whether
    /// one was missed: see `asmp help exit-codes`.
    #[command(after_long_help = examples::SIMULATE)]
    Simulate(crate::simulate::Args),
    /// Run task sets on microcontroller boards, by the schedule that was proved
    ///
    /// Yartek is a kernel for microcontrollers. It runs jobs by non-preemptive EDF, exactly as
    /// `asmp analyze` proves and `asmp simulate` plays them. Its boards run in QEMU.
    #[command(subcommand, after_long_help = examples::YARTEK)]
    Yartek(crate::yartek::Yartek),
    /// Show or write the boot parameters that let CPUs stop their tick
    ///
    /// The tick of a CPU can stop only if the kernel booted with `nohz_full=` for that CPU. These
    /// commands show the parameters of this boot and write them to /etc/default/grub.d/asmp.cfg.
    #[command(after_long_help = examples::BOOT)]
    Boot {
        #[command(subcommand)]
        action: Boot,
    },
    /// Print help for a command or a topic
    ///
    /// Without an argument, prints what `asmp --help` prints. `asmp help topics` lists the topics.
    #[command(after_long_help = examples::HELP)]
    Help {
        /// A command and its subcommands, or a topic
        ///
        /// Examples: asmp help create; asmp help measure latency; asmp help exit-codes
        #[arg(value_name = "COMMAND|TOPIC")]
        words: Vec<String>,
    },
    /// Print a manual page as roff, or write all of them
    ///
    /// The pages of commands come from the definitions that parse the command line.
    #[command(after_long_help = examples::MAN)]
    Man {
        /// Page to print: asmp, asmp.7, asmp-partitions, or a command such as create
        ///
        /// The name is that of the page, with or without `asmp-` and with or without its section.
        /// Example: asmp man asmp-measure-latency.8 | man -l -
        #[arg(default_value = "asmp.8")]
        name: String,
        /// Write every page into this directory
        ///
        /// The directory is made if it does not exist; a page that is there already is replaced.
        /// Example: asmp man --all /usr/local/share/man
        #[arg(long, value_name = "DIR", conflicts_with = "name")]
        all: Option<PathBuf>,
    },
    /// Print a shell completion script
    ///
    /// Write the script to the directory that your shell reads completions from.
    #[command(after_long_help = examples::COMPLETIONS)]
    Completions {
        /// The shell that reads the script
        ///
        /// Example: asmp completions bash > /etc/bash_completion.d/asmp
        shell: clap_complete::Shell,
    },
    /// Keep one CPU busy, to see what disturbs it
    #[command(hide = true, name = "spin")]
    Spin {
        milliseconds: u64,
    },
    /// Keep the caches of one CPU dirty, for the load cache
    #[command(hide = true, name = "flood")]
    Flood {
        bytes: usize,
    },
}

/// What changes partitions and can be planned.
#[derive(Debug, Clone, Subcommand)]
pub enum Change {
    /// Make a partition that stays until it is destroyed
    ///
    /// Takes CPUs away from the system and keeps everything else off them. The partition ends with
    /// `asmp destroy`, `asmp restore` or a reboot.
    #[command(after_long_help = examples::CREATE)]
    Create(Create),
    /// End a partition and restore every setting
    ///
    /// Tasks and IRQ lines return to where they came from. If a task switched to a real-time policy
    /// inside, the command refuses with exit code 39.
    #[command(after_long_help = examples::DESTROY)]
    Destroy {
        /// The partition to end
        ///
        /// `asmp status` lists the names. Example: asmp destroy motion
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// End every partition
        ///
        /// Example: asmp destroy --all
        #[arg(long, conflicts_with = "name")]
        all: bool,
        /// Demote tasks that became real-time inside to SCHED_OTHER
        ///
        /// A busy real-time task would starve system CPUs, so it never leaves a partition as it
        /// is. Example: asmp destroy motion --force
        #[arg(long)]
        force: bool,
    },
    /// Move tasks or IRQ lines into a partition
    ///
    /// Tasks keep their policy. `asmp remove` and `asmp destroy` move them back to the cgroup they
    /// came from.
    #[command(after_long_help = examples::ADD)]
    Add {
        #[command(flatten)]
        members: Members,
        /// Move a task even if systemd then ends its scope
        ///
        /// The scope of a container or a session ends when its last process has left. Without
        /// this option such a task is refused with exit code 46. Example: asmp add motion --pid
        /// 4711 --force
        #[arg(long)]
        force: bool,
    },
    /// Move tasks or IRQ lines out of a partition
    ///
    /// Tasks return to the cgroup they came from; lines return to their former CPUs. If a task
    /// switched to a real-time policy inside, the command refuses with exit code 39.
    #[command(after_long_help = examples::REMOVE)]
    Remove {
        #[command(flatten)]
        members: Members,
        /// Demote tasks that became real-time inside to SCHED_OTHER
        ///
        /// A busy real-time task would starve system CPUs, so it never leaves a partition as it
        /// is. Example: asmp remove motion --pid 4711 --force
        #[arg(long)]
        force: bool,
    },
    /// Move tasks or IRQ lines from one partition to another
    ///
    /// Tasks keep their policy. When they leave the second partition, they return to where they
    /// were before the first.
    #[command(after_long_help = examples::MOVE)]
    Move {
        #[command(flatten)]
        members: Members,
        /// The partition that they move to
        ///
        /// `asmp status` lists the names. Example: asmp move motion --pid 4711 --to audio
        #[arg(long, value_name = "NAME")]
        to: String,
    },
    /// Give a partition other CPUs while it runs
    ///
    /// Its tasks move to the new CPUs. The tick and SMT settings of the partition stay. What other
    /// programs changed in the partition is repaired first. If something still violates the
    /// partition, the change stays and the exit code is 7.
    #[command(after_long_help = examples::RESIZE)]
    Resize {
        /// The partition to resize
        ///
        /// `asmp status` lists the names. Example: asmp resize motion --cpus 2-3
        name: String,
        /// All CPUs that the partition has from now on
        ///
        /// A list (1-3,5; 2-N to the highest CPU), `last`, `last:2`, `all-but LIST` or a mask
        /// (0xe). Example: --cpus 2-3
        #[arg(long)]
        cpus: CpuSpec,
    },
    /// Change who may use the CPUs of a partition
    ///
    /// Its tasks keep running. `shared` loads the scheduler that guards shared CPUs, and confines
    /// other real-time tasks to system CPUs. The classes of tasks (`asmp class`) are lost once the
    /// last shared partition has ended or changed its mode.
    #[command(after_long_help = examples::MODE)]
    Mode {
        /// The partition
        ///
        /// `asmp status` lists the names. Example: asmp mode motion shared
        name: String,
        /// isolated, shared or best-effort
        ///
        /// `isolated`: its own tasks alone. `shared`: other tasks too, in user mode only, so that
        /// they delay real-time tasks less (exit code 57 if this machine cannot do that).
        /// The real-time tasks inside must sleep now and then: see `asmp help sharing`.
        /// `best-effort`: other tasks too, without that guarantee. Example: asmp mode motion
        /// isolated
        mode: Mode,
    },
    /// Change partitions to what a file declares
    ///
    /// All partitions that the file names change in one transaction. What other programs changed in
    /// them is repaired first. If something still violates one, the change stays and the exit code
    /// is 7. Other partitions are left alone. asmp-partitions(5) describes the file. At boot,
    /// asmp.service applies the files of /etc/asmp.
    #[command(after_long_help = examples::APPLY)]
    Apply {
        /// The file, in TOML, or a directory: all its files *.toml together
        ///
        /// Unknown keys are refused with exit code 40. Example: asmp apply partitions.toml
        file: PathBuf,
        /// Print the plan and change nothing
        ///
        /// Example: asmp apply partitions.toml --dry-run
        #[arg(long)]
        dry_run: bool,
        /// Try so long while a CPU, device or line is missing, or another asmp has the lock
        ///
        /// Example: asmp apply /etc/asmp --wait 30s
        #[arg(long, value_parser = duration, value_name = "TIME", conflicts_with = "dry_run")]
        wait: Option<Duration>,
    },
    /// Re-apply settings that have drifted, such as an IRQ line that irqbalance moved back
    ///
    /// Reads every setting of the partitions and writes those that differ from what was promised.
    /// Also moves unbound kernel threads off shielded CPUs.
    #[command(after_long_help = examples::REPAIR)]
    Repair {
        /// A partition that must exist
        ///
        /// If there is none of this name, nothing is done, with exit code 32. Otherwise all
        /// partitions are repaired, not only this one. Example: asmp repair motion
        name: Option<String>,
    },
    /// Restore the machine to its state before asmp changed it
    ///
    /// Ends every partition and writes every original value back. Use it after a crash of asmp too:
    /// it first undoes the change that the crash interrupted. Real-time tasks of partitions become
    /// SCHED_OTHER. Partitions whose state was lost with /run/asmp are ended too. Their tasks go to
    /// the root group, and settings that asmp may have changed are listed (exit code 45).
    #[command(after_long_help = examples::RESTORE)]
    Restore {
        /// Give up what cannot be given back, and a state that cannot be read
        ///
        /// A change that was killed is undone before anything else. If the kernel refuses a step of
        /// that for good, no other change can begin. An original value that cannot be written back
        /// (its CPU is offline) is kept and tried again. This option names such steps and values,
        /// gives them up and restores the rest; the exit code is then 6. It also gives up originals
        /// that were lost with /run/asmp, and sets a state or journal aside that cannot be read:
        /// then it ends the partitions by the marks on their groups. Example: asmp restore
        /// --abandon
        #[arg(long)]
        abandon: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum Planned {
    #[command(flatten)]
    Change(Change),
    /// Show what `asmp run` would change
    ///
    /// Starts no command. The name of the partition is shown as run-PID.
    #[command(after_long_help = examples::PLAN_RUN)]
    Run(Run),
}

#[derive(Debug, Clone, Args)]
pub struct Create {
    /// Name of the new partition
    ///
    /// 1 to 64 letters, digits, '-' or '_', beginning with a letter or digit.
    /// Example: asmp create motion --cpus 2-3
    pub name: String,
    #[command(flatten)]
    pub shape: Shape,
}

#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("members").required(true).multiple(true)
    .args(["pids", "tids", "irqs"]))]
pub struct Members {
    /// The partition
    ///
    /// `asmp status` lists the names. Example: motion
    pub name: String,
    /// A process with all its threads; repeatable
    ///
    /// The number of any thread of the process will do. Example: --pid 4711
    #[arg(long = "pid", value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pids: Vec<i32>,
    /// A single thread; repeatable
    ///
    /// The other threads of its process stay where they are. Example: --tid 4713
    #[arg(long = "tid", value_name = "TID", value_parser = clap::value_parser!(i32).range(1..))]
    pub tids: Vec<i32>,
    /// An IRQ line, by number or handler name; repeatable
    ///
    /// Names are those of /proc/interrupts; a name stands for all lines that have it.
    /// Example: --irq eth1
    #[arg(long = "irq", value_name = "NAME|N")]
    pub irqs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub shape: Shape,
    /// Name of the partition [default: run-PID]
    ///
    /// A program that enters a partition by name needs it. A user who is not root gives a name
    /// that begins with "run-". Example: --name motion
    #[arg(long)]
    pub name: Option<String>,
    /// Scheduling policy of the command
    ///
    /// fifo:N or rr:N (N is 1 to 99), deadline:RUNTIME/DEADLINE/PERIOD, other, batch or idle. If
    /// the kernel refuses the policy, the command does not start and the exit code is 42.
    /// Examples: --policy fifo:80; --policy deadline:500us/2ms/10ms
    #[arg(long, default_value = "other")]
    pub policy: Schedule,
    /// Kill the command if it takes longer than this to end
    ///
    /// The time runs from the first SIGTERM, SIGINT, SIGHUP or SIGQUIT. A busy real-time thread
    /// can keep the rest of its program off a single CPU, so that it never ends by itself. Without
    /// this option only a second SIGTERM kills it. Example: --kill-after 5s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub kill_after: Option<Duration>,
    /// The command and its arguments, after `--`
    ///
    /// Example: asmp run --cpus 3 -- ./app --verbose
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Exec {
    /// The partition to enter
    ///
    /// `asmp status` lists the names. Example: asmp exec motion -- ./tool
    pub name: String,
    /// Scheduling policy of the command
    ///
    /// fifo:N or rr:N (N is 1 to 99), deadline:RUNTIME/DEADLINE/PERIOD, other, batch or idle. If
    /// the kernel refuses the policy, the command does not start and the exit code is 42. Example:
    /// --policy rr:10
    #[arg(long, default_value = "other")]
    pub policy: Schedule,
    /// The command and its arguments, after `--`
    ///
    /// Example: asmp exec motion -- ./tool --once
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Noise {
    /// Count on the CPUs of this partition
    ///
    /// Give either NAME or --cpus. Example: asmp noise motion -t 10s
    #[arg(required_unless_present = "cpus")]
    pub name: Option<String>,
    /// Count on these CPUs
    ///
    /// A list (1-3,5), `all`, `last`, `last:2`, `all-but LIST` or a mask (0xe). They need not be
    /// in a partition. Example: asmp noise --cpus 3 -t 5s
    #[arg(long, conflicts_with = "name")]
    pub cpus: Option<CpuSpec>,
    /// How long to count
    ///
    /// On a terminal, without --table, a table is refreshed every second with the counts since the
    /// beginning. ^C ends the count, and what was counted is printed. A unit is required. Example:
    /// -t 10s
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = counting_time)]
    pub time: Duration,
    /// Print the counts as JSON, the default if the output is no terminal
    ///
    /// A count that could not be taken is `null`. `mode` is the mode of partition NAME, and
    /// `shared` has `entered`, `left` and `bound`: how often foreign tasks entered the kernel on
    /// shared CPUs, how often they left these while in it, and which may run there alone.
    /// `schema` is 3. Example: asmp noise motion --json
    #[arg(long)]
    pub json: bool,
    /// Print one table of the whole time
    ///
    /// Example: asmp noise motion -t 10s --table > noise.txt
    #[arg(long, conflicts_with = "json")]
    pub table: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Analyze {
    #[command(flatten)]
    pub set: crate::analyze::Args,
    #[command(subcommand)]
    pub what: Option<AnalyzeWhat>,
}

#[derive(Debug, Subcommand)]
pub enum AnalyzeWhat {
    /// Compute the longest cost each task may have under non-preemptive EDF
    ///
    /// Budgets by Proposition 1 of Yartek, beside the room that the exact test leaves. The exit
    /// code is that of the exact test.
    #[command(after_long_help = examples::ANALYZE_BUDGETS)]
    Budgets(crate::analyze::budgets::Args),
    /// Place tasks on CPUs
    ///
    /// A heuristic: if it finds no place, that proves no impossibility, and the verdict is
    /// "unknown".
    #[command(after_long_help = examples::ANALYZE_PLACE)]
    Place(crate::analyze::place::Args),
    /// Analyse a data-flow graph: firings, deadlock, buffer sizes, a schedule
    ///
    /// All numbers follow from the rates of the edges; no time is involved.
    #[command(after_long_help = examples::ANALYZE_GRAPH)]
    Graph(crate::graph::Args),
}

#[derive(Debug, Subcommand)]
pub enum Boot {
    /// Show the parameters of this boot and the drop-in
    ///
    /// Changes nothing and needs no root.
    #[command(after_long_help = examples::BOOT_SHOW)]
    Show,
    /// Write the drop-in for candidate CPUs
    ///
    /// Prints and writes /etc/default/grub.d/asmp.cfg with nohz_full= and rcu_nocbs=. Then run
    /// update-grub and reboot. No other file is written.
    #[command(after_long_help = examples::BOOT_ENABLE)]
    Enable {
        /// Candidate CPUs: those whose tick can stop after the next boot
        ///
        /// Not CPU 0, which keeps time for the others. Example: --cpus 1-3
        #[arg(long)]
        cpus: CpuSpec,
        /// Print the drop-in and write nothing
        ///
        /// Example: asmp boot enable --cpus 1-3 --dry-run
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove the drop-in
    ///
    /// Then run update-grub; the next boot has no candidates.
    #[command(after_long_help = examples::BOOT_DISABLE)]
    Disable,
}
