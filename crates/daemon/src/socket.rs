// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The socket on which other programs ask.
//!
//! Problem:  any user may connect, and send what costs time, even file descriptors whose close(2)
//!           waits.
//! Approach: a second thread serves the socket. The thread that repairs never waits for it: they
//!           share a [`Board`]. A client has one reply under way at a time, and some requests a
//!           turn. A client that sends too much is disconnected; one that reads too slowly waits.
//!           The number of clients is limited, of each user to fewer, and some places are root's.
//!           Users can fill the queue of those that wait to be taken: root has a socket of its own.
//!           What changes partitions is left to the thread that repairs, one thing of a client at
//!           a time; the client waits for it.

use crate::board::Board;
use crate::interface::{Answer, Asker, NAME, ROOTS, answer, event, last_words};
use crate::seen::Seen;
use crate::work::Work;
use asmp_host::clock::{monotonic_ns, unix_s};
use asmp_host::peer::{Peer, refuse_descriptors};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Clients at a time; those of all users but root; those of one of them.
const MOST_CLIENTS: usize = 64;
const MOST_OF_USERS: usize = 56;
const MOST_OF_USER: usize = 16;
/// Bytes of a request.
const MOST_REQUEST: usize = 64 << 10;
/// Events are sent as long as fewer bytes wait.
const MOST_UNSENT: usize = 64 << 10;
/// Requests and reads of one client before the others have their turn.
const MOST_AT_ONCE: usize = 16;

/// Keys of what is polled; those of clients follow.
const LISTENERS: [u64; 2] = [0, 1];
const NEWS: u64 = 2;

/// The sockets' place: of all users, and of root. They are gone when this is dropped.
pub struct Place {
    listeners: [UnixListener; 2],
    paths: [PathBuf; 2],
    /// Held as long as this lives.
    _lock: File,
}

/// What one thread serves.
pub struct Socket {
    epoll: OwnedFd,
    listeners: [UnixListener; 2],
    board: Arc<Board>,
    policy: Seen,
    clients: BTreeMap<u64, Client>,
    next: u64,
    /// Clients with requests that were read and not answered yet.
    again: Vec<u64>,
}

struct Client {
    stream: UnixStream,
    key: u64,
    peer: Peer,
    read: Vec<u8>,
    unsent: Vec<u8>,
    /// So many of them are sent.
    sent: usize,
    /// The number of the last event that it has got, if it follows them.
    follows: Option<u64>,
    /// The thread that repairs works for it.
    waits: bool,
    /// It has left meanwhile.
    is_gone: bool,
    /// That has worked for it: it may have a partition, which ends with it.
    had_work: bool,
    /// It sends nothing more.
    is_silent: bool,
    /// What the kernel tells of it.
    polled: EventFlags,
}

/// What comes after a client was served.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait,
    Again,
    Gone,
}

impl Place {
    /// The socket in this directory, which is made if it is missing. Errors: in words; another
    /// asmpd has it, or another user could.
    pub fn take(dir: &Path) -> Result<Self, String> {
        let failed = |what: &'static str, path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| format!("{path}: {what}: {error}")
        };
        own_directory(dir)?;
        let lock = dir.join("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&lock).map_err(failed("open", &lock))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err("another asmpd runs".to_owned()),
            Err(errno) => return Err(failed("lock", &lock)(errno.into())),
        }
        let paths = [NAME, ROOTS].map(|name| dir.join(name));
        let listen = |path: &Path, mode: u32| {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(failed("remove", path)(error));
                }
                // The one of an asmpd that was killed, or none.
                _ => {}
            }
            let listener = UnixListener::bind(path).map_err(failed("bind", path))?;
            listener.set_nonblocking(true).map_err(failed("set", path))?;
            refuse_descriptors(&listener).map_err(failed("set", path))?;
            fs::set_permissions(path, Permissions::from_mode(mode))
                .map_err(failed("chmod", path))?;
            Ok(listener)
        };
        let listeners = [listen(&paths[0], 0o666)?, listen(&paths[1], 0o600)?];
        Ok(Self { listeners, paths, _lock: file })
    }

    /// Starts the thread that answers, for as long as this process lives. Errors: no descriptors,
    /// no thread.
    pub fn serve(&self, board: Arc<Board>, policy: Seen) -> io::Result<()> {
        let mut socket = Socket::new(self, board, policy)?;
        let forever = move || {
            loop {
                socket.turn(None);
            }
        };
        std::thread::Builder::new().name("asmpd-socket".to_owned()).spawn(forever).map(drop)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.paths.iter().for_each(|path| _ = fs::remove_file(path));
    }
}

