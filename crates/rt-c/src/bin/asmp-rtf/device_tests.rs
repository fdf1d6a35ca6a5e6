// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use asmp_channel::{Fifo, Options, Overflow};

/// A device and its place; requests are given as the kernel writes them.
struct Place {
    dir: tempfile::TempDir,
    device: Device,
    number: u64,
}

impl Place {
    fn new(from_rt: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
        let device = Device::new(dir.path(), "rtf3", from_rt);
        Self { dir, device, number: 0 }
    }

    fn channel(&self) -> Fifo {
        let options = Options { capacity_bytes: 120, overflow: Overflow::Refuse };
        Fifo::create(self.dir.path(), "rtf3", &options).unwrap()
    }

    /// Asks, and gives the number of the question.
    fn ask(&mut self, code: u32, body: &[u8]) -> u64 {
        self.number += 1;
        let length = 40 + body.len() as u32;
        let head =
            [&length.to_ne_bytes()[..], &code.to_ne_bytes(), &self.number.to_ne_bytes(), &[0; 24]];
        let bytes = [&head.concat()[..], body].concat();
        self.device.take(&Request::parse(&bytes).unwrap()).unwrap();
        self.number
    }

    fn open(&mut self, flags: i32) -> u64 {
        self.ask(14, &[flags.to_ne_bytes(), [0; 4]].concat())
    }

    fn read(&mut self, bytes: u32, flags: i32) -> u64 {
        let body = [&[0; 16][..], &bytes.to_ne_bytes(), &[0; 12], &flags.to_ne_bytes(), &[0; 4]];
        self.ask(15, &body.concat())
    }

    fn write(&mut self, bytes: &[u8], flags: i32) -> u64 {
        let length = (bytes.len() as u32).to_ne_bytes();
        let body = [&[0; 16][..], &length, &[0; 12], &flags.to_ne_bytes(), &[0; 4], bytes];
        self.ask(16, &body.concat())
    }

    fn poll(&mut self, handle: u64) -> u64 {
        let body = [[0; 8], handle.to_ne_bytes(), 1u64.to_ne_bytes()];
        self.ask(40, &body.concat())
    }

    fn fionread(&mut self, room: u32) -> u64 {
        let command = (libc::FIONREAD as u32).to_ne_bytes();
        let body = [&[0; 12][..], &command, &77u64.to_ne_bytes(), &[0; 4], &room.to_ne_bytes()];
        self.ask(39, &body.concat())
    }

