// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stays in the kernel: the scheduler, what notices entries, and its files in /sys/fs/bpf.

use asmp_host::CpuSet;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, Program, libbpf_sys};
use rustix::mount::{MountFlags, mount};
use std::ffi::c_void;
use std::fs::{self, File};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

mod skel {
    #![allow(warnings, clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/main.skel.rs"));
}
use skel::types::{class_change, cpu_words};

/// Which exit status, and why.
pub(crate) type Failure = (u8, String);

const BPFFS: &str = "/sys/fs/bpf";
const BPFFS_MAGIC: u64 = 0xcafe_4a11;
pub(crate) const DIR: &str = "/sys/fs/bpf/asmp";
pub(crate) const CPUS: &str = "cpus";
pub(crate) const STATS: &str = "stats";
/// The link whose end is the scheduler's.
const SCHEDULER: &str = "scheduler";
const SET_CPUS: &str = "set_cpus";
const CLASS_OF: &str = "class_of";
/// The kernel has no memory at hand.
const ENOMEM: i32 = 12;
/// A link that leads nowhere: its text is the build of what is loaded, and the names of its hooks.
const LOADED: &str = "loaded";
/// Functions that kernels have, however they are configured. Without these work before a return to
/// user mode would go unnoticed.
const ALL_HAVE: [&str; 2] = ["arch_do_signal_or_restart", "task_work_run"];
/// A sum over the sources of the programs.
const BUILD: &str = env!("ASMP_ARTIS_BUILD");
const STATE: &str = "/sys/kernel/sched_ext/state";

/// What tests ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    None,
    /// Observers count what runs in the kernel on a real-time CPU all the same.
    Observe,
    /// Observers, and guests go to real-time CPUs whenever they can.
    Eager,
}

fn file(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn refused(what: &str, error: impl std::fmt::Display) -> Failure {
    (1, format!("cannot {what}: {error:#}"))
}

/// Sees that the file system of BPF is there, and that one of this program at a time changes it.
pub(crate) fn locked() -> Result<File, Failure> {
    let failed = |error: io::Error| (1, format!("{BPFFS}: {error}"));
    let is_there = rustix::fs::statfs(BPFFS).map_err(|error| failed(error.into()))?;
    if u64::try_from(is_there.f_type).ok() != Some(BPFFS_MAGIC) {
        // Else every user might make what is believed here.
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("bpf", BPFFS, "bpf", flags, Some(c"mode=0700"))
            .map_err(|error| (1, format!("cannot mount bpf at {BPFFS}: {error}")))?;
    }
    if let Ok(seen) = fs::symlink_metadata(DIR) {
        is_of_root(&seen)?;
    }
    let lock = File::open(BPFFS).map_err(failed)?;
    // Where others may open it, they may hold it for ever.
    let until = Instant::now() + Duration::from_secs(20);
    while lock.try_lock().is_err() {
        if Instant::now() > until {
            return Err((1, format!("another program has had {BPFFS} locked for 20 s")));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(lock)
}

/// Whose scheduler runs, if any does.
fn scheduler() -> Result<Option<String>, Failure> {
    let state = fs::read_to_string(STATE)
        .map_err(|_| (3, format!("this kernel has no sched_ext ({STATE})")))?;
    if state.trim() == "disabled" {
        return Ok(None);
    }
    let name = fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    Ok(Some(name.trim().to_owned()))
}

/// Takes all of it out: the scheduler first, so that no guest runs where nothing notices entries.
pub(crate) fn remove() -> Result<(), Failure> {
    let pinned = file(SCHEDULER);
    if is_pinned(&pinned) {
        let link = Link::open(&pinned).map_err(|error| refused("open the scheduler", error))?;
        // Refused if the kernel has ended it already.
        let _ = link.detach();
        drop(link);
        fs::remove_file(&pinned).map_err(|error| refused("remove the scheduler", error))?;
    }
    // That of a program killed before it was kept ends by itself, soon.
    let until = Instant::now() + Duration::from_secs(20);
    while scheduler().is_ok_and(|name| name.is_some_and(|name| name.is_empty() || name == "artis"))
    {
        if Instant::now() > until {
            return Err((1, "the scheduler does not end".to_owned()));
        }
        sleep(Duration::from_millis(10));
    }
    match fs::remove_dir_all(DIR) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err((1, format!("{DIR}: {error}")))
        }
        _ => Ok(()),
    }
}

/// What is there of a scheduler that runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loaded {
    Whole,
    /// Another build of this program has loaded it.
    Other,
    /// A hook is gone: some entries into the kernel go unnoticed.
    Broken,
}

/// Pinned objects are regular files: a directory of that name is none.
fn is_pinned(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|seen| seen.is_file())
}

pub(crate) fn loaded() -> Loaded {
    let text = fs::read_link(file(LOADED)).unwrap_or_default();
    let text = text.to_string_lossy();
    let mut words = text.split(' ');
    let build = words.next();
    match words.all(|hook| is_pinned(&file(hook))) {
        false => Loaded::Broken,
        true if build == Some(BUILD) => Loaded::Whole,
        true => Loaded::Other,
    }
}

