// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared memory with a name, for channels between processes: a sealed memfd that all ends map.
//!
//! **Seals.** A peer that shortens the file would kill the real-time side with SIGBUS. After
//! `F_SEAL_SHRINK|GROW|SEAL` no process can change the size.
//!
//! **Names.** Each process that has the memory open creates a link to it in a directory: see
//! `names.rs`. The memory lives as long as one such process.
//!
//! **Header.** The first 64 bytes hold magic, version, kind and parameters. They are read once,
//! before the memory is mapped.
//!
//! **Roles.** A role (writer, reader, ...) is a lock on a byte of the file (`F_OFD_SETLK`). The
//! kernel releases it when its holder ends in any way. A forked child shares the locks, so closing
//! our descriptor alone would not release them: we unlock explicitly.
//!
//! **Rights.** The file has mode 0600. Who has it open for reading cannot open it again for
//! writing, nor map it so.

#[cfg(asan)]
#[path = "shm_fence.rs"]
mod fence;

use crate::names::{Link, Names, check_name};
use crate::sync::{self, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

const MAGIC: u64 = u64::from_ne_bytes(*b"ASMPCHAN");
const VERSION: u64 = 1;
/// Bytes before the body.
const HEADER: usize = 64;
/// Parameters that a channel keeps in its header, in words.
pub(crate) const PARAMETERS: usize = 4;
/// The largest channel, in bytes.
pub const MAX_CHANNEL_BYTES: u64 = 1 << 30;

/// The kind of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A FIFO.
    Fifo = 1,
    /// Shared memory, raw or with a record.
    Mbuff = 2,
    /// Calls to a server.
    Call = 3,
}

/// A role in a channel. One process at a time holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The one writer of a FIFO or record.
    Writer,
    /// The one reader of a FIFO.
    Reader,
    /// The server of a call channel.
    Server,
    /// The client in this slot of a call channel.
    Client(u8),
}

impl Role {
    fn noun(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Reader => "reader",
            Self::Server => "server",
            Self::Client(_) => "client",
        }
    }

    /// The byte of the file whose lock is the role, below 64.
    fn place(self) -> u32 {
        match self {
            Self::Writer => 0,
            Self::Reader => 1,
            Self::Server => 2,
            Self::Client(slot) => 16 + u32::from(slot),
        }
    }
}

/// The page size of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pages {
    /// The normal pages of the machine.
    #[default]
    Normal,
    /// 2 MiB pages, from the kernel's pool (`vm.nr_hugepages`).
    Huge,
}

