// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a write means, what it asks of the shield, and what it makes of a machine in memory.

use super::*;
use asmp_host::fake::{FakeKernel, Fault};
use asmp_host::store::Store;
use asmp_host::{Kernel, Schedule};
use std::sync::Arc;

fn pids(pids: &[i32]) -> Members {
    Members { pids: pids.to_vec(), ..Members::default() }
}

fn of_cpu(file: CpuFile) -> Node {
    Node::OfCpu(3, file)
}

fn of_partition(file: PartitionFile) -> Node {
    Node::OfPartition("motion".to_owned(), file)
}

#[test]
fn a_write_means_what_the_paper_says() {
    let cpu = || Place::Cpu(3);
    let partition = || Place::Partition("motion".to_owned());
    let irqs = |irqs: &[&str]| Members {
        irqs: irqs.iter().map(|irq| (*irq).to_owned()).collect(),
        ..Members::default()
    };
    for (node, text, expected) in [
        (of_cpu(CpuFile::Shielded), "1\n", Ask::Shield(3)),
        (of_cpu(CpuFile::Shielded), "0", Ask::Unshield(3)),
        (of_cpu(CpuFile::Pids), "200\n", Ask::Join(cpu(), pids(&[200]))),
        (of_cpu(CpuFile::Pids), "200 300\n400", Ask::Join(cpu(), pids(&[200, 300, 400]))),
        (of_cpu(CpuFile::Pids), "-200\n", Ask::Leave(cpu(), pids(&[200]))),
        (of_cpu(CpuFile::Irqs), "0", Ask::Join(cpu(), irqs(&["0"]))),
        (of_cpu(CpuFile::Irqs), "-24 -25", Ask::Leave(cpu(), irqs(&["24", "25"]))),
        (of_cpu(CpuFile::LocalTimer), "0", Ask::Tick(cpu(), Tick::Off)),
        (of_cpu(CpuFile::LocalTimer), "1", Ask::Tick(cpu(), Tick::Keep)),
        (of_cpu(CpuFile::LocalTimer), "10", Ask::Factor),
        (of_cpu(CpuFile::LocalTimer), "-1", Ask::Factor),
        (of_cpu(CpuFile::LocalTimer), "1.5", Ask::Factor),
        (of_partition(PartitionFile::Pids), "7", Ask::Join(partition(), pids(&[7]))),
        (
            of_partition(PartitionFile::Tids),
            "-7",
            Ask::Leave(partition(), Members { tids: vec![7], ..Members::default() }),
        ),
        (of_partition(PartitionFile::Irqs), "4", Ask::Join(partition(), irqs(&["4"]))),
        (of_partition(PartitionFile::Tick), "keep\n", Ask::Tick(partition(), Tick::Keep)),
        (of_partition(PartitionFile::Mode), "shared\n", Ask::Mode("motion".into(), Mode::Shared)),
        (
            of_partition(PartitionFile::Cpus),
            "2-3\n",
            Ask::Resize("motion".to_owned(), "2-3".parse().unwrap()),
        ),
    ] {
        assert_eq!(ask(&node, text.as_bytes()), Some(expected), "{node:?}: {text:?}");
    }
}

#[test]
fn what_is_no_number_of_the_file_means_nothing() {
    let long = "1 ".repeat(MOST_BYTES / 2 + 1);
    for (node, texts) in [
        (of_cpu(CpuFile::Shielded), vec!["", "2", "-1", "1 1", "yes", "01"]),
        (
            of_cpu(CpuFile::Pids),
            vec!["", " ", "0", "-0", "+3", "3 -4", "-3 4", "- 3", "--3", "3,4", "0x3", "3;", &long],
        ),
        (of_cpu(CpuFile::Pids), vec!["2147483648", "4294967296", "99999999999999999999", "³"]),
        (of_cpu(CpuFile::Irqs), vec!["", "eth0", "4294967296", "24-25", "1.0"]),
        (of_cpu(CpuFile::LocalTimer), vec!["", "off", "0 0"]),
        (of_partition(PartitionFile::Tick), vec!["", "0", "require-off", "Off"]),
        (of_partition(PartitionFile::Cpus), vec!["", "x", "3-2", "-1"]),
        (of_partition(PartitionFile::Mode), vec!["", "1", "Shared", "shared isolated"]),
        (of_partition(PartitionFile::Policy), vec!["200 fifo:80"]),
        (of_partition(PartitionFile::Violations), vec!["0"]),
        (Node::Events, vec!["x"]),
        (Node::Cpu(3), vec!["1"]),
    ] {
        for text in texts {
            assert_eq!(ask(&node, text.as_bytes()), None, "{node:?}: {text:?}");
        }
    }
    assert_eq!(ask(&of_cpu(CpuFile::Pids), b"\xff\xfe"), None);
    assert_eq!(ask(&of_cpu(CpuFile::Shielded), b"1\0"), None);
}

