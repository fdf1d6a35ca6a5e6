// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps channels of real-time programs under their names, and gives them to programs of other
//! users.
//!
//! Problem:  any user may register, and send any descriptor. To close it may wait for that user (a
//!           file that he serves by FUSE, a socket with SO_LINGER). And asmpd can open files that
//!           the user cannot.
//! Approach: each connection of a program that registers has a thread of its own, and of one user
//!           there are 16. Only from there on it takes descriptors; before Linux 6.16 all sockets
//!           do (LIMITS). What is kept is a memfd, and asmpd gives it for no more than the
//!           descriptor that came was open for. All of it is in a process of its own:
//!           [`crate::aside`].

use crate::seen::Seen;
use crate::socket::own_directory;
use asmp_channel::keeper::{self, REGISTER, Registration, Reply};
use asmp_host::peer::{Peer, refuse_descriptors, take_descriptors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Connections of programs that register: of all, of all users but root, of one of them.
const MOST: usize = 128;
const MOST_OF_USERS: usize = 112;
const MOST_OF_USER: usize = 16;
/// How long a program may take from its connection to what it registers.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a name is waited for: of a program that is started again, the end of the one before may
/// come later.
const RESTART: Duration = Duration::from_secs(1);
/// How long to wait after the kernel had no descriptor left for us.
const PAUSE: Duration = Duration::from_millis(100);
/// Of each thread. The deepest that one calls is the parser of the policy.
const STACK: usize = 1 << 20;

/// How many connections each user has, the names of the channels that are kept for each, and the
/// connections.
#[derive(Debug, Default)]
struct Places {
    connections: BTreeMap<u32, usize>,
    names: BTreeMap<u32, Vec<String>>,
    /// Each connection, by the number that it got.
    streams: BTreeMap<u64, Weak<UnixStream>>,
    last: u64,
}

#[derive(Debug)]
struct Shared {
    /// The directory, held open. `dir` leads through this descriptor, so it stays the old directory
    /// when a new one takes its name.
    _open: OwnedFd,
    dir: PathBuf,
    policy: Mutex<Seen>,
    places: Mutex<Places>,
    /// Told when a name is free.
    freed: Condvar,
}

/// Keeps channels until the process ends.
#[derive(Debug)]
pub struct Keeper(Arc<Shared>);

impl Keeper {
    /// Ends the connections of all programs, so that they register with the next keeper. A thread
    /// that waits in close(2) would keep them open after the process has ended.
    pub fn end(&self) {
        for stream in self.0.places().streams.values().filter_map(Weak::upgrade) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Keeps channels below this directory. Errors: in words.
pub fn start(dir: &Path, policy: Seen) -> Result<Keeper, String> {
    let failed = |error: io::Error| format!("{}: {error}", dir.display());
    let open = OwnedFd::from(File::open(dir).map_err(failed)?);
    let dir = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    let listener = listen(&dir.join(REGISTER)).map_err(failed)?;
    let (policy, places, freed) = (Mutex::new(policy), Mutex::default(), Condvar::new());
    let shared = Arc::new(Shared { _open: open, dir, policy, places, freed });
    let keeper = Keeper(Arc::clone(&shared));
    let forever = move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => take(&shared, stream),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => thread::sleep(PAUSE),
            }
        }
    };
    let builder = thread::Builder::new().name("asmpd-channels".to_owned()).stack_size(STACK);
    builder.spawn(forever).map_err(failed)?;
    Ok(keeper)
}

/// A socket that any user may connect to, and send no descriptor.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    refuse_descriptors(&listener)?;
    // Only now can others connect.
    fs::set_permissions(path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Serves a connection on a thread of its own, if its user may have one more.
fn take(shared: &Arc<Shared>, stream: UnixStream) {
    let Ok(peer) = Peer::of(&stream) else { return };
    let uid = peer.uid;
    if !shared.places().enter(uid) {
        let _ = keeper::reply(&stream, Reply::TooMany);
        return;
    }
    let stream = Arc::new(stream);
    let number = shared.places().note(&stream);
    let entered = Entered { shared: Arc::clone(shared), uid, number };
    // The thread takes it from here, so that it comes back where there is no thread.
    let handed = Arc::new(Mutex::new(Some(stream)));
    let take = |handed: &Mutex<Option<Arc<UnixStream>>>| {
        handed.lock().unwrap_or_else(PoisonError::into_inner).take()
    };
    let its = Arc::clone(&handed);
    let serve = move || {
        if let Some(stream) = take(&its) {
            entered.shared.serve(&stream, &peer);
        }
    };
    let builder = thread::Builder::new().name("asmpd-channel".to_owned()).stack_size(STACK);
    if builder.spawn(serve).is_err()
        && let Some(stream) = take(&handed)
    {
        let _ = keeper::reply(&stream, Reply::Busy);
    }
}

/// A place, until this is dropped: after what came with the connection is closed.
struct Entered {
    shared: Arc<Shared>,
    uid: u32,
    number: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut places = self.shared.places();
        places.leave(self.uid);
        places.streams.remove(&self.number);
    }
}

/// The socket of a name, until this is dropped.
struct Name<'a> {
    shared: &'a Shared,
    uid: u32,
    name: String,
    listener: UnixListener,
}

impl Drop for Name<'_> {
    fn drop(&mut self) {
        self.shared.withdraw(self.uid, &self.name);
    }
}

