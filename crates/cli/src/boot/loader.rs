// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a machine's boot loader takes the kernel's parameters from, found by the files that each
//! loader has. Only GRUB's drop-ins can be written and removed without touching a line of others;
//! for all else `asmp boot` says what to do.

use asmp_host::Kernel;
use std::path::Path;

/// GRUB's directory of drop-ins.
pub const DROP_INS: &str = "/etc/default/grub.d";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loader {
    /// GRUB with drop-ins (Debian, Ubuntu).
    GrubDropIns,
    /// The command grubby (Fedora, Red Hat, SUSE with BLS).
    Grubby,
    /// GRUB with one file of settings.
    Grub,
    /// One line in this file (Raspberry Pi).
    CommandLineFile(&'static str),
    /// kernel-install, for systemd-boot and unified kernel images.
    KernelInstall,
    /// u-boot-menu, which writes extlinux.conf.
    UBootMenu,
    /// A boot menu that is written by hand.
    Extlinux(&'static str),
    Unknown,
}

/// The loader of this machine; the first that its files show.
pub fn find(kernel: &dyn Kernel) -> Loader {
    let has = |path: &str| kernel.exists(Path::new(path));
    let first = |paths: [&'static str; 2]| paths.into_iter().find(|path| has(path));
    if has(DROP_INS) {
        return Loader::GrubDropIns;
    }
    if first(["/usr/sbin/grubby", "/sbin/grubby"]).is_some() {
        return Loader::Grubby;
    }
    if let Some(file) = first(["/boot/firmware/cmdline.txt", "/boot/cmdline.txt"]) {
        return Loader::CommandLineFile(file);
    }
    if has("/etc/default/grub") {
        return Loader::Grub;
    }
    if has("/etc/kernel/cmdline") {
        return Loader::KernelInstall;
    }
    if has("/usr/sbin/u-boot-update") {
        return Loader::UBootMenu;
    }
    match first(["/boot/extlinux/extlinux.conf", "/boot/syslinux/syslinux.cfg"]) {
        Some(file) => Loader::Extlinux(file),
        None => Loader::Unknown,
    }
}

impl Loader {
    /// How people add `parameters` with this loader.
    pub fn how(self, parameters: &str) -> String {
        match self {
            Self::GrubDropIns => "sudo asmp boot enable --cpus LIST, then update-grub".to_owned(),
            Self::Grubby => {
                format!("grubby --update-kernel=ALL --args=\"{parameters}\" (undo: --remove-args)")
            }
            Self::Grub => format!(
                "add {parameters} to GRUB_CMDLINE_LINUX in /etc/default/grub, then run \
                 grub-mkconfig -o /boot/grub/grub.cfg"
            ),
            Self::CommandLineFile(file) => {
                format!("add {parameters} to the one line of {file}")
            }
            Self::KernelInstall => format!(
                "add {parameters} to /etc/kernel/cmdline, then run kernel-install add for each \
                 kernel (or kernel-install add-all)"
            ),
            Self::UBootMenu => format!(
                "add {parameters} to U_BOOT_PARAMETERS in /etc/default/u-boot, then run \
                 u-boot-update"
            ),
            Self::Extlinux(file) => format!("add {parameters} to each line APPEND of {file}"),
            Self::Unknown => format!("add {parameters} to the kernel's command line"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::fake::FakeKernel;

    #[test]
    fn each_loader_is_known_by_its_files_and_says_where_the_parameters_go() {
        for (file, word) in [
            ("/etc/default/grub.d/50-cloud.cfg", "update-grub"),
            ("/usr/sbin/grubby", "grubby --update-kernel=ALL --args=\"nohz_full=1\""),
            ("/etc/default/grub", "grub-mkconfig"),
            ("/boot/firmware/cmdline.txt", "one line of /boot/firmware/cmdline.txt"),
            ("/boot/cmdline.txt", "one line of /boot/cmdline.txt"),
            ("/etc/kernel/cmdline", "kernel-install"),
            ("/usr/sbin/u-boot-update", "U_BOOT_PARAMETERS"),
            ("/boot/extlinux/extlinux.conf", "APPEND of /boot/extlinux/extlinux.conf"),
            ("/etc/passwd", "the kernel's command line"),
        ] {
            let kernel = FakeKernel::new();
            kernel.set_file(file, "");
            let how = find(&kernel).how("nohz_full=1");
            assert!(how.contains(word), "{file}: {how}");
        }
    }

    #[test]
    fn grubby_goes_before_files_that_it_manages() {
        let kernel = FakeKernel::new();
        for file in ["/etc/default/grub", "/etc/kernel/cmdline", "/usr/sbin/grubby"] {
            kernel.set_file(file, "");
        }
        assert_eq!(find(&kernel), Loader::Grubby);
    }
}
