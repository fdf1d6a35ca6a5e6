// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of a trace, from the text that the kernel prints. Pure.
//!
//! An event is `comm-PID [003] d..2. 12.345678: NAME: fields` (trace/ftrace.rst). Names of tasks
//! may hold anything, also what looks like the rest of a line, and line breaks, which the kernel
//! prints as they are. So the head is found by its whole shape, fields are searched from the right,
//! and a line without a head continues the event before it. What can then be read in no way, or in
//! two, is [`EventKind::Unreadable`]: no name hides a switch.

use crate::architecture::is_tick_handler;
use crate::cpuset::Cpu;

/// Something that happened on a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// CLOCK_MONOTONIC, to the microsecond; 0 where the kernel had no room.
    pub at_ns: u64,
    pub cpu: Cpu,
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The CPU's own timer interrupt.
    LocalTimer,
    /// A high-resolution timer expired that calls this function.
    TimerExpired(String),
    /// An interrupt from another CPU, by the name of its vector.
    Ipi(String),
    /// A device's interrupt.
    Device {
        irq: u32,
        name: String,
    },
    Softirq(String),
    /// The handler entered last has returned.
    HandlerEnd,
    /// Another task runs; thread 0 is idle. Priorities are the kernel's: the lower number goes
    /// first, and 100 is the first of SCHED_OTHER.
    Switch {
        from_tid: i32,
        from: String,
        from_prio: i32,
        to_tid: i32,
        to: String,
        to_prio: i32,
    },
    /// This CPU wakes a task.
    Waking {
        tid: i32,
        command: String,
        prio: i32,
    },
    /// A task was moved from one CPU to another.
    Migration {
        tid: i32,
        command: String,
        from: Cpu,
        to: Cpu,
    },
    /// A task made another, a process or a thread.
    Fork {
        parent: i32,
        child: i32,
    },
    /// A page fault of user or kernel code.
    PageFault {
        user: bool,
    },
    /// timerlat: latency from the period's instant to this context (`irq`, `thread`, `user-ret`).
    Timerlat {
        sequence: u64,
        context: String,
        latency_ns: u64,
    },
    /// The buffer had no room for so many events; 1 where the kernel does not know how many.
    Lost(u64),
    /// An event of the scheduler that may mean anything, or text that is no event.
    Unreadable,
}

/// All events of a text, in its order.
pub fn parse(text: &str) -> Vec<Event> {
    let mut events = Vec::new();
    let (mut from, mut to) = (0, 0);
    for line in text.split_inclusive('\n') {
        if lost(line).is_some() || head(line).is_some() {
            events.extend(event(&text[from..to]));
            from = to;
        }
        to += line.len();
    }
    events.extend(event(&text[from..to]));
    events
}

/// Bytes of a line of the name of a task, in the head of an event: the kernel pads it.
const MOST_OF_A_NAME: usize = 16;

/// The event of a head and the lines up to the next one. `None`: it is none (a comment, another
/// event).
fn event(text: &str) -> Option<Event> {
    if let Some(event) = lost(text) {
        return Some(event);
    }
    let Some((cpu, at_ns, body)) = head(text) else {
        // Before the first head: comments, and the first lines of the name in it.
        let is_name = |line: &str| line.starts_with('#') || line.len() <= MOST_OF_A_NAME;
        let unreadable = Event { at_ns: 0, cpu: 0, kind: EventKind::Unreadable };
        return (!text.lines().all(is_name)).then_some(unreadable);
    };
    let kind = match body.starts_with("sched_") {
        true => of_scheduler(body),
        false => kind(body.lines().next()?)?,
    };
    Some(Event { at_ns, cpu, kind })
}

/// The event ends with one of the lines of `body`. Those after it begin the next head.
fn of_scheduler(body: &str) -> EventKind {
    let ends = body.match_indices('\n').map(|(at, _)| at).chain([body.len()]);
    let mut readings = ends.filter_map(|end| kind(&body[..end]));
    match readings.next() {
        Some(one) if readings.all(|other| other == one) => one,
        _ => EventKind::Unreadable,
    }
}

