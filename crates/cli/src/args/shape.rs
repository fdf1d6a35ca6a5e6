// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a partition is to be, as `create` and `run` take it.

use asmp_host::CpuSpec;
use asmp_shield::{Aspect, Mode, Smt, Tick};
use clap::{ArgGroup, Args};

#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["cpus", "count"]))]
pub struct Shape {
    /// CPUs of the partition
    ///
    /// A list (1-3,5; 2-N to the highest CPU), `last` (the last free CPU), `last:2`, `all-but
    /// LIST` or a mask (0xe). The system always keeps at least one CPU, so `all` is refused.
    /// Example: --cpus 2-3
    #[arg(long)]
    pub cpus: Option<CpuSpec>,
    /// Number of CPUs, which asmp then chooses
    ///
    /// Of the free CPUs those near --near, then CPUs that no other group asks for, whose tick can
    /// stop, and on cores of their own; the boot CPU comes last. `asmp plan` says why these. If too
    /// few are free, the exit code is 26.
    /// Example: --count 2
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub count: Option<usize>,
    /// Choose CPUs near an IRQ line, a device or a NUMA node
    ///
    /// The number of an IRQ line, a network interface, a PCI address, a block device, the name of
    /// an IRQ handler, or nodeN. If too few CPUs there are free, others are chosen too. A far CPU
    /// is preferred to the boot CPU, and to one that another group asks for.
    /// Example: --count 2 --near eth1
    #[arg(long, value_name = "IRQ|DEVICE|NODE", requires = "count", conflicts_with = "cpus")]
    pub near: Option<String>,
    /// Choose whole cores: all SMT siblings of each, or none
    ///
    /// --count still counts CPUs. It must fill whole cores: 2, 4 or 6 where a core has two threads.
    /// Example: --count 2 --whole-cores
    #[arg(long, requires = "count", conflicts_with = "cpus")]
    pub whole_cores: bool,
    /// Route an IRQ line to the partition, by number or handler name; repeatable
    ///
    /// All other lines leave the partition's CPUs. Names are those of /proc/interrupts.
    /// Example: --irq eth1 --irq 24
    #[arg(long = "irq", value_name = "NAME|N")]
    pub irqs: Vec<String>,
    /// SCHED_FIFO priority for the handler threads of the --irq lines
    ///
    /// Handlers are threads on PREEMPT_RT kernels, and on others booted with threadirqs. Lines that
    /// `asmp add` brings later get it too.
    /// Example: --irq eth1 --irq-priority 90
    #[arg(long, value_name = "1..99", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub irq_priority: Option<u32>,
    /// Timer tick of the CPUs: off, keep or require-off
    ///
    /// `off` stops it where this boot allows it, and says where not. `keep` leaves it alone.
    /// `require-off` counts ticks under a busy task; if any CPU still ticks, nothing is changed
    /// and the exit code is 5. Example: --tick require-off
    #[arg(long, default_value = "off")]
    pub tick: Tick,
    /// SMT siblings of the CPUs: idle or share
    ///
    /// `idle` shields the siblings too and runs nothing on them. `share` leaves them to the
    /// system, which then disturbs the partition through the shared core. Example: --smt share
    #[arg(long, default_value = "idle")]
    pub smt: Smt,
    /// Let other tasks use the CPUs too; real-time tasks then wake later
    ///
    /// Other tasks run there in user mode only: one that enters the kernel is taken to a system CPU
    /// first. For this, asmp's own scheduler runs all ordinary tasks of the machine; it ignores
    /// cpu.weight and cpu.max. Other real-time tasks are confined to system CPUs. The real-time
    /// tasks inside must sleep now and then: one that keeps a CPU busy for 20 seconds ends the
    /// guarantee. `asmp help sharing` says what sharing costs.
    ///
    /// It needs Linux 7.1 or newer, the program asmp-artis, and CPUs of nohz_full=; `asmp check`
    /// says what is missing, and the exit code is then 57. `--share=best-effort` shares without
    /// that guarantee, on any kernel: what other tasks do in the kernel then delays real-time
    /// tasks. Example: asmp create motion --cpus 2-3 --share
    #[arg(long, value_name = "best-effort", num_args = 0..=1, require_equals = true,
        default_missing_value = "shared", value_parser = sharing_mode)]
    pub share: Option<Mode>,
    /// Fail if the kernel refuses to move anything off the CPUs
    ///
    /// Such as a managed IRQ line. The exit code is then 4, and every setting is as before.
    /// Per-CPU kernel threads, which no CPU is without, do not count. Example: --strict
    #[arg(long)]
    pub strict: bool,
    /// Steps to leave out, separated by commas
    ///
    /// Steps: irqs, workqueues, watchdog, machine-checks, dl-server, governor, idle-states,
    /// timers. Leaving one out shows what it is worth. Example: --without governor,idle-states
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    pub without: Vec<Aspect>,
}

fn sharing_mode(text: &str) -> Result<Mode, String> {
    let mode = text.parse().ok().filter(|mode: &Mode| !mode.is_isolated());
    mode.ok_or_else(|| "use --share, or --share=best-effort".to_owned())
}

/// The number of CPUs that a command line asks for.
fn at_least_one(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "use a number of CPUs, 1 or more".to_owned())
}
