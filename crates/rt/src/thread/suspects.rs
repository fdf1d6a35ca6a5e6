// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a real-time section faulted or left the CPU: a sample of each by perf's software events on
//! the calling thread (`perf_event_open(2)`), in two buffers that are read when the section is
//! over. Where the kernel does not permit it there are counts only.

use crate::thread::memory::page_bytes;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// The first page fault or switch of a section, with its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspect {
    /// Touching `address` was a page fault.
    Fault { address: u64, instruction: u64, stack: Stack },
    /// The thread left the CPU: it slept, a call blocked, or it was preempted.
    Switch { instruction: u64, stack: Stack },
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault { address, instruction, stack } => {
                write!(f, "a page fault at {address:#x}, by {}", Place(*instruction, stack))
            }
            Self::Switch { instruction, stack } => {
                write!(f, "it left the CPU in {}", Place(*instruction, stack))
            }
        }
    }
}

/// Words of the stack that are sampled.
const WORDS: usize = 64;

/// The last words of the thread's stack, the last first: among them where its calls return to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stack([u64; WORDS]);

impl Stack {
    /// What is missing is 0, where no code is.
    pub(crate) fn of(words: impl IntoIterator<Item = u64>) -> Self {
        let mut all = [0; WORDS];
        all.iter_mut().zip(words).for_each(|(place, word)| *place = word);
        Self(all)
    }
}

/// An instruction of this process: the file it is from, its place there, and the function where the
/// file exports it, else the nearest caller in that file which it exports: since glibc 2.41 calls
/// block in a function without a name. Its code has no frame pointers, so the callers are the words
/// of the stack that lie in code. Calls the dynamic linker.
struct Place<'a>(u64, &'a Stack);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(instruction, Stack(words)) = self;
        let Some(Found { file, base, function }) = find(*instruction) else {
            return write!(f, "{instruction:#x}");
        };
        write!(f, "{}+{:#x}", file.to_string_lossy(), instruction - base)?;
        if let Some(function) = function {
            return write!(f, " ({})", function.to_string_lossy());
        }
        let code = executable();
        // The call before: at the end of a function the next one has another name.
        let calls = words.iter().map(|word| word.wrapping_sub(1));
        let calls = calls.filter(|call| code.iter().any(|part| part.contains(call)));
        // A caller in another file has a reason of its own for its calls.
        let mut here = calls.map_while(|call| find(call).filter(|found| found.base == base));
        match here.find_map(|found| found.function) {
            Some(caller) => write!(f, " (called by {})", caller.to_string_lossy()),
            None => Ok(()),
        }
    }
}

/// Where an address is.
struct Found {
    file: &'static CStr,
    base: u64,
    function: Option<&'static CStr>,
}

