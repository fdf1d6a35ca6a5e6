// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of `asmp measure`.

use crate::duration::{period, run_time, time};
use crate::examples;
use asmp_host::CpuSpec;
use asmp_measure::exchange::Format;
use asmp_measure::experiment::Factor;
use asmp_measure::load::Load;
use asmp_measure::run::Kind;
use asmp_measure::settings::Setting;
use asmp_shield::Aspect;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// The most samples of a run: at a period of 100 us they take three years.
pub const MOST_SAMPLES: u64 = 1_000_000_000_000;

#[derive(Debug, Subcommand)]
pub enum Measure {
    /// Measure wake-up latency
    ///
    /// The probe sleeps until an instant, and the time from that instant until it runs is one
    /// sample (ASMP-Linux section 6.3, ARTiS section 4).
    #[command(after_long_help = examples::MEASURE_LATENCY)]
    Latency {
        #[command(flatten)]
        series: Series,
        /// Samples for each kind and load
        ///
        /// Example: --samples 100000
        #[arg(long, default_value = "10000")]
        #[arg(value_parser = clap::value_parser!(u64).range(1..=MOST_SAMPLES))]
        samples: u64,
        /// Time of each run, in place of --samples
        ///
        /// A number with its unit: ns, us, ms, s, m (min) or h. Missed instants count as well, so
        /// that a run ends when its time is over. Example: --for 10m
        #[arg(long = "for", value_name = "TIME", value_parser = run_time)]
        #[arg(conflicts_with_all = ["samples", "flood"])]
        time: Option<Duration>,
        /// Time between two wake-ups
        ///
        /// A number with its unit: ns, us, ms or s; or a rate, 1kHz. At most 24 h. At least 10 us,
        /// except for kind normal: a real-time task would keep the CPU. Example: --period 2ms
        #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = period)]
        period: Duration,
        /// Clock of the probe [default: timerlat if kernel and period allow it, else nanosleep]
        ///
        /// `timerlat` takes the times in the kernel, at periods of 100 us to 1 s in whole
        /// microseconds. `nanosleep` takes them in the probe. Example: --source nanosleep
        #[arg(long, value_enum)]
        source: Option<TimeSource>,
        /// Make caches and TLB dirty before each event
        ///
        /// The worst case of L4RTL. Events then come every 2 to 30 ms at random. Example: --flood
        #[arg(long, conflicts_with_all = ["period", "source"])]
        flood: bool,
        /// Count the instants that took longer than this
        ///
        /// A number with its unit: ns, us, ms or s. Example: --limit 100us
        #[arg(long, value_name = "TIME", value_parser = time)]
        limit: Option<Duration>,
        /// Print the ratios of ASMP-Linux, table 3, beside the same of the runs
        ///
        /// They compare kinds normal, fifo and partition. Example: --beside-paper
        #[arg(long)]
        beside_paper: bool,
    },
    /// Measure what a separate address space costs
    ///
    /// A kernel thread, then a user thread of the same priority, handles one event (L4RTL section
    /// 4). The difference of their latencies is the cost.
    #[command(after_long_help = examples::MEASURE_SPACES)]
    #[command(mut_arg("kinds", |arg| arg.default_value("fifo")))]
    #[command(mut_arg("loads", |arg| arg.default_value("idle,mixed,cache")))]
    Spaces {
        #[command(flatten)]
        series: Series,
        /// Samples for each handler, kind and load
        ///
        /// Example: --samples 2000
        #[arg(long, default_value = "10000")]
        #[arg(value_parser = clap::value_parser!(u64).range(1..=MOST_SAMPLES))]
        samples: u64,
        /// Time of each run, in place of --samples
        ///
        /// A number with its unit: ns, us, ms, s, m (min) or h. Missed instants count as well, so
        /// that a run ends when its time is over. Example: --for 10m
        #[arg(long = "for", value_name = "TIME", value_parser = run_time)]
        #[arg(conflicts_with = "samples")]
        time: Option<Duration>,
        /// Time between two events
        ///
        /// A number with its unit: ns, us, ms or s; or a rate, 1kHz. Choose no multiple of the
        /// tick's period, so that events meet every phase of the tick. Example: --period 2003us
        #[arg(long, value_name = "TIME", default_value = "2003us", value_parser = period)]
        period: Duration,
    },
    /// Measure how much longer a loop takes than undisturbed
    ///
    /// The excess is what interrupts, ticks and other tasks took (ASMP-Linux section 6.2).
    #[command(after_long_help = examples::MEASURE_OVERHEAD)]
    Overhead {
        #[command(flatten)]
        series: Series,
        /// Number of turns of the loop
        ///
        /// Example: --iterations 200
        #[arg(long, default_value = "1000")]
        #[arg(value_parser = clap::value_parser!(u64).range(1..=MOST_SAMPLES))]
        iterations: u64,
        /// Length of an undisturbed turn
        ///
        /// A number with its unit: ns, us, ms or s. Example: --work 50ms
        #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = time)]
        work: Duration,
    },
    /// Print tables of runs, and draw their figures
    ///
    /// Reads run directories; measures nothing. Any old run can be reported again.
    #[command(after_long_help = examples::MEASURE_REPORT)]
    Report {
        /// Directories of runs, or directories that hold such
        ///
        /// Example: asmp measure report before after
        #[arg(required = true, value_name = "DIR")]
        dirs: Vec<PathBuf>,
        /// Write an HTML page with all figures
        ///
        /// One file that needs no network. Example: -o page.html
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Print the tables as JSON
        ///
        /// Times are integers in nanoseconds. Example: asmp measure report before --json
        #[arg(long)]
        json: bool,
        /// Count the instants that took longer than this
        ///
        /// A number with its unit: ns, us, ms or s. Two numbers, `3..5`, where a bucket of the
        /// histogram reaches across the limit. Example: --limit 100us
        #[arg(long, value_name = "TIME", value_parser = time)]
        limit: Option<Duration>,
        /// Print the ratios of ASMP-Linux, table 3, beside the same of the runs
        ///
        /// They compare kinds normal, fifo and partition of one directory. Example: --beside-paper
        #[arg(long, conflicts_with = "json")]
        beside_paper: bool,
        /// Print the figures of samples alone, below those of all instants
        ///
        /// Other tools count no missed instants; with this their figures can be compared. A row
        /// without missed instants has the same figures for both. JSON always has them.
        /// Example: --samples-alone
        #[arg(long, conflicts_with = "json")]
        samples_alone: bool,
        /// Show the worst N samples of each run with their causes
        ///
        /// A cause is known only for runs that recorded the kernel's events. Example: --explain 3
        #[arg(long, value_name = "N", default_value = "0")]
        explain: usize,
        /// What runs may differ in, though a table compares them: kernel
        ///
        /// Without it runs of different kernels are refused with exit code 52. All other settings
        /// may differ, and the tables say so. Example: --across kernel
        #[arg(long, value_name = "WHAT")]
        across: Option<Across>,
    },
    /// Compare two directories of runs, with the confidence of each difference
    ///
    /// Prints B - A of the median, p99, p99.9 and the worst. Several runs of one kind and load in a
    /// directory are its rounds, also of series below it. A difference is "sure" by an exact test
    /// of ranks over rounds, at 5 % for all of them together; that takes five rounds or more on
    /// each side. Runs with different settings are refused with exit code 52.
    #[command(after_long_help = examples::MEASURE_COMPARE)]
    Compare {
        /// The first directory
        ///
        /// Example: asmp measure compare before after
        a: PathBuf,
        /// The second directory; with --kinds it may be left out
        ///
        /// Runs that the two have in common are compared, and those without a partner are named.
        /// Example: asmp measure compare before after
        #[arg(required_unless_present = "kinds")]
        b: Option<PathBuf>,
        /// Compare two kinds, of one directory or of two
        ///
        /// A has the runs of the first kind, B those of the second. Says which is better at what,
        /// and by what factor. Example: asmp measure compare series --kinds normal,partition
        #[arg(long, value_name = "KIND,KIND", value_parser = two_kinds)]
        kinds: Option<[Kind; 2]>,
        /// Print the differences as JSON
        ///
        /// The object has `schema`, `pairs` with times in nanoseconds, and `without_partner`. A
        /// pair names each figure that is not compared, with the reason (`not_compared`).
        /// Example: asmp measure compare before after --json
        #[arg(long)]
        json: bool,
        /// Settings in which the two may differ, separated by commas
        ///
        /// experiment, kind, load, column, step, source, work, load-size, load-disk, period, flood,
        /// priority, cpu, trace, memory-lock, cpu-latency, warm-up, shield, machine, kernel,
        /// version, completeness. step: what `ab` did or left out. work: the length of a turn of
        /// `overhead`. trace: whether the kernel's events were recorded. memory-lock, cpu-latency:
        /// whether memory was locked, and CPUs kept from deep idle states. shield: what was set
        /// for a kind, such as a governor. version: that of asmp. Example: --across kernel,machine
        #[arg(long, value_name = "WHAT", value_delimiter = ',')]
        across: Vec<Setting>,
    },
    /// Find out which steps of the plan help, and by how much
    ///
    /// Measures with and without each step, in turn. Rounds are compared as by `asmp measure
    /// compare`, all steps judged together at 5 %.
    #[command(after_long_help = examples::MEASURE_AB)]
    // It is measured in a partition, with the tick stopped where it can be.
    #[command(mut_arg("kinds", |arg| arg.default_value(None::<&'static str>).hide(true)))]
    #[command(mut_arg("explain", |arg| arg.hide(true)))]
    Ab {
        #[command(flatten)]
        series: Series,
        /// Steps to try, separated by commas
        ///
        /// tick, irqs, workqueues, watchdog, machine-checks, dl-server, governor, idle-states,
        /// timers. Example: --knob tick,irqs
        #[arg(long = "knob", required = true, value_delimiter = ',', value_parser = factor)]
        knobs: Vec<Factor>,
        /// Samples of each round
        ///
        /// Example: --samples 5000
        #[arg(long, default_value = "2000")]
        #[arg(value_parser = clap::value_parser!(u64).range(100..=MOST_SAMPLES))]
        samples: u64,
        /// Rounds with the step, and as many without
        ///
        /// One step takes 5 rounds to be sure of, nine steps 6. Example: --rounds 8
        #[arg(long, default_value = "6", value_parser = clap::value_parser!(u32).range(1..=100))]
        rounds: u32,
        /// Time between two wake-ups
        ///
        /// A number with its unit: ns, us, ms or s; or a rate, 1kHz. Example: --period 2ms
        #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = period)]
        period: Duration,
    },
    /// Print runs in the format of another tool
    ///
    /// Writes to standard output. csv, json and prometheus take a directory of several runs, the
    /// others one run. Histograms have all instants, the missed ones included; csv has the samples
    /// of runs that kept them (--samples-too). json has the figures and each bucket of a run.
    #[command(after_long_help = examples::MEASURE_EXPORT)]
    Export {
        /// Directory of the run
        ///
        /// Example: asmp measure export before/mixed-partition --to csv
        dir: PathBuf,
        /// Format: cyclictest, rtla, hdr, csv, json or prometheus
        ///
        /// Example: --to cyclictest
        #[arg(long, value_name = "FORMAT")]
        to: Format,
    },
    /// Import another tool's histogram as runs
    ///
    /// The runs can then be reported and compared like others. Those of a text without its last
    /// lines are marked as partial (exit code 54). A log of HdrHistogram has no end to look for.
    #[command(after_long_help = examples::MEASURE_IMPORT)]
    Import {
        /// Output of the other tool
        ///
        /// Example: asmp measure import hist.txt --from cyclictest -o theirs --kernel 7.2.13
        /// --kind partition
        file: PathBuf,
        /// Format of FILE: cyclictest, rtla or hdr
        ///
        /// hdr is a log of HdrHistogram (histograms V2) or its percentile text. Example:
        /// --from rtla
        #[arg(long, value_name = "FORMAT", value_parser = readable)]
        from: Format,
        /// Unit of the values of FILE
        ///
        /// Default: us for cyclictest and percentile texts, ns for logs. cyclictest -N counts by
        /// the ns. Output of rtla says its unit; where its line `# Time unit is` is missing, say
        /// it here. Example: --unit ns
        #[arg(long)]
        unit: Option<Unit>,
        /// Directory for the runs, one for each column
        ///
        /// Must not exist. Example: -o theirs
        #[arg(short, long, value_name = "DIR")]
        output: PathBuf,
        /// Kernel that it was measured on, as `uname -r` prints it
        ///
        /// Runs of different kernels are not compared. Example: --kernel 7.2.13
        #[arg(long, value_name = "RELEASE", value_parser = release)]
        kernel: String,
        /// Where the measured task ran: normal, fifo-irq, fifo, partition-tick, partition, shared
        /// or best-effort
        ///
        /// See --kinds of `asmp measure latency`. Example: --kind partition
        #[arg(long)]
        kind: Kind,
        /// Load that it was measured under
        ///
        /// idle, cpu, async-io, io, mixed, artis, cache or unknown. Example: --load mixed
        #[arg(long, default_value = "unknown", value_parser = imported_load)]
        load: Load,
    },
}

