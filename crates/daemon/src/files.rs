// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree of files in /run/asmp/fs, with the kernel's FUSE (filesystems/fuse.rst). Any user may
//! read it; only root may write, which the kernel checks.
//!
//! Problem:  a file system that does not answer keeps each process that looks at it waiting.
//! Approach: one thread answers, from the state and the kernel's files, and waits for nothing. A
//!           write is a change of partitions, and that may last. It is left to the thread that
//!           repairs, and answered when that is done; meanwhile others are answered.

use crate::board::Board;
use crate::log::Entry;
use crate::open::{Entries, Open, OpenFile, sum_of};
use crate::socket::own_directory;
use crate::texts::Texts;
use crate::tree::{Inodes, Node, View};
use crate::work::{Refused, Work};
use crate::written::{self, Written, errno};
use asmp_host::clock::utc;
use asmp_host::shown::shown;
use asmp_shield::Shield;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, Notifier, OpenFlags, PollEvents,
    PollFlags, PollHandle, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyPoll, ReplyWrite, Request, Session,
    SessionACL, TimeOrNow, WriteFlags,
};
use rustix::mount::{UnmountFlags, unmount};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use std::{fs, io};

/// The place of the tree, in [`asmp_shield::RUN_DIR`].
pub const NAME: &str = "fs";

/// Who waits for a write is a client with this bit; those of the socket have none.
pub const OF_FILES: u64 = 1 << 63;

/// Programs that write by the C library write pieces of this size: longer than what is taken.
const BLOCK_BYTES: u32 = 64 << 10;

/// The kernel asks again each time: a name may be of another partition by now.
const NOT_KEPT: Duration = Duration::ZERO;

/// The mounted tree. Dropped, it is gone, also for those who have files open.
pub struct Files {
    dir: PathBuf,
    shared: Arc<Shared>,
    notifier: Notifier,
    _session: BackgroundSession,
}

struct Shared {
    texts: Texts,
    board: Arc<Board>,
    inodes: Inodes,
    started: SystemTime,
    waiting: Mutex<Waiting>,
    open: Mutex<Open>,
    /// What was so when the state could be read.
    last: Mutex<Arc<View>>,
}

/// Writes that are under way.
#[derive(Default)]
struct Waiting {
    last: u64,
    writes: BTreeMap<u64, (ReplyWrite, u32)>,
}

impl Files {
    /// Mounts the tree in a directory of `run`, and answers from a thread of its own. A tree that
    /// an asmpd left there which was killed is taken away. Errors: in words.
    pub fn mount(run: &Path, shield: Shield, board: Arc<Board>) -> Result<Self, String> {
        own_directory(run)?;
        let dir = run.join(NAME);
        while unmount(&dir, UnmountFlags::DETACH).is_ok() {}
        own_directory(&dir)?;
        let shared = Arc::new(Shared {
            texts: Texts::new(shield, Arc::clone(&board)),
            board,
            inodes: Inodes::default(),
            started: SystemTime::now(),
            waiting: Mutex::default(),
            open: Mutex::default(),
            last: Mutex::default(),
        });
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("asmpd".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoExec,
            MountOption::NoAtime,
        ];
        config.acl = SessionACL::All;
        let session = Session::new(Tree(Arc::clone(&shared)), &dir, &config)
            .and_then(Session::spawn)
            .map_err(|error| format!("{}: {error}", dir.display()))?;
        let notifier = session.notifier();
        Ok(Self { dir, shared, notifier, _session: session })
    }

    /// What came of a write.
    pub fn reply(&self, client: u64, came: &Result<(), Refused>) {
        let waited = self.shared.waiting().writes.remove(&client);
        match (waited, came) {
            (Some((reply, bytes)), Ok(())) => reply.written(bytes),
            (Some((reply, _)), Err(refused)) => {
                reply.error(Errno::from_i32(errno(refused.code).raw_os_error()));
            }
            (None, _) => {}
        }
    }

    /// Something may have changed: who waits for that is woken, and looks again.
    pub fn changed(&self) {
        let woken = self.shared.open().take_waiting();
        for handle in woken {
            // It may have been closed.
            let _ = self.notifier.poll(handle);
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for (_, (reply, _)) in std::mem::take(&mut self.shared.waiting().writes) {
            reply.error(Errno::from_i32(rustix::io::Errno::CONNABORTED.raw_os_error()));
        }
        // Also where files are open, or directories in use.
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.dir);
    }
}

