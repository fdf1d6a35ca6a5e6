// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `asmp-artis`: loads the scheduler of shared partitions into the kernel, prints its
//! counters, and unloads it.
//!
//! Problem:  a scheduler that lives in a process ends with it, and what it kept apart is mixed.
//! Approach: files below /sys/fs/bpf/asmp keep it in the kernel after this program has ended. To
//!           unload it, they are removed.

use asmp_host::CpuSet;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use std::fs;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::ExitCode;

mod skel {
    #![allow(warnings, clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/main.skel.rs"));
}

const HELP: &str = "\
asmp-artis - the scheduler of shared partitions

Usage: asmp-artis load CPUS | stats | unload

load CPUS  Real-time CPUS (such as 2-3) run tasks of other programs too, but only while these are
           in user mode. What enters the kernel there goes on elsewhere. The scheduler stays after
           this program has ended.
stats      Prints what it counted since it was loaded.
unload     Takes it out. The kernel's own scheduler has all tasks again.

Exit status: 0; 1 where the kernel refuses; 2 for wrong usage; 3 where this kernel cannot.
";

/// Where the kernel's file system of BPF keeps it.
const DIR: &str = "/sys/fs/bpf/asmp";
const STATE: &str = "/sys/kernel/sched_ext/state";

/// In the order of `enum stat` in src/bpf/intf.h.
const STATS: [&str; 17] = [
    "system calls that began on a real-time CPU",
    "page faults that began on a real-time CPU",
    "other entries into the kernel there, with a signal or work to do before the return",
    "tasks that left a real-time CPU in the kernel",
    "tasks that left a real-time CPU in user mode",
    "tasks that began to run on a real-time CPU",
    "of these: in the kernel",
    "returns to user mode that asked a real-time CPU to fetch the task",
    "returns that did not, as the stays before were too short",
    "tasks that went to a real-time CPU at a tick",
    "tasks enqueued that may use real-time CPUs only",
    "system CPUs interrupted to take a task from a real-time CPU",
    "longest time of such a task in the kernel on a real-time CPU, in ns",
    "observed: system calls that ended on a real-time CPU",
    "observed: system calls",
    "observed: page faults handled on a real-time CPU",
    "observed: page faults",
];
const LONGEST: usize = 12;

/// Which exit status, and why.
type Failure = (u8, String);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["load", cpus] => load(cpus, false),
        ["load", cpus, "--observe"] => load(cpus, true),
        ["stats"] => stats(),
        ["unload"] => unload(),
        ["-h" | "--help"] => print(HELP),
        _ => Err((2, "see `asmp-artis --help`".to_owned())),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, why)) => {
            eprintln!("asmp-artis: {why}");
            ExitCode::from(code)
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    io::stdout().write_all(text.as_bytes()).map_err(|error| (1, format!("cannot write: {error}")))
}

