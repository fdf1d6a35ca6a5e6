// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One sample, and the file they lie in.
//!
//! `samples.bin`: a header of 16 bytes (`ASMPSMP1`, record size as u32, 0 as u32), then records of
//! 56 bytes, little-endian: due, value, handler, system (u64 each, ns), six counts (u16), flags
//! (u32), thread (u64, ns). Files of older versions have records of 48 bytes, without the last.

use asmp_host::limited::open_regular;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"ASMPSMP1";
const RECORD: usize = 56;
const OLD_RECORD: usize = 48;
const HAS_HANDLER: u32 = 1;
const HAS_COUNTS: u32 = 2;
const HAS_THREAD: u32 = 4;

/// One wake-up, or one turn of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// t0: the instant the event was due, or the turn began; CLOCK_MONOTONIC.
    pub due_ns: u64,
    /// t3 - t0: until the task ran in user space (a kernel thread: in the kernel); or how long the
    /// turn took.
    pub value_ns: u64,
    /// t1 - t0: until the kernel's handler ran; `None` where it was not recorded.
    pub handler_ns: Option<u64>,
    /// t2 - t0: until the woken thread ran in the kernel; only timerlat knows.
    pub thread_ns: Option<u64>,
    /// Time that handlers and other tasks took within the window.
    pub system_ns: u64,
    /// What the CPU did within the window; `None` where it was not recorded.
    pub counts: Option<Counts>,
}

/// Events of one CPU in one window; 65535 means that or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub ticks: u16,
    pub device_interrupts: u16,
    pub ipis: u16,
    pub softirqs: u16,
    /// Switches to tasks other than the probe and idle.
    pub switches: u16,
    pub page_faults: u16,
}

impl Counts {
    const fn all(self) -> [u16; 6] {
        [
            self.ticks,
            self.device_interrupts,
            self.ipis,
            self.softirqs,
            self.switches,
            self.page_faults,
        ]
    }
}

impl Sample {
    fn to_bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let words = [self.due_ns, self.value_ns, self.handler_ns.unwrap_or(0), self.system_ns];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        for (place, count) in
            bytes[32..44].chunks_exact_mut(2).zip(self.counts.unwrap_or_default().all())
        {
            place.copy_from_slice(&count.to_le_bytes());
        }
        let flags = u32::from(self.handler_ns.is_some()) * HAS_HANDLER
            + u32::from(self.counts.is_some()) * HAS_COUNTS
            + u32::from(self.thread_ns.is_some()) * HAS_THREAD;
        bytes[44..48].copy_from_slice(&flags.to_le_bytes());
        bytes[48..].copy_from_slice(&self.thread_ns.unwrap_or(0).to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; RECORD]) -> Self {
        let word = |index: usize| {
            bytes[index * 8..index * 8 + 8]
                .iter()
                .rev()
                .fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        let count =
            |index: usize| u16::from_le_bytes([bytes[32 + index * 2], bytes[33 + index * 2]]);
        let flags = u32::from_le_bytes([bytes[44], bytes[45], bytes[46], bytes[47]]);
        let counts = Counts {
            ticks: count(0),
            device_interrupts: count(1),
            ipis: count(2),
            softirqs: count(3),
            switches: count(4),
            page_faults: count(5),
        };
        Self {
            due_ns: word(0),
            value_ns: word(1),
            handler_ns: (flags & HAS_HANDLER != 0).then_some(word(2)),
            thread_ns: (flags & HAS_THREAD != 0).then_some(word(6)),
            system_ns: word(3),
            counts: (flags & HAS_COUNTS != 0).then_some(counts),
        }
    }
}

/// Appends samples to a new file.
pub struct Writer {
    file: BufWriter<File>,
    pub written: u64,
}

impl Writer {
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::onto(File::create_new(path)?)
    }

    pub(crate) fn onto(file: File) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 16, file);
        file.write_all(MAGIC)?;
        file.write_all(&(RECORD as u32).to_le_bytes())?;
        file.write_all(&0u32.to_le_bytes())?;
        file.flush()?;
        Ok(Self { file, written: 0 })
    }

    pub fn push(&mut self, sample: Sample) -> io::Result<()> {
        self.file.write_all(&sample.to_bytes())?;
        self.written += 1;
        Ok(())
    }

    /// What was pushed outlives a kill. What finds no room now is tried again later.
    pub(crate) fn flush(&mut self) {
        let _ = self.file.flush();
    }

    /// Everything on disk: how many samples, and what kept the others out.
    pub fn finish(self) -> io::Result<(u64, Option<io::Error>)> {
        self.finish_with_room(0)
    }

    /// The same. Where there was no room, the last samples make `room_bytes` of it.
    pub(crate) fn finish_with_room(self, room_bytes: u64) -> io::Result<(u64, Option<io::Error>)> {
        let Self { file, written } = self;
        let (file, rest) = file.into_parts();
        let whole =
            rest.map_or(Ok(()), |rest| (&file).write_all(&rest)).and_then(|()| file.sync_all());
        let Err(error) = whole else { return Ok((written, None)) };
        let there = file.metadata()?.len().saturating_sub(16) / RECORD as u64;
        let kept = there.saturating_sub(room_bytes / RECORD as u64);
        // As many are read as are kept, also where the others cannot be cut off.
        let _ = file.set_len(16 + kept * RECORD as u64);
        Ok((kept, Some(error)))
    }
}

