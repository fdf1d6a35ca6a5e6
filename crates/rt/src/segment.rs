//! Shared memory that carries one rt-FIFO between two processes: a file (`/dev/shm/asmp-NAME`), mapped by both.
//!
//! Layout (version 1, native byte order): magic, version, words (u64 each); at 64 the head; at 128 the tail; from 192
//! the words. Each position has a cache line of its own. The size is checked against the file before anything
//! is mapped and kept outside the shared memory afterwards. Who is writer or reader holds a lock of the file
//! (`flock` on a file beside it), which the kernel lets go when the process dies.

use crate::ring::{Overflow, Reader, Ring, Writer};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

const MAGIC: u64 = u64::from_ne_bytes(*b"ASMPFIFO");
const VERSION: u64 = 1;
const HEAD: usize = 64;
const TAIL: usize = 128;
const WORDS: usize = 192;

/// Why a segment cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    #[error("{name:?} cannot name a FIFO: use 1 to 64 letters, digits, '-' or '_'")]
    BadName { name: String },
    #[error("FIFO {name} exists already: attach to it, or choose another name")]
    NameTaken { name: String },
    #[error("no FIFO {name}: create it first")]
    Missing { name: String },
    #[error("{bytes} bytes: a FIFO holds 16 to 2^30")]
    BadSize { bytes: u64 },
    #[error("FIFO {name} is of another version or none at all: {found}")]
    Mismatch { name: String, found: String },
    #[error("FIFO {name} has its {role} already")]
    RoleTaken { name: String, role: &'static str },
    #[error("{path}: {cause}", path = path.display())]
    Io { path: PathBuf, cause: io::Error },
}

/// A mapped FIFO. Dropping it unmaps; the file stays until [`Segment::remove`].
pub struct Segment {
    base: NonNull<u8>,
    bytes: usize,
    words: usize,
    /// Held open for its lock: one writer, one reader.
    _role: Option<File>,
}