/// Why shared memory could not be created or attached.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// The name is empty, too long or has other characters.
    #[error("invalid channel name {name:?}: use 1 to 64 letters, digits, '-' or '_'")]
    BadName { name: String },
    /// Another process has a channel of this name.
    #[error("channel {name} already exists: attach to it, or choose another name")]
    NameTaken { name: String },
    /// No process has a channel of this name.
    #[error("no channel {name} in {dir}: create the channel first", dir = dir.display())]
    NotFound { name: String, dir: PathBuf },
    /// The size is 0 or too large.
    #[error("{bytes} bytes is outside the limits of a channel: use {min} to {max}")]
    BadSize { bytes: u64, min: u64, max: u64 },
    /// The kernel has no memory for it, or a limit is too low.
    #[error("cannot allocate {bytes} bytes of shared memory: {cause}")]
    NoRoom {
        bytes: u64,
        #[source]
        cause: io::Error,
    },
    /// The channel has another kind, version, size or record.
    #[error("channel {name} does not match: {found}")]
    Mismatch { name: String, found: String },
    /// Another process, or another value of this one, holds the role.
    #[error("channel {name} already has a {role}")]
    RoleTaken { name: String, role: &'static str },
    /// The memory was offered for reading.
    #[error("channel {name} was offered for reading: offer it for writing too")]
    ReadOnly { name: String },
    /// Only processes have the channel whose descriptors this one may not open: they have
    /// capabilities or other user IDs (see ptrace(2), access mode checking).
    #[error(
        "channel {name} exists, but process {pid} has rights that this process lacks: \
         run both with the same rights, or let that one offer the channel on a Unix socket"
    )]
    Hidden { name: String, pid: u32 },
    /// The directory of names is not safe.
    #[error("{dir} {what}: {cure}", dir = dir.display())]
    ForeignDir { dir: PathBuf, what: &'static str, cure: &'static str },
    /// The directory of names is not there and cannot be created.
    #[error(
        "{dir}: cannot create this directory of names: {cause}: \
         set ASMP_CHANNELS to one that this user may create",
        dir = dir.display()
    )]
    NoDir {
        dir: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// A process held the lock of the directory for 10 s.
    #[error(
        "timed out: another process holds the lock of {dir}; resume or end it if it is stopped",
        dir = dir.display()
    )]
    DirLocked { dir: PathBuf },
    /// A system call failed.
    #[error("{path}: {cause}", path = path.display())]
    Io {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// Mapped shared memory with a name. Dropping it unmaps it, and removes this process's link.
#[derive(Debug)]
pub struct SharedMemory {
    name: String,
    kind: Kind,
    file: File,
    base: NonNull<u8>,
    /// Length of the whole mapping.
    bytes: usize,
    /// Length of the body that its creator asked for.
    asked: u64,
    parameters: [u64; PARAMETERS],
    link: Option<Link>,
    is_writable: bool,
    /// Bit n is set while we hold the role of place n.
    roles: AtomicU64,
    /// The roles of all values on this open file description, between which the kernel sees no
    /// conflict: those that `again` made.
    together: Arc<AtomicU64>,
    /// The process that owns link and roles: a forked child has a copy of this value.
    process: u32,
}

// SAFETY: the value owns the mapping, and gives out atomics, or pointers that are unsafe to use.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; shared references give out shared references to atomics.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates shared memory with a body of `bytes`, all of it allocated and mapped. Allocates and
    /// blocks: for set-up only. Errors: `BadName`, `NameTaken`, `Hidden`, `BadSize`, `NoRoom`,
    /// `ForeignDir`, `DirLocked`, `Io`.
    pub(crate) fn create(
        dir: &Path,
        name: &str,
        kind: Kind,
        bytes: u64,
        parameters: [u64; PARAMETERS],
        pages: Pages,
    ) -> Result<Self, ShmError> {
        check_name(name)?;
        if !(1..=MAX_CHANNEL_BYTES).contains(&bytes) {
            return Err(ShmError::BadSize { bytes, min: 1, max: MAX_CHANNEL_BYTES });
        }
        let names = Names::lock(dir)?;
        if names.find(name)?.is_some() {
            return Err(ShmError::NameTaken { name: name.to_owned() });
        }
        names.remove_dead();
        let whole = whole(bytes, pages);
        let file = memory(name, whole, pages).map_err(|cause| ShmError::NoRoom { bytes, cause })?;
        let mut header = [0; HEADER / 8];
        header[..4].copy_from_slice(&[MAGIC, VERSION, kind as u64, bytes]);
        header[4..].copy_from_slice(&parameters);
        let base =
            map(&file, whole as usize, true).map_err(|cause| ShmError::NoRoom { bytes, cause })?;
        for (at, word) in header.iter().enumerate() {
            // SAFETY: the mapping begins with HEADER bytes and is page-aligned.
            let place = unsafe { base.cast::<u64>().add(at) };
            // SAFETY: as above, and no other process has it yet.
            unsafe { place.write(*word) };
        }
        let sizes = (whole, bytes);
        Self::mapped(name, kind, file, base, sizes, parameters).linked(&names)
    }

    /// Maps an existing channel. Allocates and blocks: for set-up only. Errors: `BadName`,
    /// `NotFound`, `Hidden`, `Mismatch`, `NoRoom`, `ForeignDir`, `DirLocked`, `Io`.
    pub fn attach(dir: &Path, name: &str, kind: Kind) -> Result<Self, ShmError> {
        check_name(name)?;
        let missing = || ShmError::NotFound { name: name.to_owned(), dir: dir.to_owned() };
        let names = Names::lock_if_there(dir)?.ok_or_else(missing)?;
        let file = names.find(name)?.ok_or_else(missing)?;
        Self::open(file, name, kind)?.linked(&names)
    }

    /// Maps a channel from its descriptor. Creates no link. A descriptor that is open for reading
    /// gives memory for reading. A descriptor of an [`Offer`](crate::Offer) has roles of its own;
    /// any other copy of a descriptor shares them with its original. Errors: `BadName`, `Mismatch`,
    /// `NoRoom`, `Io`.
    pub fn from_fd(fd: OwnedFd, name: &str, kind: Kind) -> Result<Self, ShmError> {
        check_name(name)?;
        Self::open(File::from(fd), name, kind)
    }

    fn open(file: File, name: &str, kind: Kind) -> Result<Self, ShmError> {
        let io = |cause| ShmError::Io { path: PathBuf::from(name), cause };
        let mismatch = |found: String| ShmError::Mismatch { name: name.to_owned(), found };
        // SAFETY: the descriptor is open as long as `file`; the call takes and gives numbers.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return Err(mismatch("its size is not sealed".to_owned()));
        }
        let found = file.metadata().map_err(io)?;
        let length = found.len();
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)
            .map_err(|_| mismatch("it is shorter than a header".to_owned()))?;
        let (words, _) = header.as_chunks::<8>();
        let word = |at: usize| u64::from_ne_bytes(words[at]);
        if word(0) != MAGIC {
            return Err(mismatch("it is no channel of asmp".to_owned()));
        }
        if word(1) != VERSION {
            return Err(mismatch(format!(
                "it has version {}, this program has {VERSION}",
                word(1)
            )));
        }
        if word(2) != kind as u64 {
            return Err(mismatch(format!(
                "it is of kind {}, expected {} ({kind:?})",
                word(2),
                kind as u64
            )));
        }
        let bytes = word(3);
        let pages = [Pages::Normal, Pages::Huge];
        if !(1..=MAX_CHANNEL_BYTES).contains(&bytes)
            || !pages.map(|pages| whole(bytes, pages)).contains(&length)
        {
            return Err(mismatch(format!("its header says {bytes} bytes, its length is {length}")));
        }
        // What is not there yet would be taken from this process's share when it maps it.
        let there = found.blocks() * 512;
        if there < length {
            return Err(mismatch(format!(
                "of its {length} bytes of memory only {there} are there"
            )));
        }
        let parameters = [word(4), word(5), word(6), word(7)];
        // SAFETY: as above.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        let is_writable = flags & libc::O_ACCMODE == libc::O_RDWR;
        let base = map(&file, length as usize, is_writable)
            .map_err(|cause| ShmError::NoRoom { bytes, cause })?;
        let mut opened = Self::mapped(name, kind, file, base, (length, bytes), parameters);
        opened.is_writable = is_writable;
        Ok(opened)
    }

    /// Maps it a second time, by the same descriptor and without a link. The roles of both are one
    /// set: what one holds, the other cannot acquire. The header is not read again: a peer may have
    /// changed it. Allocates: for set-up only. Errors: `NoRoom`, `Io`.
    pub fn again(&self) -> Result<Self, ShmError> {
        let io = |cause| ShmError::Io { path: PathBuf::from(&self.name), cause };
        let no_room = |cause| ShmError::NoRoom { bytes: self.asked, cause };
        let file = self.file.try_clone().map_err(io)?;
        let base = map(&file, self.bytes, self.is_writable).map_err(no_room)?;
        let sizes = (self.bytes as u64, self.asked);
        let mut second = Self::mapped(&self.name, self.kind, file, base, sizes, self.parameters);
        second.is_writable = self.is_writable;
        second.together = Arc::clone(&self.together);
        Ok(second)
    }

    /// The kind of the channel.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether this process may write to it. If not, a store into it ends this process by SIGSEGV.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Whether this value holds a role.
    pub(crate) fn holds_a_role(&self) -> bool {
        self.roles.load(Relaxed) != 0
    }

    /// Opens the memory anew: what locks it holds are others than ours.
    pub(crate) fn open_again(&self, for_writing: bool) -> io::Result<File> {
        open_anew(&self.file, for_writing)
    }

    fn mapped(
        name: &str,
        kind: Kind,
        file: File,
        base: NonNull<u8>,
        (whole, asked): (u64, u64),
        parameters: [u64; PARAMETERS],
    ) -> Self {
        #[cfg(asan)]
        fence::close(base, whole as usize, asked);
        Self {
            name: name.to_owned(),
            kind,
            file,
            base,
            bytes: whole as usize,
            asked,
            parameters,
            link: None,
            is_writable: true,
            roles: AtomicU64::new(0),
            together: Arc::new(AtomicU64::new(0)),
            process: std::process::id(),
        }
    }

    fn linked(mut self, names: &Names) -> Result<Self, ShmError> {
        self.link = Some(names.link(&self.name, &self.file)?);
        Ok(self)
    }

    /// The name of the channel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The creator's parameters, as they were when it was attached. Each kind checks its own.
    pub(crate) fn parameters(&self) -> [u64; PARAMETERS] {
        self.parameters
    }

    /// The length of the body, from the size of the file.
    pub fn body_bytes(&self) -> usize {
        self.bytes - HEADER
    }

    /// The descriptor. For a process of another user take [`Offer`](crate::Offer): a copy of this
    /// one could release our roles.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The first byte of the body, aligned to 64 bytes. Any value may appear there at any time.
    pub(crate) fn body(&self) -> NonNull<u8> {
        // SAFETY: the mapping is longer than its header.
        unsafe { self.base.add(HEADER) }
    }

    /// `count` words of the body, from `offset` bytes on. Panics if they are not inside: never take
    /// an offset from the other side.
    #[inline]
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        assert!(
            offset.is_multiple_of(8) && count <= (self.body_bytes().saturating_sub(offset)) / 8
        );
        // SAFETY: inside the body (as asserted).
        let first = unsafe { self.body().add(offset) };
        // SAFETY: inside the body, aligned, mapped as long as `self`; all accesses are atomic.
        unsafe { sync::mapped_words(first.as_ptr().cast(), count) }
    }

    /// A half word of the body at `offset` bytes, for a futex. Panics as [`SharedMemory::words`].
    #[inline]
    pub fn futex_word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.body_bytes());
        // SAFETY: inside the body (as asserted).
        let place = unsafe { self.body().add(offset) };
        // SAFETY: as in `words`.
        unsafe { sync::mapped_futex(place.as_ptr().cast()) }
    }

    /// Acquires a role. One system call. Errors: `RoleTaken` (another holder is alive), `Io`.
    pub fn acquire(&self, role: Role) -> Result<(), ShmError> {
        let bit = 1 << role.place();
        let taken = || ShmError::RoleTaken { name: self.name.clone(), role: role.noun() };
        // Relaxed: no data goes with it; `drop` has exclusive access.
        let is_together = self.together.fetch_or(bit, Relaxed) & bit != 0;
        if is_together && self.roles.load(Relaxed) & bit == 0 {
            return Err(taken());
        }
        let mut lock = role_lock(role.place(), libc::F_WRLCK);
        // SAFETY: `lock` is a valid flock structure; the descriptor is open as long as `self`.
        match unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) } {
            0 => {
                self.roles.fetch_or(bit, Relaxed);
                Ok(())
            }
            _ => {
                let error = io::Error::last_os_error();
                self.together.fetch_and(!bit, Relaxed);
                Err(match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EACCES) => taken(),
                    Some(libc::EBADF) => ShmError::ReadOnly { name: self.name.clone() },
                    _ => ShmError::Io { path: PathBuf::from(&self.name), cause: error },
                })
            }
        }
    }

    /// Releases a role before the memory is unmapped. One system call.
    pub fn release(&self, role: Role) {
        self.roles.fetch_and(!(1 << role.place()), Relaxed);
        self.unlock(role.place());
    }

    fn unlock(&self, place: u32) {
        self.together.fetch_and(!(1 << place), Relaxed);
        let mut lock = role_lock(place, libc::F_UNLCK);
        // SAFETY: as in `take`.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) };
    }

    /// Whether another living process or value holds this role. One system call.
    pub fn is_held(&self, role: Role) -> bool {
        let others = self.together.load(Relaxed) & !self.roles.load(Relaxed);
        if others >> role.place() & 1 == 1 {
            return true;
        }
        let mut lock = role_lock(role.place(), libc::F_WRLCK);
        // SAFETY: as in `take`.
        let asked = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        asked == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let roles = self.roles.load(Relaxed);
            (0..u64::BITS)
                .filter(|place| roles >> place & 1 == 1)
                .for_each(|place| self.unlock(place));
            if let Some(link) = &self.link {
                link.remove();
            }
        }
        #[cfg(asan)]
        fence::open(self.base, self.bytes);
        // SAFETY: exactly our mapping; all references to it have ended with `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

