// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two hardware threads a core, and a kernel booted without any parameter of ours.

use super::guests::Boot;
use super::lab::{Test, asmp, isolated, read, test};

pub fn all() -> Vec<Test> {
    let smt = |name, run: fn()| test(name, run).booted(&[Boot::Smt]).lacks(one_thread_a_core);
    vec![
        smt("smt: the other thread of a core leaves the system with it", sibling_leaves),
        smt("smt: a core is not divided between partitions", core_is_not_divided),
        smt("smt: resize takes and returns whole cores", resize_by_cores),
        smt("smt: share lets the other thread work for the system", shared_core),
        test("smt: without a candidate the tick stays and the parameter is named", no_candidate)
            .booted(&[Boot::Smt])
            .lacks(candidates),
    ]
}

fn one_thread_a_core() -> Option<&'static str> {
    let siblings = read("/sys/devices/system/cpu/cpu3/topology/thread_siblings_list");
    (siblings != "2-3").then_some("no guest of two threads a core")
}

fn candidates() -> Option<&'static str> {
    read("/sys/devices/system/cpu/nohz_full").contains('3').then_some("booted with nohz_full")
}

fn sibling_leaves() {
    asmp("create a --cpus 3").done().says("SMT siblings 2 idle");
    assert_eq!(isolated(), "2-3");
    // Nothing of the partition runs on the idle thread.
    asmp("exec a -- grep Cpus_allowed_list /proc/self/status")
        .done()
        .says("Cpus_allowed_list:\t3\n");
    asmp("status").done();
    asmp("destroy a").done();
    assert_eq!(isolated(), "");
}

fn core_is_not_divided() {
    asmp("create a --cpus 3").done();
    asmp("create b --cpus 2").code(22);
    // CPU 0 would have to leave too, and is the system's last.
    asmp("create b --cpus 1").code(24);
    asmp("create b --cpus 1 --smt share").done();
    assert_eq!(isolated(), "1-3");
}

fn resize_by_cores() {
    asmp("create a --cpus 3").done();
    asmp("resize a --cpus 2-3").done();
    asmp("exec a -- grep Cpus_allowed_list /proc/self/status")
        .done()
        .says("Cpus_allowed_list:\t2-3\n");
    asmp("resize a --cpus 2").done();
    asmp("exec a -- grep Cpus_allowed_list /proc/self/status")
        .done()
        .says("Cpus_allowed_list:\t2\n");
    assert_eq!(isolated(), "2-3");
}

fn shared_core() {
    asmp("run --cpus 3 --smt share -- cat /sys/fs/cgroup/cpuset.cpus.isolated").done().says("3\n");
    asmp("create a --cpus 3 --smt share").done();
    assert_eq!(isolated(), "3");
}

fn no_candidate() {
    asmp("create a --cpus 3 --tick require-off").code(38).says("nohz_full");
    assert_eq!(isolated(), "");
    asmp("plan create a --cpus 3").done().says("nohz_full=");
    asmp("check").says("nohz_full");
}