impl Socket {
    fn new(place: &Place, board: Arc<Board>, policy: Seen) -> io::Result<Self> {
        let [users, roots] = &place.listeners;
        let listeners = [users.try_clone()?, roots.try_clone()?];
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (listener, key) in listeners.iter().zip(LISTENERS) {
            epoll::add(&epoll, listener, EventData::new_u64(key), EventFlags::IN)?;
        }
        epoll::add(&epoll, board.news(), EventData::new_u64(NEWS), EventFlags::IN)?;
        let (clients, next, again) = (BTreeMap::new(), NEWS + 1, Vec::new());
        Ok(Self { epoll, listeners, board, policy, clients, next, again })
    }

    /// Waits at most so long, takes new clients, answers those that have asked, and sends events to
    /// those that follow.
    fn turn(&mut self, most: Option<Timespec>) {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let most = if self.again.is_empty() { most } else { Some(at_once) };
        let mut ready = Vec::with_capacity(MOST_CLIENTS + 3);
        if epoll::wait(&self.epoll, spare_capacity(&mut ready), most.as_ref()).is_err() {
            return;
        }
        let again = std::mem::take(&mut self.again).into_iter().map(|key| (key, EventFlags::IN));
        let ready = ready.iter().map(|event| (event.data.u64(), event.flags));
        // What the kernel tells of a client counts more.
        for (key, flags) in again.chain(ready).collect::<BTreeMap<u64, EventFlags>>() {
            match key {
                key if LISTENERS.contains(&key) => self.accept(key as usize),
                NEWS => {
                    self.board.has_read();
                    self.pass_replies_on();
                    let followers = self.clients.iter().filter(|(_, one)| one.follows.is_some());
                    for key in followers.map(|(key, _)| *key).collect::<Vec<_>>() {
                        self.serve(key, EventFlags::empty());
                    }
                }
                client => self.serve(client, flags),
            }
        }
    }

    /// To those that have waited for them.
    fn pass_replies_on(&mut self) {
        for (key, reply) in self.board.replies() {
            let Some(client) = self.clients.get_mut(&key) else { continue };
            (client.unsent, client.sent, client.waits) = (reply, 0, false);
            match client.is_gone {
                true => self.remove(key),
                false => self.serve(key, EventFlags::empty()),
            }
        }
    }

    fn remove(&mut self, key: u64) {
        // To close its stream takes it out of the epoll instance.
        if self.clients.remove(&key).is_some_and(|client| client.had_work) {
            self.board.ask(key, Work::Left);
        }
    }

    /// Some of those that wait; one too many is told so.
    fn accept(&mut self, listener: usize) {
        for _ in 0..MOST_AT_ONCE {
            match self.listeners[listener].accept() {
                Ok((stream, _)) => self.take(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // No descriptors are left: until then the kernel would tell again and again.
                    std::thread::sleep(Duration::from_millis(100));
                    return;
                }
            }
        }
    }

    fn take(&mut self, mut stream: UnixStream) {
        let Ok(peer) = Peer::of(&stream) else { return };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let uids: Vec<u32> = self.clients.values().map(|client| client.peer.uid).collect();
        if !has_room(&uids, peer.uid) {
            let _ = stream.write(&last_words("TooManyClients"));
            return;
        }
        let (key, polled) = (self.next, EventFlags::IN);
        if epoll::add(&self.epoll, &stream, EventData::new_u64(key), polled).is_ok() {
            self.next += 1;
            let client = Client {
                stream,
                key,
                peer,
                read: Vec::new(),
                unsent: Vec::new(),
                sent: 0,
                follows: None,
                waits: false,
                is_gone: false,
                had_work: false,
                is_silent: false,
                polled,
            };
            self.clients.insert(key, client);
        }
    }

    /// Serves a client of which the kernel has told this.
    fn serve(&mut self, key: u64, flags: EventFlags) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let mut next = match flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            true => Next::Gone,
            false => client.serve(&self.board, &mut self.policy),
        };
        let wanted = client.wanted();
        if next != Next::Gone && wanted != client.polled {
            client.polled = wanted;
            let data = EventData::new_u64(key);
            if epoll::modify(&self.epoll, &client.stream, data, wanted).is_err() {
                next = Next::Gone;
            }
        }
        match next {
            Next::Wait => {}
            Next::Again => self.again.push(key),
            // It counts as a client until its work is done. Else a user who connects and leaves
            // again and again could make the queue as long as memory.
            Next::Gone if client.waits => {
                client.is_gone = true;
                let _ = epoll::delete(&self.epoll, &client.stream);
            }
            Next::Gone => self.remove(key),
        }
    }
}