/// Processes 200 and 300, and no partition.
struct Machine {
    kernel: Arc<FakeKernel>,
    shield: Shield,
    _dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let kernel = Arc::new(FakeKernel::new());
        for pid in [200, 300] {
            kernel.start(pid, pid, "app", Schedule::Other { nice: 0 });
        }
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let shield = Shield::new(Arc::clone(&kernel) as Arc<dyn Kernel>, Store::at(dir.path()));
        Self { kernel, shield, _dir: dir }
    }

    /// Writes to a file of the tree: the error of write(2), and the reason.
    fn write(&self, path: &str, text: &str) -> Result<(), (Errno, String)> {
        let view = View::read(&self.shield).unwrap();
        let node = path.split('/').try_fold(Node::Root, |node, name| node.child(&view, name));
        let node = node.ok_or((Errno::NOENT, String::new()))?;
        let ask = ask(&node, text.as_bytes()).ok_or((Errno::INVAL, String::new()))?;
        let written = Written { file: path.to_owned(), ask, made: node.made(&view), pid: 1 };
        let came = carry_out(&self.shield, &written);
        came.map(drop).map_err(|refused| (errno(refused.code), refused.why))
    }

    fn done(&self, path: &str, text: &str) {
        self.write(path, text).unwrap_or_else(|error| panic!("{path}: {text}: {error:?}"));
    }

    fn refused(&self, path: &str, text: &str, errno: Errno, words: &str) {
        let before = (self.kernel.snapshot(), self.shield.state().unwrap().partitions);
        let (is, why) = self.write(path, text).expect_err(path);
        assert_eq!(is, errno, "{path}: {text}: {why}");
        assert!(why.contains(words), "{path}: {text}: {why}");
        let after = (self.kernel.snapshot(), self.shield.state().unwrap().partitions);
        assert_eq!(after, before, "{path}: {text}");
    }

    fn create(&self, name: &str, cpus: &str) {
        let spec = Spec::of(cpus.parse().unwrap());
        let request = Request::Create { name: name.to_owned(), spec };
        self.shield.change(&request, &Caller::now(0, "root", "test")).unwrap();
    }

    fn names(&self) -> String {
        self.shield.state().unwrap().known_names()
    }

    fn tick(&self, name: &str) -> Tick {
        self.shield.state().unwrap().partition(name).unwrap().tick
    }
}

#[test]
fn a_cpu_is_shielded_and_given_back() {
    let machine = Machine::new();
    let before = machine.kernel.snapshot();
    machine.done("cpu3/shielded", "0");
    assert_eq!(machine.names(), "there are none");
    machine.done("cpu3/shielded", "1");
    machine.done("cpu3/shielded", "1");
    assert_eq!((machine.names(), machine.kernel.isolated().to_string()), {
        ("known are: cpu3".to_owned(), "3".to_owned())
    });
    let state = machine.shield.state().unwrap();
    assert_eq!(state.partitions[0].created_by, "root: process 1 wrote to cpu3/shielded");
    machine.done("cpu3/pids", "200");
    machine.done("cpu3/irqs", "24");
    assert_eq!(machine.kernel.allowed(200), "3".parse().ok());
    // What is inside goes back first.
    machine.done("cpu3/shielded", "0");
    assert_eq!(machine.names(), "there are none");
    assert_eq!(machine.kernel.snapshot(), before);
}

#[test]
fn the_first_process_or_line_shields_its_cpu() {
    let machine = Machine::new();
    machine.done("cpu3/pids", "200 300\n");
    assert_eq!(machine.kernel.allowed(300), "3".parse().ok());
    machine.done("cpu2/irqs", "24\n");
    assert_eq!(machine.names(), "known are: cpu3, cpu2");
    machine.done("cpu3/pids", "-200\n");
    assert_eq!(machine.kernel.allowed(200), "0-1".parse().ok());
    assert_eq!(machine.names(), "known are: cpu3, cpu2");
    machine.done("cpu2/irqs", "-24\n");
}

