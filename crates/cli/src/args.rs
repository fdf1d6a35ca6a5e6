//! The command line. Parsing touches nothing; clap's own errors exit with 2.

use asmp_host::{CpuSpec, Schedule};
use asmp_measure::exchange::Format;
use asmp_measure::experiment::Factor;
use asmp_measure::load::Load;
use asmp_measure::run::Kind;
use asmp_shield::{Aspect, Smt, Tick};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Turns cores of a stock Linux machine into hard-real-time partitions at run time, proves that they
/// hold, and puts everything back.
#[derive(Debug, Parser)]
#[command(name = "asmp", version, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(
    after_help = "CPUs: 1-3,5 · last · last:2 · 2-N · all · \"all-but 0\" · 0xe        Exit codes: asmp(8)"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(flatten)]
    Change(Change),
    /// Run a command in a partition of its own and undo everything when it ends
    Run(Run),
    /// Run a command in an existing partition
    Exec(Exec),
    /// Print what a change would do: each file, old value, new value and reason
    Plan {
        /// As JSON
        #[arg(long, global = true)]
        json: bool,
        #[command(subcommand)]
        change: Planned,
    },
    /// What is shielded, read back from the kernel now, and what still violates it
    Status {
        name: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Count what disturbs CPUs: ticks, interrupts, IPIs, softirqs, foreign tasks, faults
    Noise(Noise),
    /// The doctor: what this machine can do, and each noise source that is still there with its cure
    Check {
        #[arg(long)]
        json: bool,
    },
    /// Measure latency and overhead as the papers do; reports, comparisons, other tools' formats
    #[command(subcommand)]
    Measure(Measure),
    /// Will it work, by computation alone: exit code 0 yes, 1 no, 2 wrong input, 3 unknown or does not apply
    Analyze(Analyze),
    /// Run a task set in the simulator: response times, misses, pictures; exit code 1 where a deadline is missed
    Simulate(crate::simulate::Args),
    /// Boot parameters of candidate CPUs, in a drop-in of their own
    Boot {
        #[command(subcommand)]
        action: Boot,
    },
    /// Print a shell completion script
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Print the manual page asmp(8) as roff
    #[command(hide = true)]
    Man,
    /// Keep one CPU busy, to see what disturbs it
    #[command(hide = true, name = "spin")]
    Spin { milliseconds: u64 },
    /// Keep the caches of one CPU dirty, for the load FLOOD
    #[command(hide = true, name = "flood")]
    Flood { bytes: usize },
}

/// What changes partitions and can be planned.
#[derive(Debug, Clone, Subcommand)]
pub enum Change {
    /// Make a partition; it stays until destroyed or rebooted
    Create(Create),
    /// End a partition: its tasks and IRQs go back, every setting is restored
    Destroy {
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// Every partition
        #[arg(long, conflicts_with = "name")]
        all: bool,
        /// Also where tasks became real-time inside: they leave as SCHED_OTHER
        #[arg(long)]
        force: bool,
    },
    /// Move tasks or IRQs into a partition
    Add(Members),
    /// Move tasks or IRQs out of a partition
    Remove {
        #[command(flatten)]
        members: Members,
        /// Also tasks that became real-time inside: they leave as SCHED_OTHER
        #[arg(long)]
        force: bool,
    },
    /// Move tasks or IRQs from one partition to another
    Move {
        #[command(flatten)]
        members: Members,
        /// The partition that takes them
        #[arg(long, value_name = "NAME")]
        to: String,
    },
    /// Give a partition other CPUs while it runs
    Resize {
        name: String,
        #[arg(long)]
        cpus: CpuSpec,
    },
    /// Make the partitions of a file what the file says; others are left alone
    Apply {
        file: PathBuf,
        /// Only print the plan
        #[arg(long)]
        dry_run: bool,
    },
    /// Set what drifted (an IRQ that came back, a setting somebody wrote) to what was promised
    Repair { name: Option<String> },
    /// Put the machine back to where it was before asmp touched it, also after a crash of asmp
    Restore,
}

#[derive(Debug, Subcommand)]
pub enum Planned {
    #[command(flatten)]
    Change(Change),
    /// Plan what `asmp run` would change
    Run(Run),
}

#[derive(Debug, Clone, Args)]
pub struct Shape {
    /// CPUs of the partition
    #[arg(long)]
    pub cpus: CpuSpec,
    /// An IRQ line that belongs to it, by number or handler name; may be repeated
    #[arg(long = "irq", value_name = "NAME|N")]
    pub irqs: Vec<String>,
    /// SCHED_FIFO priority of the named IRQs' handler threads (PREEMPT_RT, threadirqs)
    #[arg(long, value_name = "1..99", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub irq_priority: Option<u32>,
    /// The local timer tick: off (where this boot allows), keep, require-off (proven, or refused)
    #[arg(long, default_value = "off")]
    pub tick: Tick,
    /// SMT siblings of the CPUs: idle (taken out of use) or share (left to the system)
    #[arg(long, default_value = "idle")]
    pub smt: Smt,
    /// Anything that refuses to leave the CPUs is an error
    #[arg(long)]
    pub strict: bool,
    /// Steps to leave out: irqs, workqueues, watchdog, machine-checks, dl-server, governor, idle-states, timers
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    pub without: Vec<Aspect>,
}