pub(crate) const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

fn role_lock(place: u32, kind: i32) -> libc::flock {
    // SAFETY: all zeros is a valid flock structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = place.into();
    lock.l_len = 1;
    lock
}

/// A soft limit of this process (getrlimit(2)).
fn limit(which: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel writes one rlimit into a local.
    unsafe { libc::getrlimit(which, &raw mut limit) };
    limit.rlim_cur
}

/// Creates a sealed memfd with all pages allocated. Errors: ENOMEM, ENOSPC, EINVAL (no huge pages),
/// RLIMIT_FSIZE.
/// How long the memory of a channel is.
fn whole(bytes: u64, pages: Pages) -> u64 {
    let page = if pages == Pages::Huge { 2 << 20 } else { 4096 };
    (HEADER as u64 + bytes).next_multiple_of(page)
}

fn memory(name: &str, bytes: u64, pages: Pages) -> io::Result<File> {
    let limit = limit(libc::RLIMIT_FSIZE);
    if bytes > limit {
        // The kernel would not return an error, but kill this process by SIGXFSZ.
        return Err(io::Error::other(format!(
            "RLIMIT_FSIZE is {limit} bytes: raise it (ulimit -f)"
        )));
    }
    let name = std::ffi::CString::new(format!("asmp:{name}"))?;
    let huge = if pages == Pages::Huge { libc::MFD_HUGETLB | libc::MFD_HUGE_2MB } else { 0 };
    // SAFETY: the name is a C string that outlives the call.
    let fd = unsafe {
        libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | huge)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor from the kernel, which nothing else owns.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes)?;
    // SAFETY: the descriptor is open as long as `file`; the call takes numbers.
    let error = unsafe { libc::posix_fallocate(fd, 0, bytes as libc::off_t) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    // SAFETY: as above.
    match unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A new open file description of the same file, with no lock. Errors: those of open(2); EAGAIN
/// where another process has a lease on it (fcntl(2)), for which it does not wait.
pub(crate) fn open_anew(file: &File, for_writing: bool) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(for_writing).custom_flags(libc::O_NONBLOCK).open(path)
}

fn map(file: &File, bytes: usize, is_writable: bool) -> io::Result<NonNull<u8>> {
    let writes = if is_writable { libc::PROT_WRITE } else { 0 };
    #[cfg(not(asan))]
    let (address, fixed) = (std::ptr::null_mut(), 0);
    #[cfg(asan)]
    let (address, fixed) = (fence::reserve(bytes)?, libc::MAP_FIXED);
    // SAFETY: a new mapping, at an address of the kernel's choice or in reserved space: it replaces
    // no memory in use.
    let base = unsafe {
        libc::mmap(
            address,
            bytes,
            libc::PROT_READ | writes,
            libc::MAP_SHARED | libc::MAP_POPULATE | fixed,
            file.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(match io::Error::last_os_error() {
            // With mlockall(MCL_FUTURE) new memory is locked.
            error if error.raw_os_error() == Some(libc::EAGAIN) => {
                let limit = limit(libc::RLIMIT_MEMLOCK);
                io::Error::other(format!("RLIMIT_MEMLOCK is {limit} bytes: raise it (ulimit -l)"))
            }
            error => error,
        });
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

#[cfg(all(test, not(miri)))]
#[path = "shm_tests.rs"]
mod tests;