/// What latency and overhead have in common.
#[derive(Debug, Clone, Args)]
pub struct Series {
    /// Where the measured task runs: normal, fifo-irq, fifo, partition-tick, partition, shared,
    /// best-effort
    ///
    /// normal: SCHED_OTHER, on any CPU (by timerlat, on the measured one). fifo-irq: SCHED_FIFO, on
    /// the CPU that takes all device interrupts. fifo: SCHED_FIFO, on a CPU that takes none.
    /// partition-tick, partition: SCHED_FIFO in a partition, with the tick kept or stopped. shared,
    /// best-effort: SCHED_FIFO in a shared partition, whose CPU the load uses too (`asmp help
    /// mode`). The names of ASMP-Linux are read too: N, Rw, Rb, Aon, Aoff. Example: --kinds
    /// fifo,partition,shared
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "normal,fifo-irq,fifo,partition-tick,partition"
    )]
    pub kinds: Vec<Kind>,
    /// Load of the system meanwhile: idle, cpu, async-io, io, mixed, artis, cache
    ///
    /// idle: none. cpu: processes that compute. async-io: that write. io: that write and wait for
    /// the disk. mixed: half as many of each. artis: computing, disk, network and kernel locks.
    /// cache: mixed, and on each CPU a program that keeps the caches dirty. The papers' names are
    /// read too: IDL, CPU, AIO, SIO, MIX, ARTIS, FLOOD. Example: --load idle,mixed
    #[arg(long = "load", value_delimiter = ',', default_value = "idle")]
    pub loads: Vec<Load>,
    /// Processes of the load for each CPU [default: 128, for overhead 16; fewer if memory is
    /// short]
    ///
    /// mixed and cache have half as many again: K/2 of each of the three. artis has four for each
    /// CPU, with any K. Example: --load-factor 8
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub load_factor: Option<u32>,
    /// Directory on a disk, below which the load writes [default: beside the output]
    ///
    /// What the load writes is removed with it. One in memory (tmpfs, ramfs) is refused. Where the
    /// output is in memory and no other directory is named, the table says so.
    /// Example: --load-dir /var/tmp
    #[arg(long, value_name = "DIR")]
    pub load_dir: Option<PathBuf>,
    /// CPU to measure [default: last]
    ///
    /// `last` is the last CPU. The task of kind normal stays there only where timerlat takes the
    /// times. Example: --cpu 3
    #[arg(long, visible_alias = "cpus")]
    pub cpu: Option<CpuSpec>,
    /// SCHED_FIFO priority of the measured task, except for kind normal
    ///
    /// Example: --priority 95
    #[arg(long, default_value = "80", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub priority: u32,
    /// Number of first samples to leave out
    ///
    /// Example: --warm-up 100
    #[arg(long, default_value = "10")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=MOST_SAMPLES))]
    pub warm_up: u64,
    /// Directory for the runs [default: measure-SECONDS]
    ///
    /// Must not exist: nothing is overwritten. SECONDS is the time since 1970. Example: -o before
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Keep each sample, not only the counts of all latencies
    ///
    /// `export --to csv` and the figure of single samples need them. A sample takes 56 bytes.
    /// Overhead always keeps its turns. Example: --samples-too
    #[arg(long)]
    pub samples_too: bool,
    /// Do not record the kernel's events
    ///
    /// Without the record there are no counts and no causes, and no cost of recording.
    /// Example: --no-trace
    #[arg(long)]
    pub no_trace: bool,
    /// Show the worst N samples of each run with their causes
    ///
    /// Example: --explain 3
    #[arg(long, value_name = "N", default_value = "0")]
    pub explain: usize,
    /// Show no progress, only the tables
    ///
    /// Example: -q
    #[arg(short, long)]
    pub quiet: bool,
}

