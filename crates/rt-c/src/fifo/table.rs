// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The FIFOs of this process, in a table of fixed size, by number. Each end has a lock with
//! priority inheritance, which costs no system call while one thread at a time uses that end. Code
//! that takes both locks takes the one of the putting end first.

use crate::fifo::watch::Watcher;
use crate::fifo::{RTF_NO, RtfHandler};
use crate::why::number;
use asmp_channel::{Fifo, FifoReader, FifoWriter, Role, ShmError, Wake};
use asmp_rt::executive::PiMutex;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock};

/// One end of a FIFO: who it is once its role is taken.
pub trait End: Sized {
    const ROLE: Role;
    fn of(channel: Fifo) -> Result<Self, ShmError>;
    fn channel(&self) -> &Fifo;
}

impl End for FifoWriter {
    const ROLE: Role = Role::Writer;

    fn of(channel: Fifo) -> Result<Self, ShmError> {
        channel.into_writer(Wake::Never)
    }

    fn channel(&self) -> &Fifo {
        self.fifo()
    }
}

impl End for FifoReader {
    const ROLE: Role = Role::Reader;

    fn of(channel: Fifo) -> Result<Self, ShmError> {
        channel.into_reader(Wake::Never)
    }

    fn channel(&self) -> &Fifo {
        self.fifo()
    }
}

pub enum State<E> {
    /// Mapped; the role is not ours.
    Mapped(Fifo),
    Ours(E),
    /// The kernel refused a lock that it had given us.
    Lost,
}

pub struct Half<E> {
    pub state: State<E>,
    pub on_access: RtfHandler,
}

impl<E: End> Half<E> {
    /// The end, whose role is taken if it is not ours yet. One system call then. Errors: EBUSY,
    /// EIO.
    #[inline]
    pub fn end(&mut self) -> Result<&mut E, c_int> {
        if matches!(self.state, State::Mapped(_)) {
            self.take_role()?;
        }
        match &mut self.state {
            State::Ours(end) => Ok(end),
            _ => Err(-libc::EIO),
        }
    }

    #[cold]
    fn take_role(&mut self) -> Result<(), c_int> {
        let State::Mapped(channel) = &self.state else { return Ok(()) };
        // Asked for first, since what is refused below is lost.
        channel.shared().acquire(E::ROLE).map_err(|error| number(&error))?;
        if let State::Mapped(channel) = std::mem::replace(&mut self.state, State::Lost) {
            self.state = State::Ours(E::of(channel).map_err(|error| number(&error))?);
        }
        Ok(())
    }

    fn is_ours(&self) -> bool {
        matches!(self.state, State::Ours(_))
    }

    pub fn channel(&self) -> Result<&Fifo, c_int> {
        match &self.state {
            State::Mapped(channel) => Ok(channel),
            State::Ours(end) => Ok(end.channel()),
            State::Lost => Err(-libc::EIO),
        }
    }

    /// Is another thread or process in this role?
    fn is_elsewhere(&self) -> Result<bool, c_int> {
        Ok(!self.is_ours() && self.channel()?.shared().is_held(E::ROLE))
    }
}

/// Both ends; `None` where the FIFO is not created.
pub struct Halves {
    pub put: PiMutex<Option<Half<FifoWriter>>>,
    pub get: PiMutex<Option<Half<FifoReader>>>,
}

/// What is not created.
const NOT_THERE: c_int = -libc::EINVAL;

impl Halves {
    fn with_put<T>(
        &self,
        does: impl FnOnce(&mut Half<FifoWriter>) -> Result<T, c_int>,
    ) -> Result<T, c_int> {
        self.put.lock().as_mut().ok_or(NOT_THERE).and_then(does)
    }

    pub fn with_get<T>(
        &self,
        does: impl FnOnce(&mut Half<FifoReader>) -> Result<T, c_int>,
    ) -> Result<T, c_int> {
        self.get.lock().as_mut().ok_or(NOT_THERE).and_then(does)
    }

    /// Has another process one of the roles?
    pub fn is_open_elsewhere(&self) -> Result<bool, c_int> {
        Ok(self.with_put(|half| half.is_elsewhere())?
            || self.with_get(|half| half.is_elsewhere())?)
    }

