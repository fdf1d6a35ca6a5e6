// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The delegated service under systemd: the part of its cgroup tree where others may make groups.
//!
//! systemd writes every cgroup it knows and switches off controllers that no unit needs, so our
//! groups lie below a service with `Delegate=cpuset`. systemd removes the group of a service
//! without processes, so one `sleep` holds it, in a group of its own: a group that hands threaded
//! controllers on may hold none itself. See systemd's CGROUP_DELEGATION document.

use crate::kernel::Kernel;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub const SLICE: &str = "asmp.slice";
pub const SERVICE: &str = "asmp-holder.service";
/// What it was called before: a packaged daemon may have this name.
pub const FORMER_SERVICE: &str = "asmp.service";
/// The group of the service's own process, beside those of the partitions.
pub const HOLDER: &str = "holder";

/// A service that is killed or stopped ends its own process only. A killed one starts again, and
/// systemd removes none of its groups meanwhile. systemd refuses these properties before 254.
const LASTING: [&str; 5] = [
    "DelegateSubgroup=holder",
    "KillMode=process",
    "Restart=always",
    "RestartMode=direct",
    "StartLimitIntervalSec=0",
];

/// The most that one job of systemd may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The service that holds our groups in the tree mounted there: the former one where an older asmp
/// has started it.
pub fn service(kernel: &dyn Kernel, mount: &Path) -> &'static str {
    let former = mount.join(SLICE).join(FORMER_SERVICE).join(HOLDER);
    if kernel.exists(&former) { FORMER_SERVICE } else { SERVICE }
}

/// Starts the service and moves its process into a group of its own. Does nothing where it runs.
///
/// Errors: what systemd says; a group with processes that are not the service's.
pub(crate) fn start(mount: &Path) -> io::Result<()> {
    if mount.join(SLICE).join(FORMER_SERVICE).join(HOLDER).is_dir() {
        return Ok(());
    }
    let group = mount.join(SLICE).join(SERVICE);
    if !group.join(HOLDER).is_dir() {
        // systemd starts a unit in a group that anybody made, beside the processes there.
        if group.is_dir() {
            own_processes(&group)?;
        }
        // It was stopped, and is not forgotten while tasks are in its groups.
        let again = || call(Command::new("systemctl").args(["start", SERVICE]), PATIENCE);
        if !group.is_dir() || again().is_err() {
            run_service(&LASTING).or_else(|error| match is_unknown(&error) {
                true => run_service(&[]),
                false => Err(error),
            })?;
        }
        if !group.join(HOLDER).is_dir() {
            fs::create_dir(group.join(HOLDER))?;
        }
        for process in own_processes(&group)? {
            fs::write(group.join(HOLDER).join("cgroup.procs"), process)?;
        }
    }
    Ok(())
}

/// The service's own process, if it is in the service's group itself.
///
/// Errors: another one is there.
fn own_processes(group: &Path) -> io::Result<Vec<String>> {
    let processes = fs::read_to_string(group.join("cgroup.procs"))?;
    if processes.is_empty() {
        return Ok(Vec::new());
    }
    let main = call(
        Command::new("systemctl").args(["show", "--property", "MainPID", "--value", SERVICE]),
        PATIENCE,
    )?;
    if let Some(other) = processes.lines().find(|process| *process != main.trim()) {
        let group = group.display();
        let words = format!("process {other} is in {group} and is not its own: move or end it");
        return Err(io::Error::other(words));
    }
    Ok(processes.lines().map(str::to_owned).collect())
}

/// Does this systemd not know a property?
fn is_unknown(error: &io::Error) -> bool {
    error.to_string().contains("Unknown assignment")
}

/// "Failed to stop asmp-holder.service: Unit asmp-holder.service not loaded."
fn is_not_loaded(error: &io::Error) -> bool {
    error.to_string().contains("not loaded") || error.kind() == io::ErrorKind::NotFound
}

fn run_service(more: &[&str]) -> io::Result<String> {
    let properties = ["Delegate=cpuset", "Type=exec"].iter().chain(more);
    let mut command = Command::new("systemd-run");
    command
        .args(["--quiet", "--unit", SERVICE, "--slice", SLICE, "--collect"])
        .args(["--description", "Holds the cgroups of asmp's partitions"])
        .args(properties.flat_map(|property| ["--property", property]))
        .args(["sleep", "infinity"]);
    call(&mut command, PATIENCE)
}