fn load(cpus: &str, observe: bool) -> Result<(), Failure> {
    let cpus: CpuSet = cpus.parse().map_err(|error| (2, format!("{cpus:?}: {error}")))?;
    let possible = list("/sys/devices/system/cpu/possible")?;
    let cannot = |why: String| Err((3, why));
    match fs::read_to_string(STATE) {
        Err(_) => return cannot(format!("this kernel has no sched_ext ({STATE})")),
        Ok(state) if state.trim() != "disabled" => {
            let name = fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
            return Err((1, format!("another scheduler runs: {}", name.trim())));
        }
        Ok(_) => {}
    }
    if cpus.is_empty() || !cpus.is_subset(&possible) || cpus == possible {
        return Err((2, format!("CPU {cpus}: some of {possible}, but not all")));
    }
    let full = list("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    if !cpus.is_subset(&full) {
        return cannot(format!(
            "CPU {} is not in nohz_full= of this boot: the kernel tells of no entry there",
            cpus.difference(&full)
        ));
    }
    let nr_cpus = possible.iter().max().map_or(0, |last| last + 1);
    let refused = |what: &str, error: libbpf_rs::Error| (1, format!("cannot {what}: {error:#}"));

    let mut storage = MaybeUninit::uninit();
    let mut builder = skel::MainSkelBuilder::default();
    builder.obj_builder.debug(std::env::var_os("ASMP_ARTIS_DEBUG").is_some());
    let mut open = builder.open(&mut storage).map_err(|error| refused("open it", error))?;
    let data = open.maps.rodata_data.as_mut().expect("the object has constants");
    data.nr_cpus = nr_cpus;
    for cpu in cpus.iter() {
        match data.rt.get_mut(cpu as usize) {
            Some(is_rt) => *is_rt = 1,
            None => return cannot(format!("CPU {cpu}: it knows {} CPUs", data.rt.len())),
        }
    }
    open.progs.observe_call.set_autoload(observe);
    open.progs.observe_fault.set_autoload(observe);
    let mut skel = open.load().map_err(|error| refused("load it", error))?;
    // First what notices entries, then what makes tasks run there.
    skel.attach().map_err(|error| refused("attach its programs", error))?;
    let mut scheduler = skel
        .maps
        .artis
        .attach_struct_ops()
        .map_err(|error| refused("attach the scheduler", error))?;
    fs::create_dir_all(DIR).map_err(|error| (1, format!("{DIR}: {error}")))?;
    let pin = |link: &mut Link, name: &str| {
        link.pin(Path::new(DIR).join(name)).map_err(|error| refused("keep it", error))
    };
    let links = &mut skel.links;
    let hooks = [
        ("user_exit", &mut links.on_user_exit),
        ("page_fault", &mut links.on_page_fault),
        ("signal", &mut links.on_signal),
        ("observe_call", &mut links.observe_call),
        ("observe_fault", &mut links.observe_fault),
    ];
    for (name, link) in hooks {
        if let Some(link) = link {
            pin(link, name)?;
        }
    }
    let maps = &mut skel.maps;
    let file = |name: &str| Path::new(DIR).join(name);
    maps.stats.pin(file("stats")).map_err(|error| refused("keep its counts", error))?;
    // The kernel runs no task work of a map that no file and no descriptor holds (EBUSY).
    maps.works.pin(file("works")).map_err(|error| refused("keep its work", error))?;
    // Last: until here all of it ends with this program.
    pin(&mut scheduler, "scheduler")
}

fn stats() -> Result<(), Failure> {
    let path = Path::new(DIR).join("stats");
    let map = MapHandle::from_pinned_path(&path)
        .map_err(|error| (1, format!("{}: {error}: is it loaded?", path.display())))?;
    let mut text = String::new();
    for (key, name) in STATS.iter().enumerate() {
        let key_bytes = u32::try_from(key).unwrap_or(u32::MAX).to_ne_bytes();
        let of_cpus = map.lookup_percpu(&key_bytes, MapFlags::ANY);
        let of_cpus = of_cpus.map_err(|error| (1, format!("{}: {error}", path.display())))?;
        let count = |bytes: Vec<u8>| {
            bytes.first_chunk().map_or(0, |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes))
        };
        let counts = of_cpus.unwrap_or_default().into_iter().map(count);
        let all: u64 = if key == LONGEST { counts.max().unwrap_or(0) } else { counts.sum() };
        text += &format!("{all:>12}  {name}\n");
    }
    let state = fs::read_to_string(STATE).unwrap_or_default();
    text += &format!("{:>12}  state of sched_ext\n", state.trim());
    print(&text)
}

fn unload() -> Result<(), Failure> {
    match fs::remove_dir_all(DIR) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err((1, format!("{DIR}: {error}")))
        }
        _ => Ok(()),
    }
}

fn list(path: &str) -> Result<CpuSet, Failure> {
    let text = fs::read_to_string(path).map_err(|error| (1, format!("{path}: {error}")))?;
    // nohz_full says "(null)" where no CPU is in it.
    let text = text.trim();
    let text = if text == "(null)" { "" } else { text };
    text.parse().map_err(|error| (1, format!("{path}: {text:?}: {error}")))
}
