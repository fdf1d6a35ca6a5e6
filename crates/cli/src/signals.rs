// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals of a process that runs a command for its user: taken one by one from a descriptor, with
//! their sender. A signal that was ignored or blocked at start stays so, here and for the command.
//! And signals of a process that changes something by itself: noted, for it to end in order.

use libc::{SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use libc::{SIGPIPE, SIGWINCH, SIGXFSZ, c_int, sigset_t};
use signal_hook::flag;
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Signals that a user may mean for the command.
const PASSED_ON: [c_int; 9] =
    [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGCONT];

/// The terminal sends these to a whole process group.
const OF_TERMINAL: [c_int; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGWINCH, SIGCONT];

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub signal: c_int,
    /// The kernel sent it, not a process.
    pub by_kernel: bool,
}

impl Taken {
    /// By its default action it ends a process.
    fn ends(self) -> bool {
        ![SIGCHLD, SIGCONT, SIGWINCH].contains(&self.signal)
    }

    /// Is the command reached only if we pass it on? A terminal has sent its signals to the whole
    /// group `foreground` (`None`: unknown, there is no terminal any more).
    pub fn must_be_passed_on(self, own: c_int, command: c_int, foreground: Option<c_int>) -> bool {
        let by_terminal = self.by_kernel && OF_TERMINAL.contains(&self.signal);
        !(by_terminal && foreground.unwrap_or(own) == command)
    }
}

/// The signals of this process from now on. They stay blocked for the rest of its life, so that
/// none cuts an undoing short.
pub struct Signals {
    from: File,
    /// Blocked at start.
    before: sigset_t,
    ignored_child: bool,
}

impl Signals {
    /// Takes SIGCHLD and all signals for the command. Call before there is a second thread.
    pub fn take() -> io::Result<Self> {
        let before = mask(libc::SIG_BLOCK, &empty())?;
        let ignored_child = is_ignored(SIGCHLD);
        if ignored_child {
            // Else the status of the command would be lost.
            set_disposition(SIGCHLD, libc::SIG_DFL)?;
        }
        // SAFETY: reads a valid set.
        let is_blocked = |signal| unsafe { libc::sigismember(&before, signal) } == 1;
        let mut taken = empty();
        for signal in PASSED_ON.into_iter().filter(|one| !is_ignored(*one) && !is_blocked(*one)) {
            add(&mut taken, signal);
        }
        add(&mut taken, SIGCHLD);
        mask(libc::SIG_BLOCK, &taken)?;
        // SAFETY: a valid set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &taken, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let from = unsafe { File::from_raw_fd(fd) };
        Ok(Self { from, before, ignored_child })
    }

    /// The next signal; waits for it at most `patience` (`None`: for ever). `Ok(None)`: none came.
    pub fn next(&self, patience: Option<Duration>) -> io::Result<Option<Taken>> {
        let mut poll = libc::pollfd { fd: self.from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up, so that a wait never ends before its time.
        let wait = |time: Duration| c_int::try_from(time.as_micros().div_ceil(1000));
        let wait_ms = patience.map_or(-1, |time| wait(time).unwrap_or(c_int::MAX));
        // SAFETY: one valid pollfd.
        if unsafe { libc::poll(&mut poll, 1, wait_ms) } < 0 {
            return match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                error => Err(error),
            };
        }
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        match (&self.from).read(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        // SAFETY: a signalfd gives whole structures, every bit pattern of which is valid.
        let info: libc::signalfd_siginfo = unsafe { std::mem::transmute(bytes) };
        Ok(Some(Taken { signal: info.ssi_signo as c_int, by_kernel: info.ssi_code > 0 }))
    }

    /// A signal that has come and ends a process that does not handle it. Does not wait.
    pub fn ending(&self) -> io::Result<Option<c_int>> {
        while let Some(taken) = self.next(Some(Duration::ZERO))? {
            if taken.ends() {
                return Ok(Some(taken.signal));
            }
        }
        Ok(None)
    }

    /// For a shield: takes signals until there is one that ends a process, and gives that from then
    /// on.
    pub fn interrupt(self: &Arc<Self>) -> impl Fn() -> Option<c_int> + Send + Sync + 'static {
        let (signals, came) = (Arc::clone(self), AtomicI32::new(0));
        move || {
            if came.load(Relaxed) == 0
                && let Ok(Some(signal)) = signals.ending()
            {
                came.store(signal, Relaxed);
            }
            Some(came.load(Relaxed)).filter(|signal| *signal != 0)
        }
    }