    /// Is this process the one of that role?
    pub fn is_ours(&self, role: Role) -> bool {
        match role {
            Role::Writer => self.with_put(|half| Ok(half.is_ours())),
            _ => self.with_get(|half| Ok(half.is_ours())),
        }
        .unwrap_or(false)
    }

    pub fn is_empty(&self) -> Result<bool, c_int> {
        self.with_get(|half| match &half.state {
            State::Ours(reader) => Ok(reader.is_empty()),
            _ => Ok(half.channel()?.is_empty()),
        })
    }

    pub fn flush(&self) -> Result<(), c_int> {
        self.with_get(|half| {
            let was_ours = half.is_ours();
            let reader = half.end()?;
            let mut left = reader.fifo().capacity_bytes();
            let mut thrown = [0; 1024];
            while let Ok(count @ 1..) = reader.get(&mut thrown) {
                // Frames that come in meanwhile do not make it longer.
                left = left.saturating_sub(count);
                if left == 0 {
                    break;
                }
            }
            if !was_ours
                && let State::Ours(reader) = std::mem::replace(&mut half.state, State::Lost)
            {
                half.state = State::Mapped(reader.release());
            }
            Ok(())
        })
    }

    pub fn user_word(&self) -> Result<u32, c_int> {
        self.with_get(|half| Ok(half.channel()?.user_word().load(Relaxed)))
    }

    pub fn set_user_word(&self, value: u32) -> Result<(), c_int> {
        self.with_get(|half| {
            half.channel()?.user_word().store(value, Relaxed);
            Ok(())
        })
    }

    pub fn on_access(&self) -> Result<RtfHandler, c_int> {
        self.with_put(|half| Ok(half.on_access))
    }

    pub fn set_on_access(&self, handler: RtfHandler) -> Result<(), c_int> {
        self.with_put(|half| {
            half.on_access = handler;
            Ok(())
        })?;
        self.with_get(|half| {
            half.on_access = handler;
            Ok(())
        })
    }
}

/// What a number stands for. Its locks are made with its first FIFO and kept.
pub struct Slot {
    halves: OnceLock<Halves>,
    pub watcher: Mutex<Option<Watcher>>,
}

static SLOTS: [Slot; RTF_NO as usize] =
    [const { Slot { halves: OnceLock::new(), watcher: Mutex::new(None) } }; RTF_NO as usize];

/// Errors: ENODEV.
#[inline]
pub fn slot(fifo: c_uint) -> Result<&'static Slot, c_int> {
    usize::try_from(fifo).ok().and_then(|fifo| SLOTS.get(fifo)).ok_or(-libc::ENODEV)
}

impl Slot {
    /// Errors: EINVAL, never created.
    #[inline]
    pub fn halves(&self) -> Result<&Halves, c_int> {
        self.halves.get().ok_or(NOT_THERE)
    }

    pub fn is_there(&self) -> bool {
        self.halves.get().is_some_and(|halves| halves.put.lock().is_some())
    }

    /// Both ends, each with a mapping of its own. One caller at a time. Errors: ENOMEM, ENOTSUP: no
    /// such locks.
    pub fn place(&self, put: Fifo, get: Fifo) -> Result<(), c_int> {
        let halves = match self.halves.get() {
            Some(halves) => halves,
            None => {
                let error = |error: std::io::Error| -error.raw_os_error().unwrap_or(libc::ENOMEM);
                let (put, get) =
                    (PiMutex::new(None).map_err(error)?, PiMutex::new(None).map_err(error)?);
                self.halves.get_or_init(|| Halves { put, get })
            }
        };
        let mut both = (halves.put.lock(), halves.get.lock());
        *both.0 = Some(Half { state: State::Mapped(put), on_access: None });
        *both.1 = Some(Half { state: State::Mapped(get), on_access: None });
        Ok(())
    }

    /// Takes both ends out of their places and unmaps them, that with no lock held.
    pub fn clear(&self) {
        if let Some(halves) = self.halves.get() {
            let put = halves.put.lock().take();
            let get = halves.get.lock().take();
            drop((put, get));
        }
    }
}
