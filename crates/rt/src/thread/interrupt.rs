// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts as messages, as L4 delivers them. An interrupt masks its line and becomes a message
//! to the one thread that handles it. The handler's reply unmasks the line.
//!
//! A line is a UIO device or a counter descriptor (eventfd or timerfd). The kernel masks a UIO
//! device in hardware; unmasking is a write to the device, or to the PCI command register with
//! `uio_pci_generic` ([`asmp_host::uio`]). A masked counter is not read, so the next message counts
//! events that came meanwhile. No event is lost, only the order of events on different lines.
//!
//! The handler thread makes two system calls a message (`poll`, `read`), and one or two more to
//! unmask a UIO line. It allocates nothing between messages.

use crate::thread::control::{Me, Task};
use crate::thread::refusal::Refusal;
use crate::thread::start::RealTime;
use asmp_host::clock::{monotonic_ns, thread_id};
use asmp_host::uio::PciCommand;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Why a line has no handler, or its handler ended.
#[derive(Debug, thiserror::Error)]
pub enum InterruptError {
    /// The line has a handler.
    #[error("{line} already has a handler: free it first")]
    Taken { line: String },

    /// The device cannot be opened.
    #[error(
        "{path}: {cause}: an interrupt needs a readable and writable UIO device (modprobe \
         uio_pdrv_genirq or uio_pci_generic, and bind the device)",
        path = path.display()
    )]
    Open { path: PathBuf, cause: io::Error },

    /// Reading or unmasking the line failed.
    #[error("{line}: {cause}")]
    Line { line: String, cause: io::Error },

    /// The handler thread cannot be started.
    #[error(transparent)]
    Thread(#[from] Refusal),
}

/// A source of interrupts.
#[derive(Debug)]
pub struct Line {
    file: File,
    name: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Reads 4 bytes, all events so far; a write of 1 unmasks, where it is not the PCI command
    /// register. The count at the last message, once there was one.
    Uio { last: Option<u32>, pci: Option<PciCommand> },
    /// Reads 8 bytes, the events since the last read.
    Counter,
}

impl Line {
    /// A UIO device by its path (`/dev/uio0`), exclusively for this process.
    pub fn uio(path: &Path) -> Result<Self, InterruptError> {
        let opened =
            File::options().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path);
        let file = opened.map_err(|cause| InterruptError::Open { path: path.to_owned(), cause })?;
        Self::uio_device(file.into(), &path.display().to_string())
    }

    /// A UIO device that is already open. flock(2) makes it exclusive among processes.
    pub fn uio_device(device: OwnedFd, name: &str) -> Result<Self, InterruptError> {
        // SAFETY: flock takes an open descriptor and no memory; `device` keeps it open.
        if unsafe { libc::flock(device.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let cause = io::Error::last_os_error();
            return Err(match cause.raw_os_error() {
                Some(libc::EWOULDBLOCK) => InterruptError::Taken { line: name.to_owned() },
                _ => InterruptError::Line { line: name.to_owned(), cause },
            });
        }
        let file = device.into();
        let pci = PciCommand::of(&file)
            .map_err(|cause| InterruptError::Line { line: name.to_owned(), cause })?;
        Ok(Self { file, name: name.to_owned(), kind: Kind::Uio { last: None, pci } })
    }

    /// An eventfd or a timerfd. It must have no other reader.
    pub fn counter(descriptor: OwnedFd, name: &str) -> Self {
        Self { file: descriptor.into(), name: name.to_owned(), kind: Kind::Counter }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Events since the last message.
    fn receive(&mut self) -> io::Result<u64> {
        match &mut self.kind {
            Kind::Uio { last, .. } => {
                let mut bytes = [0; 4];
                self.file.read_exact(&mut bytes)?;
                let total = u32::from_ne_bytes(bytes);
                // The count of the device before we opened it is unknown.
                let count = last.map_or(1, |last| u64::from(total.wrapping_sub(last)));
                *last = Some(total);
                Ok(count)
            }
            Kind::Counter => {
                let mut bytes = [0; 8];
                self.file.read_exact(&mut bytes)?;
                Ok(u64::from_ne_bytes(bytes))
            }
        }
    }

    fn unmask(&mut self) -> io::Result<()> {
        match &self.kind {
            Kind::Uio { pci: Some(command), .. } => command.unmask(),
            Kind::Uio { .. } => self.file.write_all(&1u32.to_ne_bytes()),
            Kind::Counter => Ok(()),
        }
    }
}

/// A message to the handler. The line is masked meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupt {
    /// Events since the last message, at least one.
    pub count: u64,
    /// When the handler thread received it, in ns of CLOCK_MONOTONIC.
    pub received_ns: u64,
}

/// The reply of the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Unmask,
    /// Keep the line masked until [`Handler::unmask`].
    KeepMasked,
}

/// The descriptors of lines that have a handler in this process.
static TAKEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// The exclusive right to one line, until dropped.
#[derive(Debug)]
struct Claim(RawFd);

impl Claim {
    fn of(line: &Line) -> Result<Self, InterruptError> {
        let own = line.file.as_raw_fd();
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.iter().any(|other| *other == own || is_same_file(*other, own)) {
            return Err(InterruptError::Taken { line: line.name.clone() });
        }
        taken.push(own);
        Ok(Self(own))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|taken| *taken != self.0);
    }
}

