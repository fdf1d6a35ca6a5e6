// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared memory on huge pages, which need a pool that only root can fill.

use super::lab::{Test, read, test};
use asmp_channel::{Mbuff, Pages};
use std::fs;

pub fn all() -> Vec<Test> {
    vec![test(
        "huge: an mbuff takes pages of the pool, and is refused in words where there are none",
        mbuff,
    )]
}

const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// The pool's size, put back when dropped.
struct Pool(String);

impl Pool {
    fn of(pages: u32) -> Self {
        let before = Self(read(POOL));
        fs::write(POOL, pages.to_string()).expect("the sysctl");
        assert_eq!(read(POOL), pages.to_string(), "the kernel finds so much memory in one piece");
        before
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = fs::write(POOL, &self.0);
    }
}

fn free_pages() -> u32 {
    let memory = read("/proc/meminfo");
    let line = memory.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    line.and_then(|free| free.trim().parse().ok()).expect("HugePages_Free")
}

fn mbuff() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let alloc = || Mbuff::alloc(dir.path(), "image", 100_000, Pages::Huge);
    {
        let _none = Pool::of(0);
        let refused = alloc().unwrap_err().to_string();
        assert!(refused.contains("cannot allocate 100000 bytes"), "{refused}");
    }
    let _pool = Pool::of(2);
    let mbuff = alloc().expect("a page of the pool");
    mbuff.write(99_990, b"at the end").unwrap();
    assert_eq!(free_pages(), 1);
    let other = Mbuff::attach(dir.path(), "image").unwrap();
    let mut into = [0; 10];
    other.read(99_990, &mut into).unwrap();
    assert_eq!(&into, b"at the end");
    drop((mbuff, other));
    assert_eq!(free_pages(), 2);
}
