// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of a real (emulated) PCI device as messages: QEMU's `edu`, which interrupts when its
//! program tells it to, behind `uio_pci_generic`. The tests of `crates/rt` have a socket in the
//! device's place.

use super::guests::{Boot, On};
use super::lab::{Test, asmp, read, test, until};
use asmp_host::uio::PciCommand;
use asmp_rt::thread::{Handler, Interrupt, InterruptError, Interrupts, Line, RealTime, Reply};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

pub fn all() -> Vec<Test> {
    let uio = |name, run: fn()| {
        test(name, run).on(On::OnePerSeries).booted(&[Boot::Bare]).lacks(no_device)
    };
    vec![
        uio("uio: each interrupt of a device is one message to its handler", one_each),
        uio(
            "uio: before the reply nothing is delivered and after it all that came is one message",
            masked,
        ),
        uio("uio: a line kept masked stays so until somebody unmasks it", kept_masked),
        uio("uio: a device has one handler", one_handler),
        uio("uio: a line of a partition interrupts its cpu alone", line_of_partition),
        uio("uio: a device that goes ends its handler with an error", device_goes),
    ]
}

/// QEMU's `edu` as its specification has it: vendor and device, registers.
const IDENTITY: (&str, &str) = ("0x1234", "0x11e8");
const STATUS: usize = 0x24;
const RAISE: usize = 0x60;
const ACKNOWLEDGE: usize = 0x64;

const DRIVER: &str = "/sys/bus/pci/drivers/uio_pci_generic";
const PATIENCE: Duration = Duration::from_secs(180);

fn device() -> Option<PathBuf> {
    let all = fs::read_dir("/sys/bus/pci/devices").ok()?.flatten().map(|entry| entry.path());
    let is = |path: &Path, file: &str, wanted: &str| {
        fs::read_to_string(path.join(file)).is_ok_and(|text| text.trim() == wanted)
    };
    all.into_iter().find(|path| is(path, "vendor", IDENTITY.0) && is(path, "device", IDENTITY.1))
}

/// Binds the device once for all tests: a line that ever had a handler stays known to the kernel.
fn no_device() -> Option<&'static str> {
    let Some(device) = device() else { return Some("this QEMU has no edu device") };
    if !Path::new(DRIVER).exists() {
        let loaded = std::process::Command::new("modprobe").arg("uio_pci_generic").status();
        if !loaded.is_ok_and(|status| status.success()) {
            return Some("this kernel has no uio_pci_generic");
        }
        fs::write(Path::new(DRIVER).join("new_id"), "1234 11e8")
            .expect("the driver takes the device");
    }
    assert!(device.join("uio").exists(), "bound, but no UIO device");
    None
}

fn path() -> PathBuf {
    let device = device().expect("looked for before");
    let names = fs::read_dir(device.join("uio")).expect("bound").flatten();
    let name = names.map(|entry| entry.file_name()).next().expect("one device");
    Path::new("/dev").join(name)
}

/// The device's registers.
struct Edu(*mut AtomicU32);

// SAFETY: registers of a device, reached by single volatile-like accesses; any thread may.
unsafe impl Send for Edu {}

impl Edu {
    fn map() -> Self {
        let path = device().expect("looked for before").join("resource0");
        let file = File::options().read(true).write(true).open(path).expect("its registers");
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (flags, length) = (libc::MAP_SHARED, 4096);
        // SAFETY: a new mapping at a place of the kernel's choice; it stays until the tests end.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0)
        };
        assert_ne!(base, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(base.cast())
    }

    fn register(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `offset` is one of the constants above, within the page that was mapped for good.
        let place = unsafe { self.0.byte_add(offset) };
        // SAFETY: as above; 4-byte registers at multiples of 4.
        unsafe { &*place }
    }

    /// Interrupts until it is acknowledged.
    fn raise(&self) {
        self.register(RAISE).store(1, Relaxed);
    }

    fn acknowledge(&self) {
        self.register(ACKNOWLEDGE).store(1, Relaxed);
    }

    fn is_raised(&self) -> bool {
        self.register(STATUS).load(Relaxed) != 0
    }
}

/// How often the line has interrupted each CPU.
fn counted() -> Vec<u64> {
    let all = read("/proc/interrupts");
    let line = all.lines().find(|line| line.contains("uio_pci_generic")).expect("its line");
    let words = line.split_whitespace().skip(1);
    words.map_while(|word| word.parse().ok()).collect()
}