    /// The next message: number, error, body.
    fn heard(&mut self) -> Option<(u64, i32, Vec<u8>)> {
        let bytes = self.device.out.pop_front()?;
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize, bytes.len());
        let error = i32::from_ne_bytes(bytes[4..8].try_into().unwrap());
        Some((u64::from_ne_bytes(bytes[8..16].try_into().unwrap()), error, bytes[16..].to_vec()))
    }

    #[track_caller]
    fn hears(&mut self, number: u64, error: i32, body: &[u8]) {
        assert_eq!(self.heard(), Some((number, error, body.to_vec())));
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn the_kernel_is_told_the_name() {
    let mut place = Place::new(true);
    let number = place.ask(4096, &words(&[7, 40, 0, 1]));
    let (heard, error, body) = place.heard().unwrap();
    assert_eq!((heard, error), (number, 0));
    // struct cuse_init_out: 72 bytes; then strings.
    assert_eq!(body[..16], words(&[7, 31, 0, 1]));
    assert_eq!(&body[72..], b"DEVNAME=rtf3\0");
}

#[test]
fn one_may_open_it_in_its_direction() {
    let mut place = Place::new(true);
    let wrong = place.open(libc::O_WRONLY);
    place.hears(wrong, -libc::EACCES, &[]);
    let both = place.open(libc::O_RDWR);
    place.hears(both, -libc::EACCES, &[]);
    let first = place.open(libc::O_RDONLY);
    place.hears(first, 0, &[0; 16]);
    let second = place.open(libc::O_RDONLY);
    place.hears(second, -libc::EBUSY, &[]);
    let closed = place.ask(18, &[0; 24]);
    place.hears(closed, 0, &[]);
    let third = place.open(libc::O_RDONLY);
    place.hears(third, 0, &[0; 16]);
}

#[test]
fn a_read_waits_for_the_channel_and_for_bytes() {
    let mut place = Place::new(true);
    let never = place.read(10, libc::O_NONBLOCK);
    place.hears(never, -libc::EAGAIN, &[]);
    let waiting = place.read(10, 0);
    assert!(place.device.is_awaited());
    let mut writer = place.channel().into_writer(Wake::Never).unwrap();
    place.device.go_on().unwrap();
    assert_eq!(place.heard(), None);
    writer.put(b"twelve bytes").unwrap();
    writer.put(b"!").unwrap();
    place.device.go_on().unwrap();
    place.hears(waiting, 0, b"twelve byt");
    let rest = place.read(10, 0);
    place.hears(rest, 0, b"es!");
    assert!(!place.device.is_awaited());
}

#[test]
fn who_is_interrupted_hears_so_and_nothing_is_lost() {
    let mut place = Place::new(true);
    let mut writer = place.channel().into_writer(Wake::Never).unwrap();
    let (first, second) = (place.read(4, 0), place.read(4, 0));
    place.ask(36, &first.to_ne_bytes());
    place.hears(first, -libc::EINTR, &[]);
    writer.put(b"abc").unwrap();
    place.device.go_on().unwrap();
    place.hears(second, 0, b"abc");
    place.ask(36, &second.to_ne_bytes());
    assert_eq!(place.heard(), None);
}

#[test]
fn the_end_of_the_server_is_the_end_of_the_file() {
    let mut place = Place::new(true);
    let mut writer = place.channel().into_writer(Wake::Never).unwrap();
    let waiting = place.read(4, 0);
    let asked = place.poll(55);
    place.hears(asked, 0, &words(&[0, 0]));
    place.device.end();
    place.hears(waiting, 0, &[]);
    // FUSE_NOTIFY_POLL: the sleeper looks again, and finds the end.
    place.hears(0, 1, &55u64.to_ne_bytes());
    let asked = place.poll(55);
    place.hears(asked, 0, &words(&[(libc::POLLIN | libc::POLLHUP) as u32, 0]));
    // A read that comes later is at the end too. What was put stays for the next server.
    writer.put(b"late").unwrap();
    assert!(!writer.fifo().shared().is_held(Role::Reader));
    let asked = place.fionread(4);
    place.hears(asked, 0, &words(&[0, 0, 0, 0, 0]));
    for flags in [0, libc::O_NONBLOCK] {
        let late = place.read(4, flags);
        place.hears(late, 0, &[]);
    }
    let opened = place.open(libc::O_RDONLY);
    place.hears(opened, -libc::ENODEV, &[]);
}

#[test]
fn a_write_after_the_end_of_the_server_has_no_reader() {
    let mut place = Place::new(false);
    let _reader = place.channel().into_reader(Wake::Never).unwrap();
    let waiting = place.write(&[7; 500], 0);
    place.device.end();
    // What went in is told.
    let (number, error, body) = place.heard().unwrap();
    let written = u32::from_ne_bytes(body[..4].try_into().unwrap());
    assert!((number, error) == (waiting, 0) && (1..500).contains(&written), "{written}");
    let late = place.write(b"late", 0);
    place.hears(late, -libc::EPIPE, &[]);
    let asked = place.poll(55);
    place.hears(asked, 0, &words(&[(libc::POLLOUT | libc::POLLERR) as u32, 0]));
}

#[test]
fn poll_says_what_there_is_and_wakes_who_sleeps_once() {
    let mut place = Place::new(true);
    let mut writer = place.channel().into_writer(Wake::Never).unwrap();
    let asked = place.poll(55);
    place.hears(asked, 0, &words(&[0, 0]));
    place.device.go_on().unwrap();
    assert_eq!(place.heard(), None);
    writer.put(b"abc").unwrap();
    place.device.go_on().unwrap();
    // FUSE_NOTIFY_POLL.
    place.hears(0, 1, &55u64.to_ne_bytes());
    place.device.go_on().unwrap();
    assert_eq!(place.heard(), None);
    let asked = place.poll(55);
    place.hears(asked, 0, &words(&[(libc::POLLIN | libc::POLLRDNORM) as u32, 0]));
}

#[test]
fn fionread_counts_the_bytes_and_other_ioctls_are_refused() {
    let mut place = Place::new(true);
    let mut writer = place.channel().into_writer(Wake::Never).unwrap();
    writer.put(b"abcde").unwrap();
    writer.put(b"fg").unwrap();
    let first = place.read(3, 0);
    place.hears(first, 0, b"abc");
    let asked = place.fionread(0);
    place.hears(
        asked,
        0,
        &[words(&[0, 4, 0, 1]), 77u64.to_ne_bytes().into(), 4u64.to_ne_bytes().into()].concat(),
    );
    let asked = place.fionread(4);
    place.hears(asked, 0, &words(&[0, 0, 0, 0, 4]));
    let terminal = place.ask(39, &[&[0; 12][..], &words(&[0x5401]), &[0; 16]].concat());
    place.hears(terminal, -libc::ENOTTY, &[]);
}

#[test]
fn a_write_larger_than_the_channel_goes_in_as_there_is_room() {
    let mut place = Place::new(false);
    let never = place.write(b"absent", libc::O_NONBLOCK);
    place.hears(never, -libc::EAGAIN, &[]);
    let mut reader = place.channel().into_reader(Wake::Never).unwrap();
    let all: Vec<u8> = (0..=255).collect();
    let waiting = place.write(&all, 0);
    assert_eq!(place.heard(), None);
    let mut got: Vec<u8> = Vec::new();
    while got.len() < all.len() {
        let mut into = [0; 50];
        let count = reader.get(&mut into).unwrap();
        assert!(count > 0, "it goes on when there is room");
        got.extend(&into[..count]);
        place.device.go_on().unwrap();
    }
    assert_eq!(got, all);
    place.hears(waiting, 0, &words(&[256, 0]));
    // What does not fit without waiting is told.
    let part = place.write(&all, libc::O_NONBLOCK);
    let (number, error, body) = place.heard().unwrap();
    let written = u32::from_ne_bytes(body[..4].try_into().unwrap());
    assert!((number, error) == (part, 0) && (1..256).contains(&written), "{written}");
}

#[test]
fn one_real_time_side_after_the_other_is_served() {
    let mut place = Place::new(true);
    let waiting = place.read(10, 0);
    for text in [b"first", b"again"] {
        let mut writer = place.channel().into_writer(Wake::Never).unwrap();
        writer.put(text).unwrap();
        place.device.go_on().unwrap();
        if text == b"first" {
            place.hears(waiting, 0, text);
        } else {
            let next = place.read(10, 0);
            place.hears(next, 0, text);
        }
        drop(writer);
        place.device.go_on().unwrap();
    }
}

#[test]
fn a_request_cut_short_is_none() {
    for code in [14u32, 15, 16, 36, 39, 40] {
        let bytes = [&44u32.to_ne_bytes()[..], &code.to_ne_bytes(), &[0; 32], &[0xff; 4]].concat();
        let parsed = Request::parse(&bytes);
        assert!(
            code == 14 && parsed.is_some() || code != 14 && parsed.is_none(),
            "{code}: {parsed:?}"
        );
    }
    assert_eq!(Request::parse(&[0; 39]), None);
    // A write that says more bytes than came.
    let body = [&[0; 16][..], &1000u32.to_ne_bytes(), &[0; 20], b"few"].concat();
    let bytes = [&[0; 4][..], &16u32.to_ne_bytes(), &[0; 32], &body].concat();
    assert_eq!(Request::parse(&bytes), None);
}
