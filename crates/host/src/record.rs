//! A private tracefs instance that is read while it runs: everything that happened on one CPU, with the time
//! of CLOCK_MONOTONIC, so that a late sample can be laid beside what the kernel did just then.
//!
//! Nobody waits for data (the traced CPU would have to wake the reader): whoever wants the records asks now
//! and then. The same way serves the kernel's own latency tracer, timerlat (trace/timerlat-tracer.rst),
//! whose user interface is a file to read once a period.

use crate::cpuset::Cpu;
use crate::kernel::Kernel;
use crate::{Error, Result, task};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

const TRACING: &str = "/sys/kernel/tracing";

/// Something that happened on the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub at_ns: u64,
    pub seen: Seen,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The CPU's own timer interrupt.
    LocalTimer,
    /// A high-resolution timer whose function this is.
    TimerExpired(String),
    /// An interrupt from another CPU, by the name of its vector.
    Ipi(String),
    Device {
        irq: u32,
        name: String,
    },
    Softirq(String),
    /// The handler entered last is done.
    HandlerEnd,
    Switch {
        from_tid: i32,
        from: String,
        to_tid: i32,
        to: String,
    },
    PageFault,
    /// timerlat: latency from the period's instant to this context (`irq`, `thread`, `user-ret`), in ns.
    Timerlat {
        sequence: u64,
        context: String,
        latency_ns: u64,
    },
    /// The buffer had no room for so many.
    Lost(u64),
}

/// Who waits for timerlat's periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// A thread of the kernel's own, `timerlat/N`, which handles the event there and then.
    Kernel,
    /// A thread of user space that reads [`Recorder::waiter`] once a period.
    User,
}

/// What to enable: the first two every kernel has, the others where they are.
const EVENTS: [&str; 19] = [
    "sched/sched_switch",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
    "timer/hrtimer_expire_entry",
    "irq_vectors/local_timer_entry",
    "irq_vectors/local_timer_exit",
    "irq_vectors/reschedule_entry",
    "irq_vectors/reschedule_exit",
    "irq_vectors/call_function_entry",
    "irq_vectors/call_function_exit",
    "irq_vectors/call_function_single_entry",
    "irq_vectors/call_function_single_exit",
    "irq_vectors/irq_work_entry",
    "irq_vectors/irq_work_exit",
    "ipi/ipi_entry",
    "exceptions/page_fault_user",
    "exceptions/page_fault_kernel",
];

/// An instance that records one CPU; removed when dropped, and what it changed beside it put back.
pub struct Recorder<'a> {
    kernel: &'a dyn Kernel,
    dir: PathBuf,
    /// Opened last: while it is open the instance keeps its tracer.
    pipe: Box<dyn Read + Send>,
    cpu: Cpu,
    rest: Vec<u8>,
    /// What timerlat's settings for the whole machine were.
    before: Option<Timerlat>,
}

impl<'a> Recorder<'a> {
    /// Records what happens on `cpu` from now on. Errors: no tracefs, not root.
    pub fn events(kernel: &'a dyn Kernel, cpu: Cpu) -> Result<Self> {
        remove_stale(kernel);
        let recorder = Self::instance(kernel, cpu, &format!("asmp-events-{}", std::process::id()))?;
        for (index, event) in EVENTS.iter().enumerate() {
            let enabled = recorder.write(&format!("events/{event}/enable"), "1");
            if index == 0 {
                enabled?;
            }
        }
        recorder.start()
    }

    /// Runs the kernel's timerlat tracer on `cpu` for `handler`. Errors: `Content` where this kernel has no
    /// timerlat (only PREEMPT_RT flavours).
    pub fn timerlat(kernel: &'a dyn Kernel, cpu: Cpu, period_us: u64, handler: Handler) -> Result<Self> {
        let available = Path::new(TRACING).join("available_tracers");
        let text = kernel.text(&available).map_err(Error::io(&available, "read"))?;
        if !text.split_whitespace().any(|name| name == "timerlat") {
            return Err(Error::Content {
                path: available,
                text,
                expected: "a list with timerlat: boot a PREEMPT_RT kernel, or use --source nanosleep",
            });
        }
        remove_stale(kernel);
        let before = Timerlat::read(kernel)?;
        let mut recorder = Self::instance(kernel, cpu, &before.instance())?;
        recorder.before = Some(before);
        // Without the workload the kernel starts no threads of its own: ours takes their place.
        let workload = handler == Handler::Kernel;
        Timerlat { workload, period_us, cpus: cpu.to_string() }.write(kernel)?;
        recorder.write("current_tracer", "timerlat")?;
        recorder.start()
    }