/// A format that `import` reads.
fn readable(text: &str) -> Result<Format, String> {
    match text.parse() {
        Ok(format @ (Format::Cyclictest | Format::Rtla | Format::Hdr)) => Ok(format),
        _ => Err(format!("invalid format {text:?}: expected cyclictest, rtla or hdr")),
    }
}

/// What `compare` takes of the one side and of the other.
fn two_kinds(text: &str) -> Result<[Kind; 2], String> {
    let kinds: Vec<Kind> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    match kinds[..] {
        [one, other] if one != other => Ok([one, other]),
        _ => Err("compare takes two different kinds, such as normal,partition".to_owned()),
    }
}

/// A load, or none that is known.
fn imported_load(text: &str) -> Result<Load, String> {
    match text.eq_ignore_ascii_case(Load::Unknown.word()) {
        true => Ok(Load::Unknown),
        false => text.parse().map_err(|error| format!("{error}, or unknown")),
    }
}

fn release(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a kernel has a release, as `uname -r` prints it: 7.2.13".to_owned()),
        release => Ok(release.to_owned()),
    }
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
pub enum Unit {
    Ns,
    Us,
    Ms,
    S,
}

impl Unit {
    pub const fn ns(self) -> u64 {
        match self {
            Self::Ns => 1,
            Self::Us => 1_000,
            Self::Ms => 1_000_000,
            Self::S => 1_000_000_000,
        }
    }
}