fn find(address: u64) -> Option<Found> {
    let none = std::ptr::null();
    let mut found = libc::Dl_info {
        dli_fname: none,
        dli_fbase: none.cast_mut().cast(),
        dli_sname: none,
        dli_saddr: none.cast_mut().cast(),
    };
    // SAFETY: dladdr looks the number up and follows it nowhere; it writes one structure of ours.
    let known = unsafe { libc::dladdr(address as *const libc::c_void, &raw mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a name that dladdr gave, of a file that stays loaded: its code has just run.
    let name = |name| unsafe { CStr::from_ptr(name) };
    let function = (!found.dli_sname.is_null()).then(|| name(found.dli_sname));
    Some(Found { file: name(found.dli_fname), base: found.dli_fbase as u64, function })
}

/// The addresses of all code.
fn executable() -> Vec<Range<u64>> {
    unsafe extern "C" fn add(
        file: *mut libc::dl_phdr_info,
        _: usize,
        all: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the linker gives a structure that is whole during this call.
        let file = unsafe { &*file };
        // SAFETY: the vector that was handed over below, which no other code uses meanwhile.
        let all = unsafe { &mut *all.cast::<Vec<Range<u64>>>() };
        if file.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the linker says where the headers are and how many.
        let parts =
            unsafe { std::slice::from_raw_parts(file.dlpi_phdr, usize::from(file.dlpi_phnum)) };
        let code = |part: &&libc::Elf64_Phdr| {
            part.p_type == libc::PT_LOAD && part.p_flags & libc::PF_X != 0
        };
        all.extend(parts.iter().filter(code).map(|part| {
            let start = file.dlpi_addr.wrapping_add(part.p_vaddr);
            start..start.wrapping_add(part.p_memsz)
        }));
        0
    }
    let mut all: Vec<Range<u64>> = Vec::new();
    // SAFETY: `add` gets the vector, which outlives the call, and does not unwind but for lack of
    // memory, which aborts.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut all).cast()) };
    all
}

/// Both events of the thread that made it.
#[derive(Debug)]
pub struct Suspects {
    faults: Log,
    switches: Log,
}

const PAGE_FAULTS: u64 = 2;
const CONTEXT_SWITCHES: u64 = 3;

impl Suspects {
    /// Six system calls; not for a real-time section. Errors: EACCES (perf_event_paranoid above 2),
    /// ENOENT and others.
    pub fn new() -> io::Result<Self> {
        Ok(Self { faults: Log::new(PAGE_FAULTS)?, switches: Log::new(CONTEXT_SWITCHES)? })
    }

    /// Forgets what was before. Bounded, no system call.
    pub fn clear(&self) {
        self.faults.clear();
        self.switches.clear();
    }

    /// The first fault since then, or if there was none, the first switch. Bounded, no system call.
    pub fn first(&self) -> Option<Suspect> {
        let fault = self.faults.first().map(|sample| {
            let Sample { address, instruction, stack } = sample;
            Suspect::Fault { address, instruction, stack }
        });
        let switch = || {
            let Sample { instruction, stack, .. } = self.switches.first()?;
            Some(Suspect::Switch { instruction, stack })
        };
        fault.or_else(switch)
    }
}

/// One event and its buffer: a page of positions, a page of records.
#[derive(Debug)]
struct Log {
    pages: NonNull<u8>,
    page_bytes: usize,
    _event: OwnedFd,
}

/// `struct perf_event_attr` as its third version had it (linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
}

const SOFTWARE: u32 = 1;
/// Instruction, address, call chain.
const SAMPLE_TYPE: u64 = 1 | 1 << 3 | 1 << 5;
const SAMPLE_STACK: u64 = 1 << 13;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
/// Positions in the first page: written by the kernel, and by us.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

impl Log {
    fn new(config: u64) -> io::Result<Self> {
        // Faults of the kernel on our behalf, if we may see them; switches are all in the kernel.
        let event = open(config, 0).or_else(|_| open(config, EXCLUDE_KERNEL))?;
        let page_bytes = page_bytes();
        let (rw, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let pages = unsafe {
            libc::mmap(std::ptr::null_mut(), 2 * page_bytes, rw, shared, event.as_raw_fd(), 0)
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pages = NonNull::new(pages.cast()).expect("no mapping is at 0");
        let log = Self { pages, page_bytes, _event: event };
        // The first touch of each page is here, not in a section.
        log.clear();
        log.byte(0);
        Ok(log)
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the first page.
        let place = unsafe { self.pages.add(at) };
        // SAFETY: an aligned word, which lives as long as `self`; the kernel shares it as an
        // atomic, as we do.
        unsafe { place.cast().as_ref() }
    }

    fn byte(&self, at: u64) -> u8 {
        let at = self.page_bytes + at as usize % self.page_bytes;
        // SAFETY: within the second page.
        let place = unsafe { self.pages.add(at) };
        // SAFETY: a byte of ours that the kernel may write at any time.
        unsafe { place.read_volatile() }
    }

    fn clear(&self) {
        // Acquire pairs with the kernel's write barrier before it moves the head; Release lets it
        // write there again.
        self.position(TAIL).store(self.position(HEAD).load(Acquire), Release);
    }

    fn first(&self) -> Option<Sample> {
        let tail = self.position(TAIL).load(Relaxed);
        // Acquire as above: the records up to the head are written.
        let held = self.position(HEAD).load(Acquire).wrapping_sub(tail).min(self.page_bytes as u64);
        let bytes: Vec<u8> = (0..held).map(|at| self.byte(tail.wrapping_add(at))).collect();
        Sample::first(&bytes)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that was made; nothing refers to it any more.
        unsafe { libc::munmap(self.pages.as_ptr().cast(), 2 * self.page_bytes) };
    }
}

/// With the stack, where the architecture can.
fn open(config: u64, exclude: u64) -> io::Result<OwnedFd> {
    let with_stack = Attributes {
        sample_type: SAMPLE_TYPE | SAMPLE_STACK,
        sample_stack_user: (WORDS * size_of::<u64>()) as u32,
        ..attributes(config, exclude)
    };
    open_with(&with_stack).or_else(|_| open_with(&attributes(config, exclude)))
}

fn attributes(config: u64, exclude: u64) -> Attributes {
    Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config,
        sample_period: 1,
        sample_type: SAMPLE_TYPE,
        flags: exclude | EXCLUDE_CALLCHAIN_KERNEL,
        ..Attributes::default()
    }
}

fn open_with(attributes: &Attributes) -> io::Result<OwnedFd> {
    let (this_thread, any_cpu, no_group, cloexec) = (0, -1, -1, 8);
    // SAFETY: the kernel reads one structure, whose size it is told.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            this_thread,
            any_cpu,
            no_group,
            cloexec,
        )
    };
    match i32::try_from(event) {
        // SAFETY: a descriptor that the kernel has just given us, owned once.
        Ok(event) if event >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(event) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    instruction: u64,
    address: u64,
    stack: Stack,
}

impl Sample {
    /// Of records as perf writes them: a header of type (u32), flags (u16), length (u16); then, of
    /// a sample, instruction, address, number of callers and the callers, among them marks of what
    /// they are (above -4096); then the bytes of the stack, the stack, and how much of it is real.
    fn first(mut records: &[u8]) -> Option<Self> {
        const SAMPLE: u32 = 9;
        loop {
            let kind = u32::from_ne_bytes(*records.first_chunk()?);
            let length = usize::from(u16::from_ne_bytes(*records.get(6..)?.first_chunk()?));
            let (record, others) = records.split_at_checked(length.max(8))?;
            if kind != SAMPLE {
                records = others;
                continue;
            }
            let (words, _) = record[8..].as_chunks::<8>();
            let [instruction, address, rest @ ..] = words else { return None };
            let number = |word: &[u8; 8]| u64::from_ne_bytes(*word);
            let callers = rest.first().map_or(0, number);
            let (callers, stack) =
                rest.get(1..).unwrap_or(&[]).split_at_checked(callers as usize).unwrap_or_default();
            let ours = callers.iter().map(number).find(|caller| *caller < -4095i64 as u64);
            let stack = stack.split_first().map_or(&[][..], |(bytes, words)| {
                let (stack, real) =
                    words.split_at_checked(number(bytes) as usize / 8).unwrap_or_default();
                let real_words = real.first().map_or(0, number) as usize / 8;
                stack.get(..real_words).unwrap_or(stack)
            });
            return Some(Self {
                instruction: ours.unwrap_or(number(instruction)),
                address: number(address),
                stack: Stack::of(stack.iter().map(number)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `None`, said: this machine does not permit it.
    fn suspects() -> Option<Suspects> {
        Suspects::new().inspect_err(|error| println!("skipped: perf_event_open: {error}")).ok()
    }

    #[test]
    fn a_fault_is_told_with_its_address_and_its_instruction() {
        let Some(suspects) = suspects() else { return };
        let (rw, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let fresh = unsafe { libc::mmap(std::ptr::null_mut(), 4096, rw, private, -1, 0) };
        assert_ne!(fresh, libc::MAP_FAILED);
        suspects.clear();
        // SAFETY: within the mapping.
        let byte = unsafe { fresh.cast::<u8>().add(777) };
        // SAFETY: the byte is mapped for writing.
        unsafe { byte.write_volatile(1) };
        let suspect = suspects.first();
        let Some(Suspect::Fault { address, .. }) = suspect else { panic!("{suspect:?}") };
        assert_eq!(address, byte as u64);
        let own = std::env::current_exe().unwrap();
        let (said, own) =
            (suspect.unwrap().to_string(), own.file_name().unwrap().to_str().unwrap().to_owned());
        assert!(
            said.starts_with("a page fault at 0x") && said.contains(&format!("{own}+0x")),
            "{said}"
        );
        suspects.clear();
        // It may have been preempted meanwhile.
        let left = suspects.first();
        assert!(!matches!(left, Some(Suspect::Fault { .. })), "{left:?}");
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(fresh, 4096) };
    }

    #[test]
    fn a_sleep_is_told_with_the_function_that_slept() {
        let Some(suspects) = suspects() else { return };
        if let Err(error) = open(CONTEXT_SWITCHES, 0) {
            // Opened without the kernel's part it has no samples: it is the kernel that switches.
            return println!("skipped: switches are counted only (perf_event_paranoid): {error}");
        }
        let sleep = |_| {
            suspects.clear();
            std::thread::sleep(std::time::Duration::from_millis(2));
            suspects.first().map(|suspect| suspect.to_string()).unwrap_or_default()
        };
        // On a busy machine it may be preempted before it sleeps, but not each time.
        let said: Vec<String> = (0..50).map(sleep).collect();
        assert!(said.iter().all(|said| said.starts_with("it left the CPU in ")), "{said:?}");
        assert!(said.iter().any(|said| said.contains("nanosleep")), "{said:?}");
    }

    #[test]
    fn a_function_without_a_name_is_told_by_its_nearest_caller_in_the_same_file() {
        let sleep = libc::clock_nanosleep as *const () as u64;
        let base = find(sleep).unwrap().base;
        let code = executable();
        let is_nameless = |at: &u64| {
            code.iter().any(|part| part.contains(at))
                && find(*at).is_some_and(|found| found.base == base && found.function.is_none())
        };
        // Between exported functions there are some that are not exported, or bytes of nothing.
        let nameless = (sleep..sleep + (1 << 20)).find(is_nameless).unwrap();
        let own = executable as *const () as u64;
        let said = |stack: &[u64]| Place(nameless, &Stack::of(stack.iter().copied())).to_string();
        let data = &raw const code as u64;
        let called = said(&[7, data, nameless + 1, sleep + 2, own + 2]);
        assert!(called.contains("libc") && called.ends_with("nanosleep)"), "{called}");
        assert!(called.contains(" (called by "), "{called}");
        for stack in [&[][..], &[data], &[own + 2, sleep + 2]] {
            let said = said(stack);
            assert!(!said.contains('('), "{said}");
        }
    }

    #[test]
    fn records_are_read_as_perf_writes_them_and_garbage_is_none() {
        let words =
            |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let header = |kind: u64, length: u64| kind | length << 48;
        let lost = words(&[header(2, 24), 1, 5]);
        let user = -512i64 as u64;
        let none = Stack::of([]);
        let sample = words(&[header(9, 48), 0xffff_8000, 0x7000, 2, user, 0x4321]);
        let found = Sample { instruction: 0x4321, address: 0x7000, stack: none };
        assert_eq!(Sample::first(&[&lost[..], &sample].concat()), Some(found));
        let alone = words(&[header(9, 32), 0x1234, 0x7000, 0]);
        let found = Sample { instruction: 0x1234, ..found };
        assert_eq!(Sample::first(&alone), Some(found));
        // Of three words of a stack two are real; of one without room none.
        let start = [0x1234, 0x7000, 2, user, 0x4321];
        let whole = words(&[&[header(9, 88)], &start[..], &[24, 5, 6, 7, 16]].concat());
        let found = Sample { instruction: 0x4321, stack: Stack::of([5, 6]), ..found };
        assert_eq!(Sample::first(&whole), Some(found));
        let empty = words(&[&[header(9, 56)], &start[..], &[0]].concat());
        assert_eq!(Sample::first(&empty), Some(Sample { stack: none, ..found }));
        // Numbers that lie are not followed out of the record.
        for lie in [9, u64::MAX] {
            let callers = words(&[header(9, 48), 0x1234, 0x7000, lie, user, 0x4321]);
            let found = Sample::first(&callers).unwrap();
            assert_eq!((found.instruction, found.stack), (0x1234, none));
            let stack = words(&[&[header(9, 72)], &start[..], &[lie, 5, 6]].concat());
            assert_eq!(Sample::first(&stack).unwrap().stack, none);
        }
        for cut in 0..sample.len() {
            assert_eq!(Sample::first(&sample[..cut]), None, "{cut}");
        }
        assert_eq!(Sample::first(&words(&[header(9, 8), 1])), None);
        // Records that say they are of no length are stepped over, not looked at for ever.
        assert_eq!(Sample::first(&[0; 800]), None);
    }
}