/// `CPU:3 [LOST 12 EVENTS]`.
fn lost(text: &str) -> Option<Event> {
    let (cpu, words) = text.lines().next()?.strip_prefix("CPU:")?.split_once(" [LOST ")?;
    let count = words.strip_suffix("EVENTS]")?.trim_end();
    let lost = if count.is_empty() { 1 } else { count.parse().ok()? };
    Some(Event { at_ns: 0, cpu: cpu.parse().ok()?, kind: EventKind::Lost(lost) })
}

/// CPU, time and body of an event, whose head is in its first line.
pub(super) fn head(text: &str) -> Option<(Cpu, u64, &str)> {
    let line = text.lines().next()?;
    line.match_indices(" [").find_map(|(at, _)| head_at(&text[..at], &text[at + 2..]))
}

/// The same, where `before` is its `comm-PID` and `after` all beyond `[`.
fn head_at<'a>(before: &str, after: &'a str) -> Option<(Cpu, u64, &'a str)> {
    before.trim_end().rsplit_once('-')?.1.parse::<u32>().ok()?;
    let (cpu, rest) = after.split_once("] ")?;
    let (flags, rest) = rest.trim_start().split_once(' ')?;
    let (stamp, body) = rest.trim_start().split_once(": ")?;
    // No name of a task (15 bytes) has room for a head with so many flags.
    (flags.len() >= 4).then_some((cpu.parse().ok()?, nanoseconds(stamp)?, body.trim_start()))
}

/// What `NAME: fields` says; a tracer's line begins with `#`.
fn kind(body: &str) -> Option<EventKind> {
    if let Some(rest) = body.strip_prefix('#') {
        return timerlat(rest);
    }
    let (name, fields) = body.split_once(": ").or_else(|| Some((body.strip_suffix(':')?, "")))?;
    let after = |key: &str| -> Option<&str> {
        let at = fields.rfind(&format!("{key}="))?;
        Some(&fields[at + key.len() + 1..])
    };
    let word = |key: &str| after(key)?.split_whitespace().next();
    Some(match name {
        "local_timer_entry" => EventKind::LocalTimer,
        "hrtimer_expire_entry" => EventKind::TimerExpired(word("function")?.to_owned()),
        "irq_handler_entry" if after("name").is_some_and(|name| is_tick_handler(name.trim())) => {
            EventKind::LocalTimer
        }
        "irq_handler_entry" => EventKind::Device {
            irq: word("irq")?.parse().ok()?,
            name: after("name")?.trim().to_owned(),
        },
        "softirq_entry" => {
            let action = after("action")?.trim_matches(|c: char| "[]".contains(c) || c == ' ');
            EventKind::Softirq(action.to_owned())
        }
        "irq_handler_exit" | "softirq_exit" => EventKind::HandlerEnd,
        "page_fault_user" => EventKind::PageFault { user: true },
        "page_fault_kernel" => EventKind::PageFault { user: false },
        "ipi_entry" => {
            EventKind::Ipi(fields.trim().trim_matches(|c| c == '(' || c == ')').to_owned())
        }
        "sched_switch" => switch(fields)?,
        "sched_waking" => {
            // `comm=a pid=7 prio=19 target_cpu=003`
            let (head, _) = number::<Cpu>(fields, "target_cpu")?;
            let (head, prio) = number(head, "prio")?;
            let (head, tid) = number(head, "pid")?;
            EventKind::Waking { tid, command: head.strip_prefix("comm=")?.to_owned(), prio }
        }
        "sched_migrate_task" => {
            let (head, to) = number(fields, "dest_cpu")?;
            let (head, from) = number(head, "orig_cpu")?;
            let (head, tid) = number(head, "pid")?;
            EventKind::Migration { tid, command: head.strip_prefix("comm=")?.to_owned(), from, to }
        }
        "sched_process_fork" => {
            // `comm=a pid=7 child_comm=a child_pid=8`
            let (head, child) = number(fields, "child_pid")?;
            let (head, _) = head.rsplit_once(" child_comm=")?;
            EventKind::Fork { parent: number(head, "pid")?.1, child }
        }
        other if other.ends_with("_exit") => EventKind::HandlerEnd,
        other => EventKind::Ipi(other.strip_suffix("_entry")?.to_owned()),
    })
}