/// As `asmp events` prints it. Any process may choose its name: none begins another line.
fn line_of_event(event: &Entry) -> String {
    format!("{} UTC  {}\n", utc(event.time_us / 1_000_000), shown(&event.text))
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node of a number, as of now. Errors: `gone`, or EIO where the state cannot be read and
    /// the file does not tell of that.
    fn at(&self, number: INodeNo, gone: Errno) -> Result<(Arc<View>, Node), Errno> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(view) = self.texts.view() else {
            let view = Arc::clone(&last);
            return match self.inodes.node(&view, number.0) {
                Some(node @ (Node::Root | Node::Events | Node::Metrics)) => Ok((view, node)),
                _ => Err(Errno::EIO),
            };
        };
        *last = Arc::clone(&view);
        drop(last);
        let node = self.inodes.node(&view, number.0).ok_or(gone)?;
        Ok((view, node))
    }

    fn attributes(&self, view: &View, node: &Node) -> FileAttr {
        let (kind, perm, nlink) = match (node.is_directory(), node.is_written()) {
            (true, _) => (FileType::Directory, 0o555, 2),
            (false, true) => (FileType::RegularFile, 0o644, 1),
            (false, false) => (FileType::RegularFile, 0o444, 1),
        };
        // As ls -l shows it.
        let time = match node {
            Node::Events => SystemTime::UNIX_EPOCH
                .checked_add(Duration::from_micros(self.board.last_event_us()))
                .map_or(self.started, |last| last.max(self.started)),
            _ => self.started,
        };
        FileAttr {
            ino: INodeNo(self.inodes.number(view, node)),
            // As in /proc: what is to be read is known when it is read.
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    /// As many of the events that were not read yet as have room: the bytes, those that found no
    /// room, and the number of the last event.
    fn more_events(
        &self,
        mut seen: Option<u64>,
        mut bytes: Vec<u8>,
        room: usize,
    ) -> (Vec<u8>, Vec<u8>, Option<u64>) {
        while bytes.len() < room {
            // Where some were not read in time, the oldest that are kept come next.
            let found = self.board.events(seen, 16).or_else(|| self.board.events(None, 16));
            let Some((after, events)) = found else { break };
            seen = Some(events.last().map_or(after, |event| event.number));
            if events.is_empty() {
                break;
            }
            bytes.extend(events.iter().flat_map(|event| line_of_event(event).into_bytes()));
        }
        let rest = bytes.split_off(bytes.len().min(room));
        (bytes, rest, seen)
    }

    /// Is there something that was not read yet? `None`: its partition has ended.
    fn is_news(&self, number: u64, seen: Option<u64>) -> Option<bool> {
        let (view, node) = self.at(INodeNo(number), Errno::ENODEV).ok()?;
        if node == Node::Events {
            let found = self.board.events(seen, 1);
            return Some(found.is_none_or(|(_, events)| !events.is_empty()));
        }
        let now = self.texts.of(&view, &node)?;
        Some(seen != Some(sum_of(&now)))
    }

    fn read(&self, number: INodeNo, handle: u64, from: u64, room: u32) -> Result<Vec<u8>, Errno> {
        let (view, node) = self.at(number, Errno::ENODEV)?;
        let (from, room) = (usize::try_from(from).unwrap_or(usize::MAX), room as usize);
        if node == Node::Events {
            let of = |file: &mut OpenFile| (file.seen, std::mem::take(&mut file.rest));
            let (seen, rest) = self.open().get(handle).map(of)?;
            let (bytes, rest, seen) = self.more_events(seen, rest, room);
            let mut open = self.open();
            let file = open.get(handle)?;
            (file.seen, file.rest) = (seen, rest);
            return Ok(bytes);
        }
        let kept = self.open().get(handle)?.text(from);
        let text = match kept {
            Some(text) => text,
            None => self.texts.of(&view, &node).ok_or(Errno::EISDIR)?,
        };
        Ok(self.open().get(handle)?.piece(&text, from, room))
    }

    /// The entries of a directory from a place on.
    fn entries(
        &self,
        number: INodeNo,
        handle: u64,
        from: u64,
    ) -> Result<(Arc<View>, Entries), Errno> {
        let (view, node) = self.at(number, Errno::ENOENT)?;
        let mut open = self.open();
        let file = open.get(handle)?;
        let entries = file.entries(from).unwrap_or_else(|| {
            let own = [(".".to_owned(), node.clone()), ("..".to_owned(), node.parent())];
            own.into_iter().chain(node.children(&view)).collect()
        });
        file.keep_entries(&entries);
        Ok((view, entries))
    }

    fn poll(&self, handle: u64, waits: Option<PollHandle>) -> PollEvents {
        // First who waits, then what there is: nothing comes in between unseen.
        let noted = self.open().get(handle).map(|file| {
            if waits.is_some() {
                file.waits = waits;
            }
            (file.number, file.seen, !file.rest.is_empty())
        });
        let Ok((number, seen, has_rest)) = noted else { return PollEvents::POLLERR };
        let is_polled = self.at(INodeNo(number), Errno::ENODEV).map(|(_, node)| node.is_polled());
        let readable = PollEvents::POLLIN | PollEvents::POLLRDNORM;
        match (is_polled, self.is_news(number, seen)) {
            // As a file on a disk.
            (Ok(false), _) => PollEvents::POLLIN | PollEvents::POLLOUT,
            // A read says so.
            (Err(error), _) if error.code() == Errno::EIO.code() => readable | PollEvents::POLLERR,
            (Err(_), _) | (_, None) => {
                readable | PollEvents::POLLPRI | PollEvents::POLLERR | PollEvents::POLLHUP
            }
            (_, Some(is_news)) if is_news || has_rest => readable | PollEvents::POLLPRI,
            _ => PollEvents::empty(),
        }
    }
}

/// What the kernel asks of a file system.
struct Tree(Arc<Shared>);

impl Filesystem for Tree {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The first piece of a longer write is longer than what is taken: it is refused.
        let _ = config.set_max_write(2 * written::MOST_BYTES as u32);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.0.at(parent, Errno::ENOENT).and_then(|(view, parent)| {
            let name = name.to_str().ok_or(Errno::ENOENT)?;
            let node = parent.child(&view, name).ok_or(Errno::ENOENT)?;
            Ok(self.0.attributes(&view, &node))
        });
        match found {
            Ok(attributes) => reply.entry(&NOT_KEPT, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.at(number, Errno::ENOENT) {
            Ok((view, node)) => reply.attr(&NOT_KEPT, &self.0.attributes(&view, &node)),
            Err(error) => reply.error(error),
        }
    }

    /// A shell truncates what it writes to, and that means nothing here.
    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        match self.0.at(number, Errno::ENOENT) {
            Ok((view, node)) => reply.attr(&NOT_KEPT, &self.0.attributes(&view, &node)),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let (view, entries) = match self.0.entries(number, handle.0, offset) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (place, (name, entry)) in entries.iter().enumerate().skip(from) {
            let attributes = self.0.attributes(&view, entry);
            if reply.add(attributes.ino, place as u64 + 1, attributes.kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn opendir(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.0.open().add(number.0, request.uid()) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.open().close(handle.0);
        reply.ok();
    }

    fn open(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let stream = match self.0.at(number, Errno::ENOENT) {
            Ok((_, Node::Events)) => FopenFlags::FOPEN_NONSEEKABLE | FopenFlags::FOPEN_STREAM,
            Ok(_) => FopenFlags::empty(),
            Err(error) => return reply.error(error),
        };
        match self.0.open().add(number.0, request.uid()) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO | stream),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.open().close(handle.0);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.read(number, handle.0, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        _offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (view, node) = match self.0.at(number, Errno::ENODEV) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        match self.0.open().get(handle.0).map(|file| file.is_cut(bytes, written::MOST_BYTES)) {
            Ok(false) => {}
            Ok(true) => return reply.error(Errno::EINVAL),
            Err(error) => return reply.error(error),
        }
        let Some(ask) = written::ask(&node, bytes) else { return reply.error(Errno::EINVAL) };
        let client = {
            let mut waiting = self.0.waiting();
            waiting.last += 1;
            let client = OF_FILES | waiting.last;
            waiting.writes.insert(client, (reply, bytes.len() as u32));
            client
        };
        let made = node.made(&view);
        let written = Written { file: node.path(), ask, made, pid: request.pid() };
        self.0.board.ask(client, Work::Written(written));
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        notifier: PollNotifier,
        _: PollEvents,
        flags: PollFlags,
        reply: ReplyPoll,
    ) {
        let waits = flags.contains(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY);
        reply.poll(self.0.poll(handle.0, waits.then(|| notifier.handle())));
    }

    // The tree has the files that it has.

    fn mknod(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