impl Places {
    fn enter(&mut self, uid: u32) -> bool {
        let all: usize = self.connections.values().sum();
        let of_root = self.connections.get(&0).copied().unwrap_or(0);
        let own = self.connections.get(&uid).copied().unwrap_or(0);
        let has_room = uid == 0 || (all - of_root < MOST_OF_USERS && own < MOST_OF_USER);
        let enters = all < MOST && has_room;
        if enters {
            *self.connections.entry(uid).or_default() += 1;
        }
        enters
    }

    fn note(&mut self, stream: &Arc<UnixStream>) -> u64 {
        self.last += 1;
        self.streams.insert(self.last, Arc::downgrade(stream));
        self.last
    }

    fn leave(&mut self, uid: u32) {
        if let Some(count) = self.connections.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                self.connections.remove(&uid);
            }
        }
    }
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, Places> {
        // No code panics between two states of it that fit together.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From a program's connection to its end.
    fn serve(&self, stream: &UnixStream, peer: &Peer) {
        let ready = take_descriptors(stream).and_then(|()| keeper::reply(stream, Reply::Ready));
        let Some((registration, memory)) = ready.ok().and_then(|()| registered(stream)) else {
            return;
        };
        let name = registration
            .check(&memory, peer.uid == 0)
            .and_then(|()| self.publish(peer.uid, &registration.name));
        let name = match name {
            Ok(name) => name,
            Err(why) => {
                let _ = keeper::reply(stream, why);
                return;
            }
        };
        let kept = Kept { registration, memory: memory.into(), owner: peer.uid };
        if keeper::reply(stream, Reply::Kept).is_ok() {
            kept.give_until_end(stream, &name.listener, &self.policy);
        }
    }

    /// Makes the socket of a name. Errors: `NameKept` if this user has it registered already,
    /// `Busy`.
    fn publish(&self, uid: u32, name: &str) -> Result<Name<'_>, Reply> {
        let is_taken = |places: &mut Places| {
            places.names.get(&uid).is_some_and(|names| names.iter().any(|one| one == name))
        };
        let waited = self.freed.wait_timeout_while(self.places(), RESTART, is_taken);
        let (mut places, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(Reply::NameKept);
        }
        places.names.entry(uid).or_default().push(name.to_owned());
        let path = keeper::path_of(&self.dir, uid, name);
        let made = || {
            // Only root may write there.
            path.parent().map_or(Ok(()), |dir| own_directory(dir).map_err(io::Error::other))?;
            let listener = listen(&path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let made: io::Result<UnixListener> = made();
        drop(places);
        match made {
            Ok(listener) => Ok(Name { shared: self, uid, name: name.to_owned(), listener }),
            Err(_) => {
                self.withdraw(uid, name);
                Err(Reply::Busy)
            }
        }
    }

    fn withdraw(&self, uid: u32, name: &str) {
        let mut places = self.places();
        let path = keeper::path_of(&self.dir, uid, name);
        let _ = fs::remove_file(&path);
        let names = places.names.entry(uid).or_default();
        names.retain(|one| one != name);
        if names.is_empty() {
            places.names.remove(&uid);
            let _ = path.parent().map(fs::remove_dir);
        }
        self.freed.notify_all();
    }
}

/// A channel under its name.
struct Kept {
    registration: Registration,
    memory: File,
    owner: u32,
}

impl Kept {
    /// Gives the channel to who may have it, until its program ends the connection or says
    /// anything more.
    fn give_until_end(&self, to_end: &UnixStream, listener: &UnixListener, policy: &Mutex<Seen>) {
        loop {
            let mut polled = [to_end.as_fd(), listener.as_fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            if !polled[0].revents().is_empty() {
                return;
            }
            if polled[1].revents().is_empty() {
                continue;
            }
            match listener.accept() {
                Ok((client, _)) => self.answer(&client, policy),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    fn answer(&self, client: &UnixStream, policy: &Mutex<Seen>) {
        let Ok(peer) = Peer::of(client) else { return };
        match self.is_for(&peer) || self.is_granted(&peer, policy) {
            // It has gone, or no descriptor is left: it was told.
            true => _ = keeper::give(client, &self.registration, self.owner, &self.memory),
            false => keeper::refuse(client, &self.registration),
        }
    }

    fn is_for(&self, peer: &Peer) -> bool {
        let Registration { users, groups, .. } = &self.registration;
        [0, self.owner].contains(&peer.uid)
            || users.contains(&peer.uid)
            || groups.iter().any(|group| peer.groups.contains(group))
    }

    /// By the policy file, which may have changed since the last time.
    fn is_granted(&self, peer: &Peer, policy: &Mutex<Seen>) -> bool {
        let mut seen = policy.lock().unwrap_or_else(PoisonError::into_inner);
        seen.policy()
            .is_ok_and(|policy| policy.gives_channel(self.owner, &self.registration.name, peer))
    }
}

/// What a program registers, if it does so in time. `None`: it has gone, or said something else.
fn registered(stream: &UnixStream) -> Option<(Registration, OwnedFd)> {
    let end = Instant::now() + PATIENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut polled = [PollFd::new(stream, PollFlags::IN)];
        match poll(&mut polled, Some(&left)) {
            Ok(0) => return None,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        match Registration::take(stream) {
            Ok(Some(taken)) => return Some(taken),
            Ok(None) => {}
            Err(error) => {
                let reply = match Errno::from_io_error(&error) {
                    Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Reply::Busy,
                    _ => Reply::NoChannel,
                };
                let _ = keeper::reply(stream, reply);
                return None;
            }
        }
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