/// Why a file of samples cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    #[error("{path}: {cause}", path = path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error(
        "{path}: not a file of samples of this version: it must begin with ASMPSMP1",
        path = path.display()
    )]
    Magic { path: PathBuf },
    #[error(
        "{path}: cut short: {whole} whole samples of {expected}; measure again, or set `samples` \
         in run.json to {whole}",
        path = path.display()
    )]
    Truncated { path: PathBuf, whole: u64, expected: u64 },
}

/// Reads all of a file that must hold `expected` samples.
pub fn read(path: &Path, expected: u64) -> Result<Vec<Sample>, SampleError> {
    let mut samples = Vec::new();
    each(path, expected, |sample| samples.push(sample))?;
    Ok(samples)
}

/// The same, one sample after the other: only one is held in memory.
pub fn each(path: &Path, expected: u64, mut see: impl FnMut(Sample)) -> Result<(), SampleError> {
    let io = |cause| SampleError::Io { path: path.to_owned(), cause };
    let mut file = BufReader::with_capacity(1 << 16, open_regular(path).map_err(io)?);
    let mut header = [0; 16];
    let magic = || SampleError::Magic { path: path.to_owned() };
    file.read_exact(&mut header).map_err(|_| magic())?;
    let size =
        [RECORD, OLD_RECORD].into_iter().find(|size| header[8..12] == (*size as u32).to_le_bytes());
    let size = size.filter(|_| &header[..8] == MAGIC).ok_or_else(magic)?;
    let mut bytes = [0; RECORD];
    for whole in 0..expected {
        match file.read_exact(&mut bytes[..size]) {
            Ok(()) => see(Sample::from_bytes(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(SampleError::Truncated { path: path.to_owned(), whole, expected });
            }
            Err(cause) => return Err(io(cause)),
        }
    }
    Ok(())
}

/// Whole samples of a file that may lack its end.
pub(crate) fn whole(path: &Path) -> io::Result<u64> {
    Ok(open_regular(path)?.metadata()?.len().saturating_sub(16) / RECORD as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Sample> {
        let counts = Counts {
            ticks: 1,
            device_interrupts: 2,
            ipis: 3,
            softirqs: 4,
            switches: 5,
            page_faults: 65535,
        };
        vec![
            Sample {
                due_ns: 1,
                value_ns: u64::MAX,
                handler_ns: Some(7),
                thread_ns: Some(8),
                system_ns: 9,
                counts: Some(counts),
            },
            Sample { due_ns: 1 << 40, ..Sample::default() },
        ]
    }

    #[test]
    fn samples_come_back_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples.bin");
        let mut writer = Writer::create(&path).unwrap();
        samples().into_iter().for_each(|sample| writer.push(sample).unwrap());
        assert_eq!(writer.finish().unwrap().0, 2);
        assert_eq!(read(&path, 2).unwrap(), samples());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 16 + 2 * 56);
    }

    #[test]
    fn a_file_of_an_older_version_is_read_without_the_threads_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples.bin");
        let mut file = [MAGIC.as_slice(), &48u32.to_le_bytes(), &[0; 4]].concat();
        // As that version wrote it: it knew nothing of a thread's time, nor of its flag.
        let old: Vec<Sample> =
            samples().into_iter().map(|one| Sample { thread_ns: None, ..one }).collect();
        old.iter().for_each(|sample| file.extend_from_slice(&sample.to_bytes()[..48]));
        std::fs::write(&path, file).unwrap();
        assert_eq!(read(&path, 2).unwrap(), old);
    }

    #[test]
    fn a_file_that_was_cut_or_is_something_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples.bin");
        let mut writer = Writer::create(&path).unwrap();
        samples().into_iter().for_each(|sample| writer.push(sample).unwrap());
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let error = read(&path, 2).unwrap_err();
            match length {
                0..16 => assert!(matches!(error, SampleError::Magic { .. }), "{length}: {error}"),
                _ => assert!(matches!(error, SampleError::Truncated { .. }), "{length}: {error}"),
            }
        }
        std::fs::write(&path, b"ASMPSMP2\x30\0\0\0\0\0\0\0").unwrap();
        assert!(matches!(read(&path, 0), Err(SampleError::Magic { .. })));
    }
}