#[test]
fn no_cpu_is_shielded_for_a_process_that_does_not_come_in() {
    let machine = Machine::new();
    let changes = machine.kernel.changes();
    machine.refused("cpu3/pids", "200 999", Errno::SRCH, "999");
    machine.refused("cpu3/irqs", "99", Errno::NODEV, "99");
    // Bound to its CPU.
    machine.refused("cpu3/pids", "21", Errno::PERM, "");
    assert_eq!(machine.kernel.changes(), changes, "not even for a moment");
    assert_eq!(machine.names(), "there are none");
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let machine = Machine::new();
    machine.refused("cpu3/pids", "-200", Errno::SRCH, "CPU 3 is not shielded");
    machine.refused("cpu3/localtimer", "0", Errno::INVAL, "write 1 to its file shielded first");
    machine.refused("cpu3/localtimer", "5", Errno::INVAL, "cannot slow its tick down");
    machine.create("motion", "2-3");
    machine.refused("cpu3/shielded", "0", Errno::BUSY, "partition motion, which has CPU 2-3");
    machine.refused("cpu3/pids", "200", Errno::BUSY, "use partitions/motion");
    machine.refused("cpu3/localtimer", "1", Errno::BUSY, "use partitions/motion");
    machine.refused("partitions/motion/pids", "999", Errno::SRCH, "999");
    machine.refused("partitions/motion/pids", "-200", Errno::SRCH, "200");
    machine.refused("partitions/motion/cpus", "7", Errno::NODEV, "CPU 7 does not exist");
    machine.refused("partitions/motion/cpus", "0-3", Errno::BUSY, "the system would have no CPU");
    machine.done("partitions/motion/cpus", "3");
    machine.done("cpu3/pids", "200");
    machine.kernel.edit(200, |task| task.schedule = Schedule::Fifo { priority: 5 });
    machine.refused("cpu3/shielded", "0", Errno::BUSY, "became real-time inside");
}

#[test]
fn the_tick_of_a_partition_is_kept_or_may_stop() {
    let machine = Machine::new();
    machine.done("cpu3/pids", "200");
    machine.done("cpu3/irqs", "24");
    machine.done("cpu3/localtimer", "1");
    assert_eq!(machine.tick("cpu3"), Tick::Keep);
    // All else is as it was.
    let state = machine.shield.state().unwrap();
    assert_eq!((state.partitions[0].irqs.clone(), state.partitions[0].tasks.len()), (vec![24], 1));
    machine.done("partitions/cpu3/tick", "off\n");
    assert_eq!(machine.tick("cpu3"), Tick::Off);
    machine.done("cpu3/localtimer", "0");
    machine.done("partitions/cpu3/tick", "keep\n");
    machine.kernel.set_file("/sys/devices/system/cpu/nohz_full", "1-2");
    machine.refused("cpu3/localtimer", "0", Errno::OPNOTSUPP, "boot with nohz_full=3");
    machine.refused("partitions/cpu3/tick", "off", Errno::OPNOTSUPP, "boot with nohz_full=3");
    // What a file shows it takes back.
    machine.done("cpu3/localtimer", "1");
    machine.create("other", "1");
    machine.kernel.set_file("/sys/devices/system/cpu/nohz_full", "2");
    machine.done("partitions/other/tick", "off");
    machine.refused("cpu1/localtimer", "0", Errno::OPNOTSUPP, "boot with nohz_full=1");
}

#[test]
fn the_files_of_a_cpu_without_a_partition_change_no_partition_of_its_name() {
    let machine = Machine::new();
    machine.done("cpu3/pids", "200");
    machine.done("partitions/cpu3/cpus", "2");
    machine.refused("cpu3/pids", "-200", Errno::SRCH, "CPU 3 is not shielded");
    assert_eq!(machine.kernel.allowed(200), "2".parse().ok());
    machine.done("cpu3/shielded", "1");
    assert_eq!(machine.names(), "known are: cpu3, cpu3-2");
    machine.done("cpu3/pids", "300 300");
    machine.done("cpu3/irqs", "24");
    machine.done("cpu3/irqs", "-24 -24");
    assert_eq!(machine.kernel.allowed(300), "3".parse().ok());
}