    /// The file that a thread of user space, pinned to `cpu`, reads once a period of timerlat (since 6.5).
    pub fn waiter(cpu: Cpu) -> PathBuf {
        Path::new(TRACING).join(format!("osnoise/per_cpu/cpu{cpu}/timerlat_fd"))
    }

    /// The kernel's own thread on `cpu`, while timerlat runs for [`Handler::Kernel`].
    pub fn kernel_thread(kernel: &dyn Kernel, cpu: Cpu) -> Option<i32> {
        let name = format!("timerlat/{cpu}");
        task::named(kernel, 1, |command| command == name).first().map(|task| task.id.tid)
    }

    fn instance(kernel: &'a dyn Kernel, cpu: Cpu, name: &str) -> Result<Self> {
        let dir = Path::new(TRACING).join("instances").join(name);
        kernel.make_dir(&dir).map_err(Error::io(&dir, "make the trace instance"))?;
        let recorder =
            Self { kernel, dir, pipe: Box::new(std::io::empty()), cpu, rest: Vec::new(), before: None };
        recorder.write("tracing_on", "0")?;
        recorder.write("trace_clock", "mono")?;
        // A mask in hex: 32 bits a word, highest word first.
        let mut words: Vec<String> = vec![format!("{:x}", 1u32 << (cpu % 32))];
        words.extend((0..cpu / 32).map(|_| "00000000".to_owned()));
        recorder.write("tracing_cpumask", &words.join(","))?;
        Ok(recorder)
    }

    fn start(mut self) -> Result<Self> {
        let path = self.dir.join(format!("per_cpu/cpu{}/trace_pipe", self.cpu));
        self.pipe = self.kernel.stream(&path).map_err(Error::io(&path, "open"))?;
        self.write("tracing_on", "1")?;
        Ok(self)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        self.kernel.write(&path, text.as_bytes()).map_err(Error::io(&path, "write"))
    }