fn total() -> u64 {
    counted().iter().sum()
}

fn fifo() -> RealTime {
    RealTime::fifo(50).unlocked()
}

/// A handler that acknowledges, passes each message on and then waits for its reply from the test.
fn puppet() -> (Handler, Receiver<Interrupt>, Sender<Reply>) {
    let ((tell, told), (answer, answers)) = (channel(), channel());
    let edu = Edu::map();
    let handler =
        Interrupts::handle(Line::uio(&path()).expect("the device"), fifo(), move |interrupt| {
            edu.acknowledge();
            // Whoever has ended hears nothing.
            let _ = tell.send(interrupt);
            answers.recv().unwrap_or(Reply::KeepMasked)
        });
    (handler.expect("a handler"), told, answer)
}

fn one_each() {
    let (handler, told, answer) = puppet();
    let (edu, before) = (Edu::map(), total());
    for turn in 1..=200 {
        edu.raise();
        let message = told
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("no message for interrupt {turn}"));
        assert_eq!(message.count, 1, "interrupt {turn}");
        answer.send(Reply::Unmask).expect("the handler waits");
    }
    assert_eq!(total() - before, 200, "as the kernel counts");
    handler.free().expect("no error");
    assert!(told.try_recv().is_err(), "one message each, none more");
}

fn masked() {
    let (handler, told, answer) = puppet();
    let (edu, before) = (Edu::map(), total());
    let device = File::open(path()).expect("the device");
    let command = PciCommand::of(&device).expect("its files").expect("a PCI device");
    for turn in 1..=50 {
        edu.raise();
        assert_eq!(told.recv_timeout(PATIENCE).expect("a message").count, 1);
        // The handler has the message and has not replied: the device raises its line, and may not
        // interrupt.
        edu.raise();
        edu.raise();
        assert!(edu.is_raised() && command.is_masked().expect("its file"), "turn {turn}");
        assert_eq!(total() - before, 2 * turn - 1, "nothing was delivered");
        answer.send(Reply::Unmask).expect("the handler waits");
        assert_eq!(
            told.recv_timeout(PATIENCE).expect("a message").count,
            1,
            "a level, not a count"
        );
        assert_eq!(total() - before, 2 * turn);
        answer.send(Reply::Unmask).expect("the handler waits");
    }
    handler.free().expect("no error");
}

fn kept_masked() {
    let (handler, told, answer) = puppet();
    let edu = Edu::map();
    let device = File::open(path()).expect("the device");
    let command = PciCommand::of(&device).expect("its files").expect("a PCI device");
    edu.raise();
    told.recv_timeout(PATIENCE).expect("a message");
    answer.send(Reply::KeepMasked).expect("the handler waits");
    edu.raise();
    assert!(command.is_masked().expect("its file"));
    handler.unmask();
    told.recv_timeout(PATIENCE).expect("what came meanwhile");
    answer.send(Reply::Unmask).expect("the handler waits");
    until("unmasked", || !command.is_masked().expect("its file"));
    handler.free().expect("no error");
}

fn one_handler() {
    let (handler, ..) = puppet();
    assert!(matches!(Line::uio(&path()), Err(InterruptError::Taken { .. })));
    drop(handler);
    Line::uio(&path()).expect("free again");
}

fn line_of_partition() {
    asmp("create a --cpus 3 --irq uio_pci_generic").done();
    let (handler, told, answer) = puppet();
    let edu = Edu::map();
    let interrupt = || {
        edu.raise();
        told.recv_timeout(PATIENCE).expect("a message");
        answer.send(Reply::Unmask).expect("the handler waits");
    };
    // An IO-APIC line moves when its next interrupt has been served.
    interrupt();
    let before = counted();
    (0..20).for_each(|_| interrupt());
    let grown: Vec<u64> =
        counted().iter().zip(&before).map(|(after, before)| after - before).collect();
    assert_eq!(grown, [0, 0, 0, 20]);
    handler.free().expect("no error");
}

fn device_goes() {
    let (handler, ..) = puppet();
    let name = device().expect("looked for before").file_name().expect("a name").to_owned();
    let name = name.to_string_lossy().into_owned();
    fs::write(Path::new(DRIVER).join("unbind"), &name).expect("the driver lets it go");
    until("the handler has ended", || handler.is_finished());
    let error = handler.free().expect_err("its device is gone");
    fs::write(Path::new(DRIVER).join("bind"), &name).expect("the driver takes it again");
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
}
