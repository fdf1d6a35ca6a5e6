// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names, numbers and texts of the files.

use super::*;
use asmp_host::fake::FakeKernel;
use asmp_host::store::Store;
use asmp_host::{Kernel, Schedule};
use asmp_shield::{Caller, Members, Request, Spec};
use std::collections::BTreeSet;
use std::sync::Arc;

/// CPUs 2 and 3 in partition `motion`, with process 200, its thread 201, and IRQ 24.
fn machine() -> (tempfile::TempDir, Arc<FakeKernel>, Shield) {
    let kernel = Arc::new(FakeKernel::new());
    kernel.start(200, 200, "app", Schedule::Other { nice: 0 });
    kernel.start(201, 200, "loop", Schedule::Fifo { priority: 80 });
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let shield = Shield::new(Arc::clone(&kernel) as Arc<dyn Kernel>, Store::at(dir.path()));
    let caller = Caller { time_s: 0, ..Caller::now(0, "root", "test") };
    let name = "motion".to_owned();
    let spec = Spec { irqs: vec!["24".to_owned()], ..Spec::of("2-3".parse().unwrap()) };
    let members = Members { pids: vec![200], ..Members::default() };
    shield.change(&Request::Create { name: name.clone(), spec }, &caller).unwrap();
    shield.change(&Request::Add { name, members }, &caller).unwrap();
    (dir, kernel, shield)
}

/// All nodes below this one, itself included.
fn all(view: &View, node: Node) -> Vec<Node> {
    let below = node.children(view).into_iter().flat_map(|(_, child)| all(view, child));
    let below: Vec<Node> = below.collect();
    [vec![node], below].concat()
}

fn node(view: &View, path: &str) -> Option<Node> {
    path.split('/').try_fold(Node::Root, |node, name| node.child(view, name))
}

#[test]
fn each_node_has_a_number_of_its_own_a_path_and_a_parent() {
    let (_dir, _, shield) = machine();
    let (view, inodes) = (View::read(&shield).unwrap(), Inodes::default());
    let nodes = all(&view, Node::Root);
    // The root, 4 CPUs with 4 files, events, metrics, partitions, and one with 9 files.
    assert_eq!(nodes.len(), 1 + 4 * 5 + 1 + 1 + 1 + 10);
    let numbers: BTreeSet<u64> = nodes.iter().map(|one| inodes.number(&view, one)).collect();
    assert_eq!(numbers.len(), nodes.len());
    for one in &nodes {
        assert_eq!(inodes.node(&view, inodes.number(&view, one)).as_ref(), Some(one));
        assert_eq!(one.is_directory(), !one.children(&view).is_empty(), "{one:?}");
        if *one != Node::Root {
            assert_eq!(node(&view, &one.path()).as_ref(), Some(one));
            assert!(one.parent().children(&view).iter().any(|(_, child)| child == one));
        }
    }
}

#[test]
fn numbers_and_names_of_nothing_are_no_node() {
    let (_dir, _, shield) = machine();
    let (view, inodes) = (View::read(&shield).unwrap(), Inodes::default());
    let of = |node: &Node| inodes.number(&view, node);
    let ended = of(&Node::OfPartition("ended".to_owned(), PartitionFile::Pids));
    let cpu = of(&Node::Cpu(3));
    for number in [0, 5, 255, ended, of(&Node::Cpu(4)), cpu + 5, cpu + 255, u64::MAX, OF_CPU - 1] {
        assert_eq!(inodes.node(&view, number), None, "{number:x}");
    }
    for path in [
        "cpu4",
        "cpu03",
        "cpu+3",
        "cpu",
        "cpu-1",
        "CPU3",
        "cpu3/",
        "cpu3/tids",
        "partitions/ended",
        "partitions/motion/localtimer",
        "partitions/motion/",
        "events/1",
        "..",
        ".",
        "",
    ] {
        assert_eq!(node(&view, path), None, "{path}");
    }
}

#[test]
fn the_files_of_a_cpu_tell_of_its_partition() {
    let (_dir, _, shield) = machine();
    let view = View::read(&shield).unwrap();
    let text = |path: &str| text(&node(&view, path).unwrap(), &view, &shield);
    for (path, words) in [
        ("cpu3/shielded", "1\n"),
        ("cpu3/pids", "200\n"),
        ("cpu3/irqs", "24\n"),
        ("cpu3/localtimer", "0\n"),
        ("cpu1/shielded", "0\n"),
        ("cpu1/pids", ""),
        ("cpu1/irqs", ""),
        ("cpu1/localtimer", "1\n"),
        ("partitions/motion/cpus", "2-3\n"),
        ("partitions/motion/pids", "200\n"),
        ("partitions/motion/tids", "200\n201\n"),
        ("partitions/motion/irqs", "24\n"),
        ("partitions/motion/policy", "200 other\n201 fifo:80\n"),
        ("partitions/motion/tick", "off\n"),
    ] {
        assert_eq!(text(path).as_deref(), Some(words), "{path}");
    }
    for path in ["cpu3", "partitions/motion", "partitions/motion/violations", "events", "metrics"] {
        assert_eq!(text(path), None, "{path}");
    }
}

#[test]
fn a_tick_that_this_boot_cannot_stop_is_on() {
    let (_dir, kernel, shield) = machine();
    kernel.set_file("/sys/devices/system/cpu/nohz_full", "2");
    let view = View::read(&shield).unwrap();
    let text = |path: &str| text(&node(&view, path).unwrap(), &view, &shield).unwrap();
    assert_eq!([text("cpu2/localtimer"), text("cpu3/localtimer")], ["0\n", "1\n"]);
    kernel.remove_file("/sys/devices/system/cpu/nohz_full");
    assert!(View::read(&shield).unwrap().nohz_full.is_empty());
}