#[derive(Debug, Clone, Args)]
pub struct Create {
    pub name: String,
    #[command(flatten)]
    pub shape: Shape,
}

#[derive(Debug, Clone, Args)]
pub struct Members {
    pub name: String,
    /// A process with all its threads; may be repeated
    #[arg(long = "pid", value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pids: Vec<i32>,
    /// One thread alone; may be repeated
    #[arg(long = "tid", value_name = "TID", value_parser = clap::value_parser!(i32).range(1..))]
    pub tids: Vec<i32>,
    /// An IRQ line by number or handler name; may be repeated
    #[arg(long = "irq", value_name = "NAME|N")]
    pub irqs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub shape: Shape,
    /// Name of the partition [default: run-PID]
    #[arg(long)]
    pub name: Option<String>,
    /// Scheduling policy of the command: fifo:80, rr:N, deadline:RUNTIME/DEADLINE/PERIOD, other
    #[arg(long, default_value = "other")]
    pub policy: Schedule,
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Exec {
    pub name: String,
    /// Scheduling policy of the command: fifo:80, rr:N, deadline:RUNTIME/DEADLINE/PERIOD, other
    #[arg(long, default_value = "other")]
    pub policy: Schedule,
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Noise {
    /// A partition; without it --cpus
    #[arg(required_unless_present = "cpus")]
    pub name: Option<String>,
    #[arg(long, conflicts_with = "name")]
    pub cpus: Option<CpuSpec>,
    /// Seconds to count; a terminal is refreshed every second
    #[arg(short = 't', long = "time", value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// As JSON (also where the output is no terminal)
    #[arg(long)]
    pub json: bool,
    /// As a table (also where the output is no terminal)
    #[arg(long, conflicts_with = "json")]
    pub table: bool,
}

#[derive(Debug, Subcommand)]
pub enum Measure {
    /// How long after its instant a task runs (ASMP-Linux section 6.3, ARTiS section 4)
    Latency {
        #[command(flatten)]
        series: Series,
        /// Samples of each kind and load
        #[arg(long, default_value = "10000", value_parser = clap::value_parser!(u64).range(1..))]
        samples: u64,
        /// From one instant to the next
        #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = duration)]
        period: Duration,
        /// Who takes the times [default: timerlat where the kernel has it, else nanosleep]
        #[arg(long, value_enum)]
        source: Option<TimeSource>,
        /// L4RTL's worst case: caches and TLB dirty before each event, which come every 2 to 30 ms at random
        #[arg(long, conflicts_with_all = ["period", "source"])]
        flood: bool,
    },
    /// What a separate address space costs: an event handled by a kernel thread and by a user thread (L4RTL section 4)
    #[command(mut_arg("kinds", |arg| arg.default_value("Rb")), mut_arg("loads", |arg| arg.default_value("IDL,MIX,FLOOD")))]
    Spaces {
        #[command(flatten)]
        series: Series,
        /// Samples of each handler, kind and load
        #[arg(long, default_value = "10000", value_parser = clap::value_parser!(u64).range(1..))]
        samples: u64,
        /// From one event to the next; no multiple of the tick's period, so that no phase of it is left out
        #[arg(long, value_name = "TIME", default_value = "2003us", value_parser = duration)]
        period: Duration,
    },
    /// How much longer than undisturbed a loop takes (ASMP-Linux section 6.2)
    Overhead {
        #[command(flatten)]
        series: Series,
        /// Turns of the loop
        #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u64).range(1..))]
        iterations: u64,
        /// How long an undisturbed turn takes
        #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
        work: Duration,
    },
    /// The papers' tables and figures of runs
    Report {
        #[arg(required = true, value_name = "DIR")]
        dirs: Vec<PathBuf>,
        /// An HTML page with all figures
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// The tables as JSON
        #[arg(long)]
        json: bool,
        /// The worst samples of each run with their causes
        #[arg(long, value_name = "N", default_value = "0")]
        explain: usize,
        /// Also runs of different kernels
        #[arg(long)]
        across_kernels: bool,
    },
    /// Two directories of runs, kind by kind, with the confidence of each difference
    Compare {
        a: PathBuf,
        b: PathBuf,
        #[arg(long)]
        json: bool,
        /// Also runs of different kernels
        #[arg(long)]
        across_kernels: bool,
    },
    /// Which step of the plan helped, by how much, and how sure: with and without it in turn
    Ab {
        #[command(flatten)]
        series: Series,
        /// tick, irqs, workqueues, watchdog, machine-checks, dl-server, governor, idle-states, timers
        #[arg(long = "knob", required = true, value_delimiter = ',', value_parser = factor)]
        knobs: Vec<Factor>,
        /// Samples of each turn
        #[arg(long, default_value = "2000", value_parser = clap::value_parser!(u64).range(100..))]
        samples: u64,
        /// Turns with and without, each; six agree by chance once in 32 times
        #[arg(long, default_value = "6", value_parser = clap::value_parser!(u32).range(1..=100))]
        rounds: u32,
        /// From one instant to the next
        #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = duration)]
        period: Duration,
    },
    /// Write runs in the format of another tool to standard output
    Export {
        dir: PathBuf,
        /// cyclictest, rtla, hdr, csv or prometheus
        #[arg(long, value_name = "FORMAT")]
        to: Format,
    },
    /// Make a run of another tool's histogram
    Import {
        file: PathBuf,
        /// cyclictest, rtla or hdr
        #[arg(long, value_name = "FORMAT")]
        from: Format,
        /// Directory for the runs, one a column
        #[arg(short, long, value_name = "DIR")]
        output: PathBuf,
        /// What it was measured on, as `uname -r` said; a run without provenance is not reported
        #[arg(long, value_name = "RELEASE")]
        kernel: String,
        /// Kind of task: N, Rw, Rb, Aon or Aoff
        #[arg(long)]
        kind: Kind,
        #[arg(long, default_value = "IDL")]
        load: Load,
    },
}

/// What latency and overhead have in common.
#[derive(Debug, Clone, Args)]
pub struct Series {
    /// N: SCHED_OTHER; Rw, Rb: SCHED_FIFO on the CPU of all, of no device interrupts; Aon, Aoff: in a
    /// partition with the tick kept, stopped
    #[arg(long, value_delimiter = ',', default_value = "N,Rw,Rb,Aon,Aoff")]
    pub kinds: Vec<Kind>,
    /// IDL, CPU, AIO, SIO, MIX, ARTIS; FLOOD: MIX, and on each CPU a program that keeps the caches dirty
    #[arg(long = "load", value_delimiter = ',', default_value = "IDL")]
    pub loads: Vec<Load>,
    /// Processes of a load for each CPU [default: 128 latency, 16 overhead; bounded by memory]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub load_factor: Option<u32>,
    /// CPU that is measured
    #[arg(long, default_value = "last")]
    pub cpu: CpuSpec,
    /// SCHED_FIFO priority of every kind but N
    #[arg(long, default_value = "80", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub priority: u32,
    /// Samples before the first that counts
    #[arg(long, default_value = "10")]
    pub warm_up: u64,
    /// Directory for the runs; must not exist [default: measure-SECONDS]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Do not record what the kernel does meanwhile: no counts, no causes, no cost of recording
    #[arg(long)]
    pub no_trace: bool,
    /// The worst N samples of each run with their causes
    #[arg(long, value_name = "N", default_value = "0")]
    pub explain: usize,
    /// No progress, only the tables
    #[arg(short, long)]
    pub quiet: bool,
}

/// What `ab` leaves out.
fn factor(text: &str) -> Result<Factor, String> {
    match text {
        "tick" => Ok(Factor::Tick),
        _ => match text.parse::<Aspect>() {
            Ok(_) => Ok(Factor::Setting(text.replace('_', "-"))),
            Err(error) => Err(format!("{error}, or tick")),
        },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TimeSource {
    Timerlat,
    Nanosleep,
}

/// `500us`, `1ms`, `2s`; a bare number is nanoseconds, as everywhere here.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: 500us, 1ms, 2s");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit_ns = match &text[digits..] {
        "" | "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let ns = number.checked_mul(unit_ns).filter(|ns| *ns > 0).ok_or_else(wrong)?;
    Ok(Duration::from_nanos(ns))
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
    /// How long each task may be under non-preemptive EDF (Proposition 1 of Yartek), and what room is left
    Budgets(crate::analyze::budgets::Args),
    /// Which task on which CPU
    Place(crate::analyze::place::Args),
    /// A data-flow graph: firings, deadlock, configuration granularity, memories, a schedule
    Graph(crate::graph::Args),
}

#[derive(Debug, Subcommand)]
pub enum Boot {
    /// What this boot and the drop-in say
    Show,
    /// Write the drop-in for these candidate CPUs (after showing it)
    Enable {
        #[arg(long)]
        cpus: CpuSpec,
        /// Only show it
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove the drop-in
    Disable,
}