    /// Everything recorded since the last call, in order of time. Never waits.
    pub fn take(&mut self) -> Result<Vec<Record>> {
        let mut page = [0; 65536];
        loop {
            match self.pipe.read(&mut page) {
                Ok(0) => break,
                Ok(count) => self.rest.extend_from_slice(&page[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(cause) => {
                    return Err(Error::Io { path: self.dir.join("trace_pipe"), operation: "read", cause });
                }
            }
        }
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let text: Vec<u8> = self.rest.drain(..whole).collect();
        Ok(String::from_utf8_lossy(&text).lines().filter_map(parse).collect())
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        // The open pipe would keep the instance busy.
        self.pipe = Box::new(std::io::empty());
        let _ = self.write("current_tracer", "nop");
        let _ = self.kernel.remove_dir(&self.dir);
        if let Some(before) = &self.before {
            let _ = before.write(self.kernel);
        }
    }
}

/// The settings of timerlat that hold for the whole machine and that we change.
#[derive(Debug, PartialEq, Eq)]
struct Timerlat {
    /// Threads of the kernel's own wait for the periods (the option OSNOISE_WORKLOAD).
    workload: bool,
    period_us: u64,
    /// Where such threads are.
    cpus: String,
}

impl Timerlat {
    fn read(kernel: &dyn Kernel) -> Result<Self> {
        let text = |name: &str| -> Result<String> {
            let path = Path::new(TRACING).join("osnoise").join(name);
            kernel.text(&path).map_err(Error::io(&path, "read"))
        };
        let period = text("timerlat_period_us")?;
        let period_us = period.trim().parse().map_err(|_| Error::Content {
            path: Path::new(TRACING).join("osnoise/timerlat_period_us"),
            text: period,
            expected: "a number of microseconds",
        })?;
        let workload = text("options")?.split_whitespace().any(|word| word == "OSNOISE_WORKLOAD");
        Ok(Self { workload, period_us, cpus: text("cpus")?.trim().to_owned() })
    }

    fn write(&self, kernel: &dyn Kernel) -> Result<()> {
        let option = if self.workload { "OSNOISE_WORKLOAD" } else { "NO_OSNOISE_WORKLOAD" };
        let period = self.period_us.to_string();
        for (name, text) in [("options", option), ("timerlat_period_us", &period), ("cpus", &self.cpus)] {
            let path = Path::new(TRACING).join("osnoise").join(name);
            kernel.write(&path, text.as_bytes()).map_err(Error::io(&path, "write"))?;
        }
        Ok(())
    }

    /// The name of our instance carries what was before: should we be killed, it is still there to be read.
    /// Words are separated by `-`, which a list of CPUs may hold.
    fn instance(&self) -> String {
        let workload = if self.workload { "-workload" } else { "" };
        let cpus = self.cpus.replace('-', "_");
        format!("asmp-timerlat-{}-{}-{cpus}{workload}", std::process::id(), self.period_us)
    }

    /// What the words after the process's number say.
    fn of_instance<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let period_us = words.next()?.parse().ok()?;
        let cpus = words.next()?.replace('_', "-");
        Some(Self { workload: words.next().is_some(), period_us, cpus })
    }
}

/// Removes instances of processes of ours that were killed, and takes back what their names say was changed.
pub fn remove_stale(kernel: &dyn Kernel) {
    let instances = Path::new(TRACING).join("instances");
    for name in kernel.list(&instances).unwrap_or_default() {
        let mut words = name.split('-').skip_while(|word| word.parse::<u32>().is_err());
        let Some(owner) = words.next().filter(|_| name.starts_with("asmp-")) else { continue };
        if kernel.exists(Path::new(&format!("/proc/{owner}"))) {
            continue;
        }
        let dir = instances.join(&name);
        let _ = kernel.write(&dir.join("current_tracer"), b"nop");
        let _ = kernel.remove_dir(&dir);
        if let Some(before) = Timerlat::of_instance(words) {
            let _ = before.write(kernel);
        }
    }
}

/// One line of a trace: `comm-PID [003] d..2. 12.345678: NAME: fields`; commands may hold anything, so fields are searched from
/// the right.
pub fn parse(line: &str) -> Option<Record> {
    if let Some(at) = line.find("[LOST ") {
        let count = line[at + 6..].split_whitespace().next()?.parse().ok()?;
        return Some(Record { at_ns: 0, seen: Seen::Lost(count) });
    }
    // The time is the first word like 12.345678: after a `]`.
    let head = line.find("] ")?;
    let mut words = line[head + 2..].split_whitespace();
    let stamp = words.by_ref().find(|word| word.ends_with(':') && word.contains('.'))?;
    let at_ns = nanoseconds(stamp.trim_end_matches(':'))?;
    let body = &line[line.find(stamp)? + stamp.len()..].trim_start();
    if let Some(rest) = body.strip_prefix('#') {
        return timerlat(rest).map(|seen| Record { at_ns, seen });
    }
    let (name, fields) = body.split_once(": ").or_else(|| body.strip_suffix(':').map(|name| (name, "")))?;
    Some(Record { at_ns, seen: seen(name, fields)? })
}

fn seen(name: &str, fields: &str) -> Option<Seen> {
    let field = |key: &str| -> Option<&str> {
        let at = fields.rfind(&format!("{key}="))?;
        Some(&fields[at + key.len() + 1..])
    };
    let word = |key: &str| field(key).and_then(|text| text.split_whitespace().next());
    Some(match name {
        "local_timer_entry" => Seen::LocalTimer,
        "hrtimer_expire_entry" => Seen::TimerExpired(word("function")?.to_owned()),
        "irq_handler_entry" => {
            Seen::Device { irq: word("irq")?.parse().ok()?, name: field("name")?.trim().to_owned() }
        }
        "softirq_entry" => {
            Seen::Softirq(field("action")?.trim_matches(|c: char| "[]".contains(c) || c == ' ').to_owned())
        }
        "irq_handler_exit" | "softirq_exit" => Seen::HandlerEnd,
        "page_fault_user" | "page_fault_kernel" => Seen::PageFault,
        "ipi_entry" => Seen::Ipi(fields.trim().trim_matches(|c| c == '(' || c == ')').to_owned()),
        "sched_switch" => {
            let (before, after) = fields.rsplit_once(" ==> ")?;
            let number = |text: &str, key: &str| -> Option<i32> {
                let at = text.rfind(&format!(" {key}="))?;
                text[at + key.len() + 2..].split_whitespace().next()?.parse().ok()
            };
            let command = |text: &str, key: &str, end: &str| -> Option<String> {
                let start = text.find(&format!("{key}="))? + key.len() + 1;
                Some(text[start..text.rfind(&format!(" {end}="))?].to_owned())
            };
            Seen::Switch {
                from_tid: number(before, "prev_pid")?,
                from: command(before, "prev_comm", "prev_pid")?,
                to_tid: number(after, "next_pid")?,
                to: command(after, "next_comm", "next_pid")?,
            }
        }
        other if other.ends_with("_exit") => Seen::HandlerEnd,
        other => Seen::Ipi(other.strip_suffix("_entry")?.to_owned()),
    })
}

/// `1001  context    irq timer_latency      9012 ns`.
fn timerlat(text: &str) -> Option<Seen> {
    let mut words = text.split_whitespace();
    let sequence = words.next()?.parse().ok()?;
    let _ = words.next().filter(|word| *word == "context")?;
    let context = words.next()?.to_owned();
    let _ = words.next().filter(|word| *word == "timer_latency")?;
    Some(Seen::Timerlat { sequence, context, latency_ns: words.next()?.parse().ok()? })
}

fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 9)?;
    let fraction: u64 = fraction.parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction * 10u64.pow(9 - digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_prints_becomes_records() {
        let is = |line: &str, at_ns: u64, seen: Seen| assert_eq!(parse(line), Some(Record { at_ns, seen }));
        is(
            "          <idle>-0       [003] d.h2.    12.345678: local_timer_entry: vector=236",
            12_345_678_000,
            Seen::LocalTimer,
        );
        is(
            "  a] b: c-77      [003] d.h3.     1.000001: irq_handler_entry: irq=33 name=virtio1-req.1",
            1_000_001_000,
            Seen::Device { irq: 33, name: "virtio1-req.1".into() },
        );
        is(
            "   stress-1 [000] d.h3. 2.5: hrtimer_expire_entry: hrtimer=00000000e5 function=hrtimer_wakeup now=25",
            2_500_000_000,
            Seen::TimerExpired("hrtimer_wakeup".into()),
        );
        is(
            "   x-1 [000] ..s1. 2.5: softirq_entry: vec=1 [action=TIMER]",
            2_500_000_000,
            Seen::Softirq("TIMER".into()),
        );
        is(
            "   x-1 [000] d.h1. 2.5: reschedule_entry: vector=253",
            2_500_000_000,
            Seen::Ipi("reschedule".into()),
        );
        is(
            " x-1 [003] d..2. 3.0: sched_switch: prev_comm=a ==> b prev_pid=77 prev_prio=120 prev_state=S ==> next_comm=x next_pid=1 y next_pid=42 next_prio=19",
            3_000_000_000,
            Seen::Switch { from_tid: 77, from: "a ==> b".into(), to_tid: 42, to: "x next_pid=1 y".into() },
        );
        is(
            "           probe-9      [003] .....    57.625021: #25     context user-ret timer_latency    123456 ns",
            57_625_021_000,
            Seen::Timerlat { sequence: 25, context: "user-ret".into(), latency_ns: 123_456 },
        );
        is("CPU:3 [LOST 12 EVENTS]", 0, Seen::Lost(12));
    }

    #[test]
    fn the_name_of_an_instance_carries_what_was_before() {
        for (workload, cpus) in [(true, "0-3"), (false, "1,4-7"), (true, "")] {
            let before = Timerlat { workload, period_us: 1000, cpus: cpus.to_owned() };
            let name = before.instance();
            assert_eq!(Timerlat::of_instance(name.split('-').skip(3)), Some(before), "{name}");
        }
    }

    #[test]
    fn what_is_no_record_is_none() {
        for line in ["", "# tracer: nop", " x-1 [000] d..3. 1.0: sched_switch: torn", " x-1 [000] 99"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