/// Stops the service, and its slice if no other unit is in it; systemd removes their groups. Where
/// there is no group, a start that an asmp asked for before it was killed may wait in systemd's
/// queue: stopping it ends that job. That systemd does not know the unit is no error.
pub(crate) fn stop(mount: &Path) -> io::Result<()> {
    let slice: PathBuf = mount.join(SLICE);
    let stopped = call(Command::new("systemctl").args(["stop", SERVICE]), PATIENCE);
    match stopped {
        Err(error) if slice.join(SERVICE).is_dir() || !is_not_loaded(&error) => return Err(error),
        _ => {}
    }
    // Only one with a holder is ours.
    if slice.join(FORMER_SERVICE).join(HOLDER).is_dir() {
        call(Command::new("systemctl").args(["stop", FORMER_SERVICE]), PATIENCE)?;
    }
    if slice.is_dir() && !has_groups(&slice)? {
        call(Command::new("systemctl").args(["stop", SLICE]), PATIENCE)?;
    }
    Ok(())
}

/// Is there a cgroup right below this one?
fn has_groups(group: &Path) -> io::Result<bool> {
    let mut entries = fs::read_dir(group)?;
    Ok(entries.any(|entry| entry.is_ok_and(|entry| entry.path().is_dir())))
}

/// What the command printed, which may fill no pipe.
///
/// Errors: what it printed as errors; `TimedOut` where it does not end within `patience`.
///
/// The command has a process group of its own: a ^C would end it while systemd goes on with the
/// job, and what undoes the job would come before it.
fn call(command: &mut Command, patience: Duration) -> io::Result<String> {
    let end = Instant::now() + patience;
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0);
    let own = std::process::id();
    // If asmp is killed it ends too, and asks systemd for nothing more.
    let die_together = move || {
        // SAFETY: takes numbers.
        let set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // SAFETY: takes nothing.
        match set == 0 && unsafe { libc::getppid() } as u32 == own {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: prctl(2) and getppid(2) are async-signal-safe; nothing allocates.
    unsafe { command.pre_exec(die_together) };
    let mut child = command.spawn()?;
    let mut nap = Duration::from_millis(1);
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < end => thread::sleep(nap),
            None => {
                child.kill()?;
                child.wait()?;
                let seconds = patience.as_secs_f64();
                let words = format!("no answer in {seconds} s: see `systemctl list-jobs`");
                return Err(io::Error::new(io::ErrorKind::TimedOut, words));
            }
        }
        nap = (nap * 2).min(Duration::from_millis(20));
    };
    let mut words = String::new();
    match (status.success(), child.stdout.take(), child.stderr.take()) {
        (true, Some(mut stdout), _) => stdout.read_to_string(&mut words)?,
        (_, _, Some(mut stderr)) => stderr.read_to_string(&mut words)?,
        _ => 0,
    };
    match status.success() {
        true => Ok(words),
        false => Err(io::Error::other(words.trim().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    #[test]
    fn a_signal_of_the_terminal_does_not_reach_what_systemd_is_asked_by() {
        let mut asks = Command::new("sh");
        // The fields after the name of a process: state, parent, process group.
        let is_leader = "read -r line </proc/$$/stat; set -- ${line##*) }; test $3 = $$";
        call(asks.args(["-c", is_leader]), PATIENCE).unwrap();
    }

    #[test]
    fn a_command_that_does_not_end_is_given_up_and_one_that_fails_says_why() {
        let error = call(Command::new("sleep").arg("600"), Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("list-jobs"), "{error}");
        let mut fails = Command::new("sh");
        let error = call(fails.args(["-c", "echo no such unit >&2; exit 5"]), PATIENCE);
        assert_eq!(error.unwrap_err().to_string(), "no such unit");
        let said = call(Command::new("echo").arg("7"), PATIENCE);
        assert_eq!(said.unwrap(), "7\n");
    }

    #[test]
    fn a_slice_with_another_unit_is_seen() {
        let slice = tempfile::tempdir().unwrap();
        fs::write(slice.path().join("cgroup.procs"), "").unwrap();
        assert!(!has_groups(slice.path()).unwrap());
        fs::create_dir(slice.path().join("other.service")).unwrap();
        assert!(has_groups(slice.path()).unwrap());
    }

    #[test]
    fn the_service_of_an_older_asmp_is_still_ours_and_a_daemon_of_its_name_is_not() {
        let mount = Path::new("/sys/fs/cgroup");
        let (_root, linux) = machine(&[("sys/fs/cgroup/system.slice/asmp.service/x", "")]);
        assert_eq!(service(&linux, mount), "asmp-holder.service");
        let (_root, linux) = machine(&[("sys/fs/cgroup/asmp.slice/asmp.service/holder/x", "")]);
        assert_eq!(service(&linux, mount), "asmp.service");
    }
}
