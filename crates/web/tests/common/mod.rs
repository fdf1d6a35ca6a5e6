// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine in memory, and its page on a port of this machine.

use asmp_web::{
    Change, Cpu, Event, Machine, Partition, Place, Refused, Reports, Seen, Served, Token,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Four CPUs, of which partitions can be made.
#[derive(Default)]
pub struct Fake {
    pub partitions: Mutex<Vec<Partition>>,
    /// Of no partition.
    pub violations: Mutex<Vec<String>>,
    pub reads: AtomicUsize,
    /// Who reads it waits; who changes it.
    pub hangs: AtomicBool,
    pub changes_hang: AtomicBool,
    pub changing: AtomicBool,
    pub blind: AtomicBool,
    /// What it says instead of what is seen.
    pub fails: Mutex<Option<String>>,
}

impl Fake {
    /// Waits until it is read no more: not once in some periods of the reader.
    pub fn until_unread(&self) {
        let end = Instant::now() + Duration::from_secs(180);
        loop {
            let before = self.reads.load(SeqCst);
            std::thread::sleep(Duration::from_millis(2500));
            if self.reads.load(SeqCst) == before {
                return;
            }
            assert!(Instant::now() < end, "it is read on: {before}");
        }
    }
}

impl Machine for Fake {
    fn seen(&self) -> Result<Seen, String> {
        self.reads.fetch_add(1, SeqCst);
        while self.hangs.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(why) = self.fails.lock().unwrap().clone() {
            return Err(why);
        }
        let partitions = self.partitions.lock().unwrap().clone();
        let cpu = |cpu: u32| {
            let inside = partitions.iter().find(|one| one.cpus == cpu.to_string());
            Cpu {
                cpu,
                socket: cpu / 2,
                core: cpu,
                state: if inside.is_some() { "shielded" } else { "system" },
                partition: inside.map(|one| one.name.clone()),
                rates: None,
            }
        };
        Ok(Seen {
            time: "2026-01-02 03:04:05".into(),
            host: "lathe".into(),
            kernel: "7.2-rt".into(),
            held: "held by asmpd: 2 repaired".into(),
            blind: self.blind.load(SeqCst),
            violations: self.violations.lock().unwrap().clone(),
            changes: true,
            cpus: (0..4).map(cpu).collect(),
            events: vec![Event { number: 1, time: "03:04".into(), text: "<b>IRQ 24</b>".into() }],
            partitions,
        })
    }

    fn change(&self, change: &Change) -> Result<String, Refused> {
        self.changing.store(true, SeqCst);
        while self.changes_hang.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut partitions = self.partitions.lock().unwrap();
        match change {
            Change::Create { name, cpus } if cpus == "0" => {
                Err(Refused { code: 22, why: format!("{name}: CPU 0 stays with the system") })
            }
            Change::Create { name, cpus } => {
                let (name, cpus) = (name.clone(), cpus.clone());
                partitions.push(Partition { name, cpus, ..Partition::default() });
                Ok("made".to_owned())
            }
            Change::Destroy { name } => {
                partitions.retain(|one| one.name != *name);
                Ok("ended".to_owned())
            }
        }
    }
}

/// A page that is served until the test process ends.
pub struct Page {
    pub machine: Arc<Fake>,
    pub url: String,
    pub token: String,
}

impl Page {
    pub fn serve(reports: Option<&Path>) -> Self {
        Self::serve_to(reports, rustix::process::geteuid().as_raw())
    }

    /// To programs of this user alone.
    pub fn serve_to(reports: Option<&Path>, user: u32) -> Self {
        Self::serve_until(Vec::new(), reports, user).0
    }

    /// The same until one of these signals, and when it has ended.
    pub fn serve_until(
        signals: Vec<i32>,
        reports: Option<&Path>,
        user: u32,
    ) -> (Self, JoinHandle<std::io::Result<()>>) {
        let machine = Arc::new(Fake::default());
        let place = Place::take(0).unwrap();
        let url = place.url();
        let token = Token::new().unwrap();
        let text = token.text().to_owned();
        let reports = reports.map(|dir| Reports::below(dir).unwrap());
        let users = [user].into();
        let own = Arc::clone(&machine) as _;
        let served = Served { place, token, users, signals, machine: own, reports };
        let ended = std::thread::spawn(move || asmp_web::serve(served));
        (Self { machine, url, token: text }, ended)
    }
}