/// Whether two descriptors of this process refer to one open file (kcmp(2)). Without kcmp in the
/// kernel, duplicates are not found.
fn is_same_file(one: RawFd, other: RawFd) -> bool {
    const KCMP_FILE: libc::c_int = 0;
    let own = std::process::id() as libc::pid_t;
    // SAFETY: kcmp compares two descriptors by number and touches no memory of ours.
    unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            own,
            own,
            KCMP_FILE,
            one as libc::c_ulong,
            other as libc::c_ulong,
        ) == 0
    }
}

/// Wakes the handler thread for a request.
#[derive(Debug)]
struct Doorbell {
    bell: File,
    unmask: AtomicBool,
    stop: AtomicBool,
}

impl Doorbell {
    fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes two numbers.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and this is its only owner.
        let bell = unsafe { OwnedFd::from_raw_fd(descriptor) }.into();
        Ok(Self { bell, unmask: AtomicBool::new(false), stop: AtomicBool::new(false) })
    }

    fn ring(&self, what: &AtomicBool) {
        // Release: pairs with the Acquire swaps of the handler thread, which sees what was done
        // before the call.
        what.store(true, Ordering::Release);
        // With a full counter (WouldBlock) the thread is awake already.
        let _ = (&self.bell).write(&1u64.to_ne_bytes());
    }

    fn silence(&self) {
        let _ = (&self.bell).read(&mut [0; 8]);
    }
}

/// Starts handler threads.
#[derive(Debug)]
pub struct Interrupts;

impl Interrupts {
    /// Starts a handler thread, which owns the line. The line is unmasked when this returns.
    /// Errors: `Taken`, and those of [`RealTime::start`].
    pub fn handle<F>(
        mut line: Line,
        how: RealTime,
        mut handler: F,
    ) -> Result<Handler, InterruptError>
    where
        F: FnMut(Interrupt) -> Reply + Send + 'static,
    {
        let claim = Claim::of(&line)?;
        let name = line.name.clone();
        let failed = |cause| InterruptError::Line { line: name.clone(), cause };
        let doorbell = Arc::new(Doorbell::new().map_err(&failed)?);
        let bell = Arc::clone(&doorbell);
        // Before the thread has its first turn: an unmasking that met an interrupt under way could
        // undo its mask.
        line.unmask().map_err(failed)?;
        let task = how.start(&name, move |_: &Me| {
            let claim = claim;
            let result = serve(line, &bell, &mut handler);
            drop(claim);
            result
        })?;
        Ok(Handler { task: Some(task), doorbell })
    }
}

/// One message after the other until the doorbell says stop. Errors: the line's own.
fn serve(
    mut line: Line,
    doorbell: &Doorbell,
    handler: &mut dyn FnMut(Interrupt) -> Reply,
) -> io::Result<()> {
    let mut masked = false;
    loop {
        // Acquire: pairs with the Release in `Doorbell::ring`.
        if doorbell.stop.load(Ordering::Acquire) {
            return Ok(());
        }
        // Acquire: as above.
        if doorbell.unmask.swap(false, Ordering::Acquire) && masked {
            line.unmask()?;
            masked = false;
        }
        let (bell_rang, came) =
            wait_for(doorbell.bell.as_raw_fd(), (!masked).then_some(line.file.as_raw_fd()))?;
        if bell_rang {
            doorbell.silence();
        }
        if came {
            masked = true;
            let message = Interrupt { count: line.receive()?, received_ns: monotonic_ns() };
            if handler(message) == Reply::Unmask {
                line.unmask()?;
                masked = false;
            }
        }
    }
}

/// Sleeps until one of the descriptors has something: (the bell, the line). A line with an error
/// counts as ready, so that reading it tells the error.
fn wait_for(bell: RawFd, line: Option<RawFd>) -> io::Result<(bool, bool)> {
    // A negative descriptor is one that poll(2) leaves out.
    let of = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut both = [of(bell), of(line.unwrap_or(-1))];
    // SAFETY: the kernel reads and writes the two pollfds of `both`, which outlives the call.
    let ready = unsafe { libc::poll(both.as_mut_ptr(), both.len() as libc::nfds_t, -1) };
    match ready {
        0.. => Ok((both[0].revents != 0, both[1].revents != 0)),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok((false, false)),
            error => Err(error),
        },
    }
}

/// The handler thread of a line. Dropping it frees the line as [`Handler::free`] does, without a
/// result.
#[derive(Debug)]
pub struct Handler {
    task: Option<Task<io::Result<()>>>,
    doorbell: Arc<Doorbell>,
}

impl Handler {
    /// Unmasks a line that its handler kept masked. Any thread may call it. One system call, never
    /// blocks.
    pub fn unmask(&self) {
        self.doorbell.ring(&self.doorbell.unmask);
    }

    /// Ends the handler thread after its current message, and frees the line, which stays masked if
    /// it was. Blocks until then, except in the handler itself. Errors: an earlier error of the
    /// line (for example a removed device), or a panic of the handler.
    pub fn free(mut self) -> io::Result<()> {
        self.stop()
    }

    /// Whether the thread has ended by itself because the line failed.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(Task::is_finished)
    }

    fn stop(&mut self) -> io::Result<()> {
        let Some(task) = self.task.take() else { return Ok(()) };
        self.doorbell.ring(&self.doorbell.stop);
        if task.tid() == thread_id() {
            // The handler frees its own line: the thread ends when the handler has returned.
            return Ok(());
        }
        task.join().unwrap_or_else(|_| Err(io::Error::other("the interrupt handler panicked")))
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
