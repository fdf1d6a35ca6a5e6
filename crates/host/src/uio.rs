// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one thing about UIO devices that differs between drivers: how the interrupt is unmasked.
//!
//! Most drivers unmask when 1 is written to the device (`irqcontrol`, driver-api/uio-howto.rst).
//! `uio_pci_generic` has no such function and answers ENOSYS: there the program itself clears the
//! bit of the PCI command register that the driver has set (same document, "Example code using
//! uio_pci_generic").

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::PathBuf;

/// The upper byte of the PCI command register, and INTx Disable in it (PCI 2.3).
const COMMAND_HIGH: u64 = 5;
const INTX_DISABLE: u8 = 4;

/// The PCI command register of a device, whose INTx line it masks.
#[derive(Debug)]
pub struct PciCommand(File);

impl PciCommand {
    /// Of an open UIO device; `None` where the driver unmasks itself. Errors: the files' own, no
    /// permission.
    pub fn of(device: &File) -> io::Result<Option<Self>> {
        let metadata = device.metadata()?;
        if !metadata.file_type().is_char_device() {
            return Ok(None);
        }
        let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
        let dir = PathBuf::from(format!("/sys/dev/char/{major}:{minor}"));
        match std::fs::read_to_string(dir.join("name"))?.trim() {
            "uio_pci_generic" => {
                let config =
                    File::options().read(true).write(true).open(dir.join("device/config"))?;
                Ok(Some(Self(config)))
            }
            _ => Ok(None),
        }
    }

    /// Lets the device interrupt again. Two system calls.
    pub fn unmask(&self) -> io::Result<()> {
        self.0.write_all_at(&[self.high()? & !INTX_DISABLE], COMMAND_HIGH)
    }

    /// Is the device kept from interrupting? One system call.
    pub fn is_masked(&self) -> io::Result<bool> {
        Ok(self.high()? & INTX_DISABLE != 0)
    }

    fn high(&self) -> io::Result<u8> {
        let mut byte = [0];
        self.0.read_exact_at(&mut byte, COMMAND_HIGH)?;
        Ok(byte[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_bit_changes() {
        let config = tempfile::tempfile().unwrap();
        config.write_all_at(&[1, 2, 3, 4, 5, 0xff, 7], 0).unwrap();
        let command = PciCommand(config);
        assert!(command.is_masked().unwrap());
        command.unmask().unwrap();
        let mut bytes = [0; 7];
        command.0.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 0xfb, 7]);
        assert!(!command.is_masked().unwrap());
    }

    #[test]
    fn what_is_no_device_has_no_command_register() {
        assert!(PciCommand::of(&tempfile::tempfile().unwrap()).unwrap().is_none());
        assert!(
            PciCommand::of(&File::open("/dev/null").unwrap()).is_err(),
            "a device without a name"
        );
    }
}