/// `prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120`.
fn switch(fields: &str) -> Option<EventKind> {
    // A name has no room for both fields. What follows may be the name in the next head.
    let (cut, _) = fields.rsplit_once(" next_prio=")?;
    let at = cut.rfind(" next_pid=")?;
    let (to_tid, to_prio) = pid_and_prio(&fields[at..], "next")?;
    let (head, to) = cut[..at].rsplit_once(" ==> next_comm=")?;
    let at = head.rfind(" prev_pid=")?;
    let (from_tid, from_prio) = pid_and_prio(&head[at..], "prev")?;
    let (from, to) = (head[..at].strip_prefix("prev_comm=")?.to_owned(), to.to_owned());
    Some(EventKind::Switch { from_tid, from, from_prio, to_tid, to, to_prio })
}

/// ` prev_pid=1 prev_prio=120 ...`.
fn pid_and_prio(text: &str, key: &str) -> Option<(i32, i32)> {
    let mut words = text.split_whitespace();
    let mut number = |field: &str| -> Option<i32> {
        words.next()?.strip_prefix(key)?.strip_prefix(field)?.parse().ok()
    };
    Some((number("_pid=")?, number("_prio=")?))
}

/// The last field of that name, a number, and all before it.
fn number<'a, N: std::str::FromStr>(fields: &'a str, key: &str) -> Option<(&'a str, N)> {
    let (head, tail) = fields.rsplit_once(&format!(" {key}="))?;
    Some((head, tail.split_whitespace().next()?.parse().ok()?))
}

/// `1001  context    irq timer_latency      9012 ns`.
fn timerlat(text: &str) -> Option<EventKind> {
    let mut words = text.split_whitespace();
    let sequence = words.next()?.parse().ok()?;
    let _ = words.next().filter(|word| *word == "context")?;
    let context = words.next()?.to_owned();
    let _ = words.next().filter(|word| *word == "timer_latency")?;
    Some(EventKind::Timerlat { sequence, context, latency_ns: words.next()?.parse().ok()? })
}

fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 9)?;
    let fraction: u64 = fraction.parse().ok()?;
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction * 10u64.pow(9 - digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As all lines here have it: from SCHED_OTHER to SCHED_FIFO 80.
    fn switch_to(from_tid: i32, from: &str, to_tid: i32, to: &str) -> EventKind {
        let (from_prio, to_prio) = (120, 19);
        EventKind::Switch { from_tid, from: from.into(), from_prio, to_tid, to: to.into(), to_prio }
    }

    fn is(line: &str, cpu: Cpu, at_ns: u64, kind: EventKind) {
        assert_eq!(parse(line), [Event { at_ns, cpu, kind }], "{line}");
    }

    #[test]
    fn what_the_kernel_prints_becomes_events() {
        is(
            "          <idle>-0       [003] d.h2.    12.345678: local_timer_entry: vector=236",
            3,
            12_345_678_000,
            EventKind::LocalTimer,
        );
        is(
            "  a] b: c-77      [003] d.h3.     1.000001: irq_handler_entry: irq=33 \
             name=virtio1-req.1",
            3,
            1_000_001_000,
            EventKind::Device { irq: 33, name: "virtio1-req.1".into() },
        );
        is(
            "   x-1 [003] d.h1. 2.5: irq_handler_entry: irq=11 name=arch_timer",
            3,
            2_500_000_000,
            EventKind::LocalTimer,
        );
        is(
            "   stress-1 [000] d.h3. 2.5: hrtimer_expire_entry: hrtimer=00000000e5 \
             function=hrtimer_wakeup now=25",
            0,
            2_500_000_000,
            EventKind::TimerExpired("hrtimer_wakeup".into()),
        );
        is(
            "   x-1 [000] ..s1. 2.5: softirq_entry: vec=1 [action=TIMER]",
            0,
            2_500_000_000,
            EventKind::Softirq("TIMER".into()),
        );
        is(
            "   x-1 [000] d.h1. 2.5: reschedule_entry: vector=253",
            0,
            2_500_000_000,
            EventKind::Ipi("reschedule".into()),
        );
        is(
            "           probe-9      [003] .....    57.625021: #25     context user-ret \
             timer_latency    123456 ns",
            3,
            57_625_021_000,
            EventKind::Timerlat { sequence: 25, context: "user-ret".into(), latency_ns: 123_456 },
        );
        is("CPU:3 [LOST 12 EVENTS]", 3, 0, EventKind::Lost(12));
        is("CPU:0 [LOST EVENTS]", 0, 0, EventKind::Lost(1));
        let line = " sh-7 [002] d.... 1.0: page_fault_user: address=0x1 ip=0x2 error_code=0x4";
        is(line, 2, 1_000_000_000, EventKind::PageFault { user: true });
        let line = " sh-7 [000] d..3. 1.0: sched_migrate_task: comm=my app pid=9 prio=120 \
                    orig_cpu=3 dest_cpu=1";
        let moved = EventKind::Migration { tid: 9, command: "my app".into(), from: 3, to: 1 };
        is(line, 0, 1_000_000_000, moved);
    }

    #[test]
    fn a_switch_is_read_whatever_the_tasks_are_called() {
        is(
            "  a ==> b [9]-77    [003] d..2.    12.345678: sched_switch: prev_comm=a ==> b \
             prev_pid=77 prev_prio=120 prev_state=S ==> next_comm=x next_pid=1 y next_pid=4242 \
             next_prio=19",
            3,
            12_345_678_000,
            switch_to(77, "a ==> b", 4242, "x next_pid=1 y"),
        );
        // 15 bytes each, as many as a name may have.
        for name in [
            " ==> next_comm=",
            "x prev_pid=4 ==",
            "-1 [0] d 1.0: x",
            "CPU:1 [LOST 9 E",
            " prev_comm=a b ",
            "] d..2. 1.0: x:",
        ] {
            assert_eq!(name.len(), 15, "{name:?}");
            let line = format!(
                "{name}-77    [003] d..2.    12.345678: sched_switch: prev_comm={name} \
                 prev_pid=77 prev_prio=120 prev_state=S ==> next_comm=asmp next_pid=4242 \
                 next_prio=19"
            );
            is(&format!(" {line}"), 3, 12_345_678_000, switch_to(77, name, 4242, "asmp"));
            if name != " ==> next_comm=" {
                let line = line.replace("next_comm=asmp", &format!("next_comm={name}"));
                is(&format!(" {line}"), 3, 12_345_678_000, switch_to(77, name, 4242, name));
            }
        }
    }

    #[test]
    fn a_waking_is_read_whatever_the_task_is_called() {
        for command in ["asmp-probe", "x pid=1 prio=2", "a\nb"] {
            let line = format!(
                " <idle>-0 [003] d.h3. 1.0: sched_waking: comm={command} pid=7 prio=-1 \
                 target_cpu=003"
            );
            let waking = EventKind::Waking { tid: 7, command: command.into(), prio: -1 };
            is(&line, 3, 1_000_000_000, waking);
        }
    }

    #[test]
    fn a_fork_is_read_whatever_the_tasks_are_called() {
        let line = " a pid=1-7 [003] ..... 1.0: sched_process_fork: comm=a pid=1 pid=7 \
                    child_comm=a pid=1 child_pid=8";
        is(line, 3, 1_000_000_000, EventKind::Fork { parent: 7, child: 8 });
    }

    /// The kernel prints line breaks of a name as they are, in the head of an event too.
    #[test]
    fn a_line_break_in_the_name_of_a_task_hides_no_event() {
        let timer = " x-1 [003] d.h2. 12.000001: local_timer_entry: vector=236";
        for name in [
            "a\nb",
            "\n",
            "a\n",
            "\n\n\n",
            "x next_pid=1\ny",
            " next_prio=1\n",
            "x child_pid=1\n",
            "x dest_cpu=1\ny",
            "\nCPU:1 [LOST 9 ",
            "\n-1 [3] dddd 1.",
            "\n# tracer: nop",
        ] {
            assert!(name.len() <= 15, "{name:?}");
            let head = format!("{name:>16}-77    [003] d..2.    12.345678:");
            let events = [
                format!(
                    "{head} sched_switch: prev_comm={name} prev_pid=77 prev_prio=120 \
                     prev_state=S ==> next_comm={name} next_pid=4242 next_prio=19"
                ),
                timer.to_owned(),
                format!(
                    "{head} sched_process_fork: comm={name} pid=77 child_comm={name} child_pid=8"
                ),
                format!(
                    "{head} sched_migrate_task: comm={name} pid=77 prio=120 orig_cpu=3 dest_cpu=1"
                ),
                format!("{head} irq_handler_entry: irq=33 name=virtio1-req.1"),
                format!("{head} local_timer_entry: vector=236"),
            ];
            let kinds: Vec<EventKind> =
                parse(&events.join("\n")).into_iter().map(|event| event.kind).collect();
            let or_unreadable = |at: usize, kind: EventKind| match kinds[at] == kind {
                true => kind,
                false => EventKind::Unreadable,
            };
            let migration = EventKind::Migration { tid: 77, command: name.into(), from: 3, to: 1 };
            let expected = [
                switch_to(77, name, 4242, name),
                EventKind::LocalTimer,
                or_unreadable(2, EventKind::Fork { parent: 77, child: 8 }),
                or_unreadable(3, migration),
                EventKind::Device { irq: 33, name: "virtio1-req.1".into() },
                EventKind::LocalTimer,
            ];
            assert_eq!(kinds, expected, "{name:?}");
            let unreadable = kinds.contains(&EventKind::Unreadable);
            assert_eq!(unreadable, name.contains("child_pid="), "{name:?}: {kinds:?}");
        }
    }

    /// The first name was changed by another thread between the fork and its event.
    #[test]
    fn a_child_s_name_hides_it_behind_no_other_number() {
        let line = " X-77 [003] ..... 1.0: sched_process_fork: comm=X pid=77 child_comm=X \
                    child_pid=5\n child_pid=8";
        is(line, 3, 1_000_000_000, EventKind::Unreadable);
    }

    #[test]
    fn what_cannot_be_read_is_not_left_out() {
        for line in [
            " x-1 [000] d..3. 1.0: sched_switch: torn",
            " x-1 [000] d..3. 1.0: sched_migrate_task: comm=x pid=9",
        ] {
            is(line, 0, 1_000_000_000, EventKind::Unreadable);
        }
        // As with the options record-tgid and latency-format, which an instance does not set.
        for line in [
            "    sh-77    (     77) [003] d..2.    12.345678: sched_switch: prev_comm=a",
            "    sh-77        3d..2. 123us : sched_switch: prev_comm=a",
            "CPU:3 [LOST x EVENTS]",
        ] {
            is(line, 0, 0, EventKind::Unreadable);
        }
    }

    #[test]
    fn other_lines_are_none() {
        for line in ["", "# tracer: nop\n#\n", " x-1 [000] 99", "CPU:3 [LOST"] {
            assert_eq!(parse(line), [], "{line}");
        }
    }
}