    /// The command gets the signals as they were at start.
    pub fn keep_for(&self, command: &mut Command) {
        let (before, ignored_child) = (self.before, self.ignored_child);
        let as_at_start = move || {
            if ignored_child {
                set_disposition(SIGCHLD, libc::SIG_IGN)?;
            }
            mask(libc::SIG_SETMASK, &before).map(drop)
        };
        // SAFETY: sigaction(2) and sigprocmask(2) are async-signal-safe; nothing allocates.
        unsafe { command.pre_exec(as_at_start) };
        keep_ignored_pipe(command);
    }
}

/// Those that end a program that serves. One that was ignored at start stays so, as nohup(1) asks.
pub fn that_end() -> Vec<c_int> {
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|one| !is_ignored(*one)).collect()
}

/// SIGINT, SIGTERM, SIGHUP and SIGQUIT of a process that changes something by itself: they do not
/// end it, and are noted. One that was ignored at start stays so, as nohup(1) asks.
pub struct Noted {
    came: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Noted {
    pub fn take() -> io::Result<Self> {
        let (came, is_over) = (Arc::default(), Arc::default());
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|one| !is_ignored(*one))
        {
            flag::register_conditional_default(signal, Arc::clone(&is_over))?;
            flag::register_usize(signal, Arc::clone(&came), signal as usize)?;
        }
        Ok(Self { came, is_over })
    }

    /// The number of the last one that came.
    pub fn signal(&self) -> Option<c_int> {
        number(&self.came)
    }

    /// The same for a shield.
    pub fn interrupt(&self) -> impl Fn() -> Option<c_int> + Send + Sync + 'static {
        let came = Arc::clone(&self.came);
        move || number(&came)
    }

    /// From now on they end the process again.
    pub fn let_go(&self) {
        self.is_over.store(true, Relaxed);
    }
}

// Relaxed: a number alone.
fn number(came: &AtomicUsize) -> Option<c_int> {
    c_int::try_from(came.load(Relaxed)).ok().filter(|signal| *signal != 0)
}

/// Ends this process as the signal would have done: a shell script ends at a ^C only where its
/// command did. Returns if the signal ends no process.
pub fn end_by(signal: c_int) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

/// "SIGINT".
pub fn name(signal: c_int) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// From now on a write beyond the limit of a file's size (RLIMIT_FSIZE) fails with EFBIG, and a
/// change is undone: SIGXFSZ would end this process half way.
pub fn outlive_file_size_limit() -> io::Result<()> {
    if !is_ignored(SIGXFSZ) {
        flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// std ignores SIGPIPE in every program and gives commands the default back.
pub fn keep_ignored_pipe(command: &mut Command) {
    if PIPE_WAS_IGNORED.load(Relaxed) {
        // SAFETY: sigaction(2) is async-signal-safe; nothing allocates.
        unsafe { command.pre_exec(|| set_disposition(SIGPIPE, libc::SIG_IGN)) };
    }
}

/// Relaxed: written before the program has a second thread.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_pipe() {
    PIPE_WAS_IGNORED.store(is_ignored(SIGPIPE), Relaxed);
}

// Runs before std's own start, which ignores SIGPIPE.
// SAFETY: the section holds pointers to functions of this type; note_pipe needs nothing of std.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_PIPE: extern "C" fn() = note_pipe;

/// Does this process ignore the signal?
fn is_ignored(signal: c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: asks only; `now` has room for the answer.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: filled where the call succeeded.
    asked == 0 && unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Sets SIG_DFL or SIG_IGN. Async-signal-safe.
fn set_disposition(signal: c_int, disposition: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: both dispositions are no functions, so no handler can be called.
    match unsafe { libc::signal(signal, disposition) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Changes the mask of the calling thread; returns the one before. Async-signal-safe.
fn mask(how: c_int, set: &sigset_t) -> io::Result<sigset_t> {
    let mut before = empty();
    // SAFETY: two valid sets.
    match unsafe { libc::pthread_sigmask(how, set, &mut before) } {
        0 => Ok(before),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn empty() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: has room for a set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: sigemptyset has filled it.
    unsafe { set.assume_init() }
}

fn add(set: &mut sigset_t, signal: c_int) {
    // SAFETY: a valid set; the numbers are the kernel's own.
    unsafe { libc::sigaddset(set, signal) };
}

/// The foreground process group of the controlling terminal; `None` without one.
pub fn foreground() -> Option<c_int> {
    let terminal = File::open("/dev/tty").ok()?;
    // SAFETY: takes a number.
    let group = unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) };
    (group > 0).then_some(group)
}