impl Client {
    /// Sends what waits, reads, and answers one request after the other.
    fn serve(&mut self, board: &Board, policy: &mut Seen) -> Next {
        let (mut requests, mut reads) = (0, 0);
        loop {
            if !self.send() {
                return Next::Gone;
            }
            if let Some(after) = self.follows {
                return self.follow(board, after);
            }
            if !self.unsent.is_empty() || self.waits {
                return Next::Wait;
            }
            if let Some(end) = self.read.iter().position(|byte| *byte == 0) {
                requests += 1;
                if requests > MOST_AT_ONCE {
                    return Next::Again;
                }
                let message: Vec<u8> = self.read.drain(..=end).collect();
                let (now_ns, now_s) = (monotonic_ns(), unix_s());
                let mut asker = Asker { peer: &self.peer, policy, now_ns, now_s };
                match answer(&message[..end], board, &mut asker) {
                    Answer::Reply(bytes) => (self.unsent, self.sent) = (bytes, 0),
                    Answer::Follow(after) => self.follows = Some(after),
                    Answer::Work(work) => {
                        (self.waits, self.had_work) = (true, true);
                        board.ask(self.key, work);
                    }
                    Answer::Silence => {}
                    Answer::Nonsense => return Next::Gone,
                }
                continue;
            }
            reads += 1;
            if self.is_silent || self.read.len() >= MOST_REQUEST {
                return Next::Gone;
            }
            if reads > MOST_AT_ONCE {
                return Next::Wait;
            }
            match self.receive() {
                Received::Bytes => {}
                Received::Nothing => return Next::Wait,
                Received::End => self.is_silent = true,
                Received::Failure => return Next::Gone,
            }
        }
    }

    /// Sends the events after that one, as far as there is room. Nothing else is answered any more.
    fn follow(&mut self, board: &Board, mut after: u64) -> Next {
        match self.receive() {
            Received::Bytes | Received::Failure => return Next::Gone,
            Received::End => self.is_silent = true,
            Received::Nothing => {}
        }
        while self.unsent.len() - self.sent < MOST_UNSENT {
            let Some((_, events)) = board.events(Some(after), 16) else {
                // What is under way may be half of a reply.
                if self.unsent.is_empty() {
                    let _ = self.stream.write(&last_words("EventsLost"));
                }
                return Next::Gone;
            };
            let Some(last) = events.last() else { break };
            after = last.number;
            self.unsent.extend(events.iter().flat_map(|one| event(one)));
        }
        self.follows = Some(after);
        if self.send() { Next::Wait } else { Next::Gone }
    }

    fn receive(&mut self) -> Received {
        if self.is_silent {
            return Received::Nothing;
        }
        let mut page = [0; 4 << 10];
        match self.stream.read(&mut page) {
            Ok(0) => Received::End,
            Ok(count) => {
                self.read.extend_from_slice(&page[..count]);
                Received::Bytes
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Received::Nothing,
            Err(_) => Received::Failure,
        }
    }

    /// As much as finds room. `false`: it does not read any more.
    fn send(&mut self) -> bool {
        while self.sent < self.unsent.len() {
            match self.stream.write(&self.unsent[self.sent..]) {
                Ok(0) => return false,
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        (self.unsent, self.sent) = (Vec::new(), 0);
        true
    }

    /// What the kernel is to tell of it.
    fn wanted(&self) -> EventFlags {
        match (self.unsent.is_empty(), self.is_silent || self.waits) {
            (false, _) => EventFlags::OUT,
            // The end is told all the same.
            (true, true) => EventFlags::empty(),
            (true, false) => EventFlags::IN,
        }
    }
}

/// May this user have one more client beside those of these users?
fn has_room(uids: &[u32], uid: u32) -> bool {
    let of_users = uids.iter().filter(|one| **one != 0).count();
    let of_user = uids.iter().filter(|one| **one == uid).count();
    let has_own = uid == 0 || (of_users < MOST_OF_USERS && of_user < MOST_OF_USER);
    uids.len() < MOST_CLIENTS && has_own
}

/// What read(2) gave.
enum Received {
    Bytes,
    Nothing,
    End,
    Failure,
}

/// Makes the directory, or looks whether only this user may write to it. Errors: in words.
pub(crate) fn own_directory(dir: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", dir.display());
    match DirBuilder::new().mode(0o755).create(dir) {
        // Whatever the umask says: others may ask.
        Ok(()) => fs::set_permissions(dir, Permissions::from_mode(0o755)).map_err(failed)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let found = fs::symlink_metadata(dir).map_err(failed)?;
    let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    match is_own && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(format!("{}: another user may write to it: remove it", dir.display())),
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