// SAFETY: the mapping belongs to the value and is reached only through atomics.
unsafe impl Send for Segment {}
// SAFETY: as above; shared references give out shared references to atomics.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes a FIFO of at least `capacity` bytes (frames and their lengths), mapped and pre-faulted. Errors:
    /// `BadName`, `NameTaken`, `BadSize`, `Io` (ENOSPC: no room in shared memory).
    pub fn create(dir: &Path, name: &str, capacity: u64) -> Result<Self, SegmentError> {
        let path = path_of(dir, name)?;
        if !(16..=1 << 30).contains(&capacity) {
            return Err(SegmentError::BadSize { bytes: capacity });
        }
        let words = capacity.div_ceil(8).next_power_of_two();
        let bytes = WORDS as u64 + words * 8;
        let io = |cause| SegmentError::Io { path: path.clone(), cause };
        // Whole before it has its name: whoever attaches never sees half of one.
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&new);
        let file = file.map_err(io)?;
        let made = allocate(&file, bytes).and_then(|()| {
            use std::os::unix::fs::FileExt;
            for (at, value) in [(0, MAGIC), (8, VERSION), (16, words)] {
                file.write_all_at(&value.to_ne_bytes(), at)?;
            }
            std::fs::hard_link(&new, &path)
        });
        let _ = std::fs::remove_file(&new);
        match made {
            Ok(()) => Self::map(&file, bytes as usize, words as usize).map_err(io),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(SegmentError::NameTaken { name: name.to_owned() })
            }
            Err(cause) => Err(io(cause)),
        }
    }

    /// Maps a FIFO that exists. Errors: `BadName`, `Missing`, `Mismatch`, `Io`.
    pub fn attach(dir: &Path, name: &str) -> Result<Self, SegmentError> {
        use std::os::unix::fs::FileExt;
        let path = path_of(dir, name)?;
        let io = |cause| SegmentError::Io { path: path.clone(), cause };
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SegmentError::Missing { name: name.to_owned() });
            }
            Err(cause) => return Err(io(cause)),
        };
        let mismatch = |found: String| SegmentError::Mismatch { name: name.to_owned(), found };
        let mut header = [0; 24];
        file.read_exact_at(&mut header, 0).map_err(|_| mismatch("shorter than a header".to_owned()))?;
        let number =
            |at: usize| header[at..at + 8].iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let number =
            |at: usize| if cfg!(target_endian = "big") { number(at).swap_bytes() } else { number(at) };
        if number(0) != MAGIC {
            return Err(mismatch("no FIFO of asmp".to_owned()));
        }
        if number(8) != VERSION {
            return Err(mismatch(format!("version {}, this is {VERSION}", number(8))));
        }
        let (words, length) = (number(16), file.metadata().map_err(io)?.len());
        if !words.is_power_of_two() || !(2..=1 << 27).contains(&words) || length != WORDS as u64 + words * 8 {
            return Err(mismatch(format!("{words} words in {length} bytes")));
        }
        Self::map(&file, length as usize, words as usize).map_err(io)
    }

    /// Forgets the name; whoever has it mapped goes on.
    pub fn remove(dir: &Path, name: &str) -> Result<(), SegmentError> {
        let path = path_of(dir, name)?;
        for role in ["writer", "reader"] {
            let _ = std::fs::remove_file(path.with_extension(role));
        }
        std::fs::remove_file(&path).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => SegmentError::Missing { name: name.to_owned() },
            _ => SegmentError::Io { path, cause },
        })
    }

    /// Becomes the one writer; a second one is refused while the first lives.
    pub fn writer(&mut self, dir: &Path, name: &str, overflow: Overflow) -> Result<Writer<'_>, SegmentError> {
        self.take(dir, name, "writer")?;
        Ok(Writer::attach(self.ring(), overflow))
    }

    /// Becomes the one reader; a second one is refused while the first lives.
    pub fn reader(&mut self, dir: &Path, name: &str) -> Result<Reader<'_>, SegmentError> {
        self.take(dir, name, "reader")?;
        Ok(Reader::attach(self.ring()))
    }

    fn take(&mut self, dir: &Path, name: &str, role: &'static str) -> Result<(), SegmentError> {
        let path = path_of(dir, name)?.with_extension(role);
        let io = |cause| SegmentError::Io { path: path.clone(), cause };
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(io)?;
        match file.try_lock() {
            Ok(()) => self._role = Some(file),
            Err(TryLockError::WouldBlock) => {
                return Err(SegmentError::RoleTaken { name: name.to_owned(), role });
            }
            Err(TryLockError::Error(cause)) => return Err(io(cause)),
        }
        Ok(())
    }

    fn map(file: &File, bytes: usize, words: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice; no memory of ours is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, bytes, words, _role: None })
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the mapping is page-aligned and longer than `WORDS`; the offsets are multiples of 8 below it, and
        // everybody reaches this memory through atomics.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    /// The ring in the mapping.
    pub fn ring(&self) -> Ring<'_> {
        // SAFETY: `words` words begin at `WORDS`, a multiple of 8, and end with the mapping (checked before it was
        // made, against the file's own length); everybody reaches them through atomics.
        let first = unsafe { self.base.add(WORDS) };
        // SAFETY: as above; the slice lives as long as the mapping, which `self` owns.
        let words = unsafe { std::slice::from_raw_parts(first.cast::<AtomicU64>().as_ptr(), self.words) };
        Ring::new(self.position(HEAD), self.position(TAIL), words).expect("a power of two, at least 2")
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that was made; all references to it have ended with `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Room on disk or in memory now, not when it is first touched. Errors: ENOSPC.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call takes numbers.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn path_of(dir: &Path, name: &str) -> Result<PathBuf, SegmentError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        return Err(SegmentError::BadName { name: name.to_owned() });
    }
    Ok(dir.join(format!("asmp-{name}")))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
    }

    #[test]
    fn a_name_is_taken_once_and_a_role_too() {
        let dir = dir();
        let at = dir.path();
        let mut first = Segment::create(at, "a", 1000).unwrap();
        assert!(matches!(Segment::create(at, "a", 1000), Err(SegmentError::NameTaken { .. })));
        assert!(matches!(Segment::attach(at, "b"), Err(SegmentError::Missing { .. })));
        assert!(matches!(Segment::create(at, "../a", 1000), Err(SegmentError::BadName { .. })));
        assert!(matches!(Segment::create(at, "c", 1 << 40), Err(SegmentError::BadSize { .. })));
        let mut second = Segment::attach(at, "a").unwrap();
        let writer = first.writer(at, "a", Overflow::Refuse).unwrap();
        let refused = second.writer(at, "a", Overflow::Refuse).map(drop);
        assert!(matches!(refused, Err(SegmentError::RoleTaken { role: "writer", .. })));
        let _ = writer;
        drop(first);
        assert!(second.writer(at, "a", Overflow::Refuse).is_ok(), "the role is free again");
        Segment::remove(at, "a").unwrap();
        assert!(matches!(Segment::remove(at, "a"), Err(SegmentError::Missing { .. })));
        assert_eq!(std::fs::read_dir(at).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn what_is_no_fifo_is_refused() {
        let dir = dir();
        let path = dir.path().join("asmp-a");
        let mismatch = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let error = Segment::attach(dir.path(), "a").map(drop).unwrap_err();
            assert!(matches!(error, SegmentError::Mismatch { .. }), "{error}");
        };
        mismatch(b"");
        mismatch(&[0; 4096]);
        drop(Segment::create(dir.path(), "b", 1000).unwrap());
        let good = std::fs::read(dir.path().join("asmp-b")).unwrap();
        mismatch(&good[..good.len() - 8]);
        for (at, value) in [(8, 2u64), (16, 3), (16, 1 << 40), (16, 64)] {
            let mut bytes = good.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            mismatch(&bytes);
        }
        std::fs::write(&path, good).unwrap();
        assert!(Segment::attach(dir.path(), "a").is_ok());
    }

    /// The other process of the tests below; they start it by name.
    #[test]
    #[ignore = "a part of the test beside it"]
    fn writes_for_ever() {
        let dir = PathBuf::from(std::env::var_os("ASMP_RT_TEST_DIR").unwrap());
        let mut segment = Segment::attach(&dir, "a").unwrap();
        let mut writer = segment.writer(&dir, "a", Overflow::DropOldest).unwrap();
        for number in 1u64.. {
            writer.put(&[number.to_ne_bytes(); 8].concat()).unwrap();
        }
    }

    #[test]
    fn a_writer_killed_at_any_moment_leaves_a_fifo_that_goes_on() {
        let dir = dir();
        let mut segment = Segment::create(dir.path(), "a", 4096).unwrap();
        let mut reader = segment.reader(dir.path(), "a").unwrap();
        let mut bytes = [0; 64];
        for round in 0..20u32 {
            let mut other = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "segment::tests::writes_for_ever", "--ignored"])
                .env("ASMP_RT_TEST_DIR", dir.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let (end, mut seen) = (Instant::now() + Duration::from_secs(20), 0);
            while seen < 1000 + round * 37 && Instant::now() < end {
                let count = reader.get(&mut bytes).unwrap();
                if count > 0 {
                    assert!(count == 64 && bytes.chunks(8).all(|word| word == &bytes[..8]), "a torn frame");
                    seen += 1;
                }
            }
            other.kill().unwrap();
            other.wait().unwrap();
            assert!(seen >= 1000, "round {round}: {seen} frames");
        }
    }
}
