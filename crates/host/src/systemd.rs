// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The delegated service under systemd: the part of its cgroup tree where others may make groups.
//!
//! systemd writes every cgroup it knows and switches off controllers that no unit needs, so our
//! groups lie below a service with `Delegate=cpuset`. systemd removes the group of a service
//! without processes, so one `sleep` holds it, in a group of its own: a group that hands threaded
//! controllers on may hold none itself. See systemd's CGROUP_DELEGATION document.

use crate::kernel::Kernel;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const SLICE: &str = "asmp.slice";
pub const SERVICE: &str = "asmp-holder.service";
/// What it was called before: a packaged daemon may have this name.
pub const FORMER_SERVICE: &str = "asmp.service";
const HOLDER: &str = "holder";

/// The service that holds our groups in the tree mounted there: the former one where an older asmp
/// has started it.
pub fn service(kernel: &dyn Kernel, mount: &Path) -> &'static str {
    let former = mount.join(SLICE).join(FORMER_SERVICE).join(HOLDER);
    if kernel.exists(&former) { FORMER_SERVICE } else { SERVICE }
}

/// Starts the service and moves its process into a group of its own. Does nothing where it runs.
pub(crate) fn start(mount: &Path) -> io::Result<()> {
    if mount.join(SLICE).join(FORMER_SERVICE).join(HOLDER).is_dir() {
        return Ok(());
    }
    let group = mount.join(SLICE).join(SERVICE);
    if !group.join(HOLDER).is_dir() {
        call(
            Command::new("systemd-run")
                .args(["--quiet", "--unit", SERVICE, "--slice", SLICE, "--collect"])
                .args(["--description", "Holds the cgroups of asmp's partitions"])
                .args([
                    "--property",
                    "Delegate=cpuset",
                    "--property",
                    "Type=exec",
                    "sleep",
                    "infinity",
                ]),
        )?;
        fs::create_dir(group.join(HOLDER))?;
        for process in fs::read_to_string(group.join("cgroup.procs"))?.lines() {
            fs::write(group.join(HOLDER).join("cgroup.procs"), process)?;
        }
    }
    Ok(())
}

/// Stops the service and its slice; systemd removes the groups. Does nothing where there is none.
pub(crate) fn stop(mount: &Path) -> io::Result<()> {
    let slice: PathBuf = mount.join(SLICE);
    if slice.join(SERVICE).is_dir() {
        call(Command::new("systemctl").args(["stop", SERVICE]))?;
    }
    // Only one with a holder is ours.
    if slice.join(FORMER_SERVICE).join(HOLDER).is_dir() {
        call(Command::new("systemctl").args(["stop", FORMER_SERVICE]))?;
    }
    if slice.is_dir() {
        call(Command::new("systemctl").args(["stop", SLICE]))?;
    }
    Ok(())
}

fn call(command: &mut Command) -> io::Result<()> {
    let Output { status, stderr, .. } = command.output()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&stderr).trim().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    #[test]
    fn the_service_of_an_older_asmp_is_still_ours_and_a_daemon_of_its_name_is_not() {
        let mount = Path::new("/sys/fs/cgroup");
        let (_root, linux) = machine(&[("sys/fs/cgroup/system.slice/asmp.service/x", "")]);
        assert_eq!(service(&linux, mount), "asmp-holder.service");
        let (_root, linux) = machine(&[("sys/fs/cgroup/asmp.slice/asmp.service/holder/x", "")]);
        assert_eq!(service(&linux, mount), "asmp.service");
    }
}
