// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who uses the kernel's tracers osnoise and timerlat.
//!
//! Problem:  all their users share one set of settings and threads (trace/osnoise-tracer.rst). A
//!           write to a setting stops the threads. The kernel ends its own, and kills with SIGKILL
//!           each thread of user space that waits for timerlat (`stop_kthread` in
//!           kernel/trace/trace_osnoise.c). Seen on 7.2: a CPU that goes offline after such a kill
//!           brings the kernel down.
//! Approach: ask before a tracer starts and before each write to a setting. The end of one instance
//!           needs no question: the kernel stops the threads with the last one only.

use super::{INSTANCES, TRACING};
use crate::kernel::Kernel;
use crate::task;
use std::fmt;
use std::path::{Path, PathBuf};

/// One user of osnoise or timerlat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// A trace whose `current_tracer` is one of the two. An instance has a name, the top-level
    /// trace has none.
    Trace { instance: Option<String>, tracer: String },
    /// A thread that the kernel started for one of them.
    Thread { tid: i32, command: String },
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Trace { instance: Some(name), tracer } => {
                write!(f, "{tracer} runs in the trace instance {name:?}")
            }
            Self::Trace { instance: None, tracer } => {
                write!(f, "{tracer} runs in the top-level trace")
            }
            Self::Thread { tid, command } => write!(f, "kernel thread {command} ({tid}) runs"),
        }
    }
}

/// Every user of osnoise or timerlat, this process included. Threads are named only where no trace
/// is. Empty without tracefs.
pub fn of_osnoise(kernel: &dyn Kernel) -> Vec<User> {
    let instances = kernel.list(Path::new(INSTANCES)).unwrap_or_default().into_iter();
    let traces = instances.map(|name| (Path::new(INSTANCES).join(&name), Some(name)));
    let traces = traces.chain([(PathBuf::from(TRACING), None)]);
    let users: Vec<User> = traces
        .filter_map(|(dir, instance)| {
            let tracer = kernel.text(&dir.join("current_tracer")).ok()?.trim().to_owned();
            is_of_osnoise(&tracer).then_some(User::Trace { instance, tracer })
        })
        .collect();
    if !users.is_empty() {
        return users;
    }
    let is_thread = |name: &str| {
        name.split_once('/').is_some_and(|(tracer, cpu)| {
            is_of_osnoise(tracer) && cpu.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let threads = task::kernel_threads_named(kernel, 1, is_thread).into_iter();
    threads.map(|task| User::Thread { tid: task.id.tid, command: task.command }).collect()
}

fn is_of_osnoise(tracer: &str) -> bool {
    ["osnoise", "timerlat"].contains(&tracer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Linux, machine};

    fn words(linux: &Linux) -> Vec<String> {
        of_osnoise(linux).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_user_of_osnoise_or_timerlat_is_found_in_each_trace_and_others_are_none() {
        let (_root, linux) = machine(&[
            ("sys/kernel/tracing/current_tracer", "osnoise\n"),
            ("sys/kernel/tracing/instances/lab/current_tracer", "timerlat\n"),
            ("sys/kernel/tracing/instances/other/current_tracer", "function\n"),
            ("sys/kernel/tracing/instances/torn/trace", ""),
        ]);
        assert_eq!(
            words(&linux),
            ["timerlat runs in the trace instance \"lab\"", "osnoise runs in the top-level trace"]
        );
        let (_root, linux) = machine(&[
            ("sys/kernel/tracing/current_tracer", "nop\n"),
            ("sys/kernel/tracing/instances/asmp-events-1-1/current_tracer", "nop\n"),
        ]);
        assert_eq!(of_osnoise(&linux), []);
        assert_eq!(of_osnoise(&machine(&[]).1), [], "without tracefs");
    }

    #[test]
    fn a_kernel_thread_of_a_tracer_is_a_user_and_a_program_of_that_name_is_none() {
        // Flags: PF_KTHREAD, or none.
        for (command, flags, users) in [
            ("timerlat/3", 0x20_0000, vec!["kernel thread timerlat/3 (77) runs"]),
            ("osnoise/0", 0x20_0000, vec!["kernel thread osnoise/0 (77) runs"]),
            ("timerlat/3", 0, vec![]),
            ("timerlat/x", 0x20_0000, vec![]),
            ("ksoftirqd/3", 0x20_0000, vec![]),
        ] {
            let stat = format!(
                "77 ({command}) S 2 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0 0 0 0 0 0 \
                 0 0 0 0 0 0 0 0 0 3 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
            );
            let (_root, linux) = machine(&[
                ("proc/77/comm", &format!("{command}\n")),
                ("proc/77/task/77/stat", &stat),
                ("proc/77/status", "Tgid:\t77\nCpus_allowed_list:\t3\n"),
                ("proc/77/cgroup", "0::/\n"),
            ]);
            assert_eq!(words(&linux), users, "{command} {flags:#x}");
        }
    }
}