pub(crate) fn load(cpus: &CpuSet, nr_cpus: u32, test: Test) -> Result<(), Failure> {
    if let Some(name) = scheduler()? {
        return Err((1, format!("another scheduler runs: {name}")));
    }
    let most = 64 * cpu_words::default().word.len();
    if nr_cpus as usize > most {
        return Err((3, format!("this machine has {nr_cpus} CPUs: it knows {most}")));
    }
    let mut storage = MaybeUninit::uninit();
    let mut builder = skel::MainSkelBuilder::default();
    builder.obj_builder.debug(std::env::var_os("ASMP_ARTIS_DEBUG").is_some());
    let mut open = builder.open(&mut storage).map_err(|error| refused("open it", error))?;
    let constants = open.maps.rodata_data.as_mut().expect("the object has constants");
    constants.nr_cpus = nr_cpus;
    constants.eager = test == Test::Eager;
    let observe = test != Test::None;
    open.progs.observe_enter.set_autoload(observe);
    open.progs.observe_exit.set_autoload(observe);
    open.progs.observe_fault.set_autoload(observe);
    open.progs.observe_switch.set_autoload(observe);
    open.progs.observe_write.set_autoload(observe);
    open.progs.observe_timers.set_autoload(observe);
    open.progs.observe_exception.set_autoload(observe);
    open.progs.observe_protection.set_autoload(observe);
    let types = Btf::from_vmlinux().map_err(|error| refused("read the kernel's types", error))?;
    let progs = &mut open.progs;
    let works = [
        (
            "arch_do_signal_or_restart",
            &mut progs.begin_arch_do_signal_or_restart,
            &mut progs.end_arch_do_signal_or_restart,
        ),
        ("task_work_run", &mut progs.begin_task_work_run, &mut progs.end_task_work_run),
        (
            "uprobe_notify_resume",
            &mut progs.begin_uprobe_notify_resume,
            &mut progs.end_uprobe_notify_resume,
        ),
        (
            "__mem_cgroup_handle_over_high",
            &mut progs.begin___mem_cgroup_handle_over_high,
            &mut progs.end___mem_cgroup_handle_over_high,
        ),
    ];
    for (function, begin, end) in works {
        let is_there = types.type_by_name::<Func<'_>>(function).is_some();
        if !is_there && ALL_HAVE.contains(&function) {
            return Err((3, format!("this kernel has no function {function}() to hook")));
        }
        begin.set_autoload(is_there);
        end.set_autoload(is_there);
    }
    let has_seccomp = types.type_by_name::<Func<'_>>("__secure_computing").is_some();
    progs.on_seccomp.set_autoload(has_seccomp);
    // These need a map to be over.
    open.progs.show_cpus.set_autoattach(false);
    open.progs.show_stats.set_autoattach(false);
    let mut skel = open.load().map_err(|error| refused("load it", error))?;
    directory()?;

    let pin = |link: &mut Link, name: &str| {
        link.pin(file(name)).map_err(|error| refused("keep it", error))
    };
    // First what notices entries, then what makes tasks run there.
    skel.attach().map_err(|error| refused("attach its programs", error))?;
    let links = &mut skel.links;
    let hooks = [
        ("user_exit", &mut links.on_user_exit),
        ("page_fault", &mut links.on_page_fault),
        ("kernel_fault", &mut links.on_kernel_fault),
        ("signal", &mut links.on_signal),
        ("deliver", &mut links.on_deliver),
        ("sigreturn", &mut links.on_sigreturn),
        ("after_sigreturn", &mut links.after_sigreturn),
        ("begin_signals", &mut links.begin_arch_do_signal_or_restart),
        ("end_signals", &mut links.end_arch_do_signal_or_restart),
        ("begin_work", &mut links.begin_task_work_run),
        ("end_work", &mut links.end_task_work_run),
        ("begin_uprobe", &mut links.begin_uprobe_notify_resume),
        ("end_uprobe", &mut links.end_uprobe_notify_resume),
        ("begin_over_high", &mut links.begin___mem_cgroup_handle_over_high),
        ("end_over_high", &mut links.end___mem_cgroup_handle_over_high),
        ("seccomp", &mut links.on_seccomp),
        ("observe_enter", &mut links.observe_enter),
        ("observe_exit", &mut links.observe_exit),
        ("observe_fault", &mut links.observe_fault),
        ("observe_switch", &mut links.observe_switch),
        ("observe_write", &mut links.observe_write),
        ("observe_timers", &mut links.observe_timers),
        ("observe_exception", &mut links.observe_exception),
        ("observe_protection", &mut links.observe_protection),
    ];
    let mut loaded = BUILD.to_owned();
    for (name, link) in hooks {
        if let Some(link) = link {
            pin(link, name)?;
            loaded += &format!(" {name}");
        }
    }
    symlink(loaded, file(LOADED)).map_err(|error| refused("say what is loaded", error))?;
    let texts = [
        (CPUS, &skel.progs.show_cpus, skel.maps.one.as_fd()),
        (STATS, &skel.progs.show_stats, skel.maps.stats.as_fd()),
    ];
    for (name, program, map) in texts {
        let mut link = program.attach_iter(map).map_err(|error| refused("attach it", error))?;
        pin(&mut link, name)?;
        fs::set_permissions(file(name), fs::Permissions::from_mode(0o444))
            .map_err(|error| refused("make it readable", error))?;
    }
    let kept = |error| refused("keep it", error);
    skel.progs.set_cpus.pin(file(SET_CPUS)).map_err(kept)?;
    skel.progs.class_of.pin(file(CLASS_OF)).map_err(kept)?;
    // The kernel runs no task work of a map that no file and no descriptor holds (EBUSY).
    skel.maps.works.pin(file("works")).map_err(kept)?;
    change(cpus)?;
    // Until here all of it ends with this program, but for files that the next one removes.
    let mut scheduler = skel
        .maps
        .artis
        .attach_struct_ops()
        .map_err(|error| refused("attach the scheduler", error))?;
    pin(&mut scheduler, SCHEDULER)?;
    // Guests that were in the kernel on these CPUs are interrupted only now.
    change(cpus)?;
    // The kernel says yes to one that it ends at once, as its start fails.
    let text = |name| fs::read_to_string(file(name)).unwrap_or_default();
    if !text(CPUS).trim().is_empty() {
        return Ok(());
    }
    let why = text(STATS).lines().last().unwrap_or_default().to_owned();
    remove()?;
    Err((1, format!("the kernel did not start the scheduler: {why}")))
}