/// What `report` does not print side by side unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Across {
    Kernel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TimeSource {
    Timerlat,
    Nanosleep,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    /// The CPU of a measurement, from its command line.
    fn cpu_of(line: &str) -> Result<Option<CpuSpec>, clap::Error> {
        match Cli::try_parse_from(line.split_whitespace())?.command {
            Command::Measure(Measure::Latency { series, .. }) => Ok(series.cpu),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_measurement_takes_its_cpu_by_the_word_of_the_other_commands_too() {
        for words in ["--cpu 2", "--cpus 2", "--cpus=2"] {
            let cpu = cpu_of(&format!("asmp measure latency {words}")).unwrap();
            assert_eq!(cpu, Some(CpuSpec::List("2".parse().unwrap())), "{words}");
        }
        assert_eq!(cpu_of("asmp measure latency").unwrap(), None, "the last");
        let twice = cpu_of("asmp measure latency --cpu 2 --cpus 3").unwrap_err();
        assert_eq!(twice.kind(), clap::error::ErrorKind::ArgumentConflict, "{twice}");
    }

    #[test]
    fn one_directory_is_compared_with_itself_by_two_kinds_only() {
        let parsed =
            |line: &str| Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command);
        match parsed("asmp measure compare s --kinds N,partition").unwrap() {
            Command::Measure(Measure::Compare { b: None, kinds, .. }) => {
                assert_eq!(kinds, Some([Kind::Normal, Kind::Partition]));
            }
            other => panic!("{other:?}"),
        }
        for line in
            ["s", "s --kinds normal", "s --kinds fifo,fifo", "s --kinds normal,fifo,partition"]
        {
            assert!(parsed(&format!("asmp measure compare {line}")).is_err(), "{line}");
        }
        assert!(parsed("asmp measure compare a b").is_ok());
    }
}