/// A write that waited for another one's lock.
#[test]
fn what_another_asmp_changed_meanwhile_counts() {
    let tick = || Ask::Tick(Place::Partition("a".to_owned()), Tick::Keep);
    let unshield = || Ask::Unshield(3);
    let join = || Ask::Join(Place::Cpu(3), pids(&[200]));
    let destroy = || Request::Destroy { name: Some("a".to_owned()), demote: true };
    let resize = |cpus: &str| Request::Resize { name: "a".to_owned(), cpus: cpus.parse().unwrap() };
    let caller = || Caller::now(0, "root", "test");
    let view_of = |machine: &Machine, written: &Ask, meanwhile: Request| {
        machine.create("a", "3");
        let view = View::read(&machine.shield).unwrap();
        let asked = request(&view, written).unwrap().unwrap();
        machine.shield.change(&meanwhile, &caller()).unwrap();
        let before = machine.kernel.snapshot();
        let answer = machine.shield.change_of(&view.state, &asked, &caller()).unwrap();
        assert!(answer.is_none(), "{asked:?}");
        assert_eq!(machine.kernel.snapshot(), before);
    };
    for (written, meanwhile) in [
        (tick(), resize("2-3")),
        (tick(), destroy()),
        (unshield(), resize("1-3")),
        (join(), resize("2")),
    ] {
        view_of(&Machine::new(), &written, meanwhile);
    }
}

#[test]
fn a_write_that_waited_does_not_meet_a_later_partition_of_the_name() {
    let machine = Machine::new();
    machine.create("a", "3");
    let view = View::read(&machine.shield).unwrap();
    let made = Made::named(&view, "a");
    let ask = Ask::Join(Place::Partition("a".to_owned()), pids(&[200]));
    let written = Written { file: "partitions/a/pids".to_owned(), ask, made, pid: 1 };
    let change = |request: Request, by: &str| {
        machine.shield.change(&request, &Caller::now(0, "root", by)).unwrap();
    };
    change(Request::Destroy { name: None, demote: true }, "test");
    let again = || Request::Create { name: "a".into(), spec: Spec::of("2".parse().unwrap()) };
    let refused = carry_out(&machine.shield, &written).unwrap_err();
    assert_eq!(errno(refused.code), Errno::NODEV);
    change(again(), "another command");
    let refused = carry_out(&machine.shield, &written).unwrap_err();
    assert_eq!((errno(refused.code), refused.why.contains("has ended")), (Errno::NODEV, true));
}

#[test]
fn what_does_not_go_back_is_an_error_though_the_change_is_made() {
    let machine = Machine::new();
    machine.done("cpu3/irqs", "24");
    let refuses = Fault::Hold { below: "/proc/irq/24", errno: 5 };
    machine.kernel.arm(Some(refuses));
    let (errno, why) = machine.write("cpu3/shielded", "0").unwrap_err();
    assert_eq!(errno, Errno::IO);
    assert!(why.starts_with("made, but not given back: ") && why.contains("irq/24"), "{why}");
    assert_eq!(machine.names(), "there are none");
}

#[test]
fn the_tick_of_what_others_declared_is_left_to_them() {
    let machine = Machine::new();
    let owner = asmp_host::task::identify(&*machine.kernel, 300);
    let spec = Spec::of("2".parse().unwrap());
    let run = Request::Run { name: "run-300".to_owned(), spec, owner };
    let caller = Caller::now(0, "root", "test");
    machine.shield.change(&run, &caller).unwrap();
    machine.refused("cpu2/localtimer", "1", Errno::BUSY, "asmp run");
    let text = r#"{"partition": [{"name": "motion", "cpus": "3", "task":
        [{"command": "app", "user": 0, "policy": "fifo:50"}]}]}"#;
    let declaration = serde_json::from_str(text).unwrap();
    machine.shield.change(&Request::Apply { declaration }, &caller).unwrap();
    machine.refused("cpu3/localtimer", "1", Errno::BUSY, "a file sets policies");
}

#[test]
fn each_code_has_an_error_of_write() {
    for (code, expected) in [
        (10, Errno::PERM),
        (22, Errno::BUSY),
        (8, Errno::BUSY),
        (20, Errno::NODEV),
        (32, Errno::NODEV),
        (34, Errno::PERM),
        (33, Errno::SRCH),
        (2, Errno::INVAL),
        (38, Errno::OPNOTSUPP),
        (57, Errno::OPNOTSUPP),
        (3, Errno::IO),
        (0, Errno::IO),
        (255, Errno::IO),
    ] {
        assert_eq!(errno(code), expected, "{code}");
    }
    // A refusal is no failure: each has an error of its own meaning.
    let source = include_str!("../../shield/src/code.rs");
    let (_, arms) = source.split_once("        match self {\n").unwrap();
    let codes = arms
        .lines()
        .filter_map(|line| line.rsplit_once("=> ")?.1.trim_end_matches(',').parse().ok());
    let codes: Vec<u8> = codes.collect();
    assert!(codes.len() >= 27, "{codes:?}");
    for code in codes {
        assert_ne!(errno(code), Errno::IO, "{code}");
    }
}