/// Makes the directory. It must be root's alone: what is in it is believed.
fn directory() -> Result<(), Failure> {
    let failed = |error: io::Error| (1, format!("{DIR}: {error}"));
    match fs::DirBuilder::new().mode(0o755).create(DIR) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    is_of_root(&fs::symlink_metadata(DIR).map_err(failed)?)
}

fn is_of_root(seen: &fs::Metadata) -> Result<(), Failure> {
    match seen.is_dir() && seen.uid() == 0 && seen.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err((1, format!("{DIR}: not a directory that root alone writes to"))),
    }
}

/// Sets the real-time CPUs, in one step. The scheduler may run.
pub(crate) fn change(cpus: &CpuSet) -> Result<(), Failure> {
    let mut words = words(cpus)?;
    let program = opened(SET_CPUS)?;
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        match -run(&program, &mut words)? {
            0 => return Ok(()),
            // At the first time: the kernel makes some for the next.
            ENOMEM if Instant::now() < until => sleep(Duration::from_millis(10)),
            error => {
                return Err(refused("set its CPUs", io::Error::from_raw_os_error(error)));
            }
        }
    }
}

fn words(cpus: &CpuSet) -> Result<cpu_words, Failure> {
    let mut words = cpu_words::default();
    for cpu in cpus.iter() {
        let word = words.word.get_mut(cpu as usize / 64);
        *word.ok_or_else(|| (3, format!("CPU {cpu}: it knows fewer CPUs")))? |= 1 << (cpu % 64);
    }
    Ok(words)
}

/// The classes of threads.
pub(crate) struct ClassOf(OwnedFd);

impl ClassOf {
    pub(crate) fn open() -> Result<Self, Failure> {
        Ok(Self(opened(CLASS_OF)?))
    }

    /// Its priority, 0 for a Linux task; nothing if the thread has ended.
    pub(crate) fn ask(&self, tid: i32) -> Result<Option<i32>, Failure> {
        self.run(tid, -1)
    }

    pub(crate) fn set(&self, tid: i32, prio: i32) -> Result<Option<i32>, Failure> {
        self.run(tid, prio)
    }

    fn run(&self, tid: i32, prio: i32) -> Result<Option<i32>, Failure> {
        let prio = run(&self.0, &mut class_change { tid, prio })?;
        Ok((prio >= 0).then_some(prio))
    }
}

fn opened(name: &str) -> Result<OwnedFd, Failure> {
    let path = file(name);
    Program::fd_from_pinned_path(&path)
        .map_err(|error| (1, format!("{}: {error}: is it loaded?", path.display())))
}

/// Plain data that a program of type `syscall` takes.
trait Argument {}
impl Argument for cpu_words {}
impl Argument for class_change {}

fn run<T: Argument>(program: &OwnedFd, argument: &mut T) -> Result<i32, Failure> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ctx_in: std::ptr::from_mut(argument).cast::<c_void>(),
        ctx_size_in: size_of::<T>() as _,
        ..Default::default()
    };
    // SAFETY: options are whole, and ctx_in points to ctx_size_in bytes of plain data that are
    // borrowed until the call is done.
    let error =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if error != 0 {
        return Err(refused("ask the kernel", io::Error::from_raw_os_error(-error)));
    }
    Ok(options.retval.cast_signed())
}
