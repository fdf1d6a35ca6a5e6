// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state matrix: before, action, expected exit code and CPUs. One row is one test, on the fake
//! kernel (`cargo test`) and on every guest of the lab (`make vm`). The form of the kernel's
//! test_cpuset_prs.sh.

pub struct Row {
    pub name: &'static str,
    pub before: &'static [&'static str],
    pub action: &'static str,
    pub code: i32,
    /// `cpuset.cpus.isolated` after it, and the mask that new IRQ lines start with.
    pub isolated: &'static str,
    pub irq_mask: &'static str,
}

const fn row(
    name: &'static str,
    before: &'static [&'static str],
    action: &'static str,
    code: i32,
    isolated: &'static str,
    irq_mask: &'static str,
) -> Row {
    Row { name, before, action, code, isolated, irq_mask }
}

const A3: &[&str] = &["create a --cpus 3"];
const A3_B2: &[&str] = &["create a --cpus 3", "create b --cpus 2"];
const A3_IRQ_B2: &[&str] = &["create a --cpus 3 --irq ttyS0", "create b --cpus 2"];
const A23: &[&str] = &["create a --cpus 2-3"];

pub const ROWS: &[Row] = &[
    row("create takes its cpu out of the system", &[], "create a --cpus 3", 0, "3", "7"),
    row("create of several cpus is one partition", &[], "create a --cpus 2-3", 0, "2-3", "3"),
    row("create of a gap keeps the cpu between", &[], "create a --cpus 1,3", 0, "1,3", "5"),
    row("create understands last", &[], "create a --cpus last", 0, "3", "7"),
    row("create understands all-but", &[], "create a --cpus 'all-but 0'", 0, "1-3", "1"),
    row("create chooses the cpus that it is to have", &[], "create a --count 1", 0, "3", "7"),
    row("create chooses another cpu than what is taken", A3, "create b --count 1", 0, "2-3", "3"),
    row("create chooses near an irq", &[], "create a --count 2 --near ttyS0", 0, "2-3", "3"),
    row("more cpus than are free are refused", A3, "create b --count 3", 26, "3", "7"),
    row("a count of no cpus is refused", &[], "create a --count 0", 2, "", "f"),
    row("a count and a list are refused", &[], "create a --count 1 --cpus 3", 2, "", "f"),
    row("near without a count is refused", &[], "create a --cpus 3 --near ttyS0", 2, "", "f"),
    row("near what is not there is refused", &[], "create a --count 1 --near eth7", 27, "", "f"),
    row("near what is near no cpu is refused", &[], "create a --count 1 --near lo", 27, "", "f"),
    row("plan chooses and changes nothing", &[], "plan create a --count 2", 0, "", "f"),
    row("run chooses the cpus of its command", A3, "run --count 1 -- true", 0, "3", "7"),
    row("create understands hex", &[], "create a --cpus 0xc", 0, "2-3", "3"),
    row("a second partition stands beside the first", A3, "create b --cpus 2", 0, "2-3", "3"),
    row("last means the last that is free", A3, "create b --cpus last", 0, "2-3", "3"),
    row("a cpu that is taken is refused", A3, "create b --cpus 2-3", 22, "3", "7"),
    row("a name that is taken is refused", A3, "create a --cpus 2", 31, "3", "7"),
    row("a name that is no directory is refused", &[], "create a/b --cpus 3", 30, "", "f"),
    row("the last cpu of the system is refused", &[], "create a --cpus 0-3", 23, "", "f"),
    row("the last free cpu is refused", A23, "create b --cpus 0-1", 23, "2-3", "3"),
    row("a cpu that does not exist is refused", &[], "create a --cpus 9", 20, "", "f"),
    row("words that are no cpu list are refused", &[], "create a --cpus three", 2, "", "f"),
    row("an irq that does not exist is refused", &[], "create a --cpus 3 --irq 9999", 36, "", "f"),
    row("resize grows", A3, "resize a --cpus 2-3", 0, "2-3", "3"),
    row("resize shrinks", A23, "resize a --cpus 2", 0, "2", "b"),
    row("resize moves to other cpus", A3, "resize a --cpus 1", 0, "1", "d"),
    row("resize into another partition is refused", A3_B2, "resize a --cpus 2-3", 22, "2-3", "3"),
    row("resize to all cpus is refused", A3, "resize a --cpus 0-3", 23, "3", "7"),
    row("resize of nothing is refused", &[], "resize a --cpus 3", 32, "", "f"),
    row("destroy gives everything back", A3, "destroy a", 0, "", "f"),
    row("destroy leaves the other partition alone", A3_B2, "destroy a", 0, "2", "b"),
    row("destroy --all leaves none", A3_B2, "destroy --all", 0, "", "f"),
    row("destroy of nothing is refused", A3, "destroy b", 32, "3", "7"),
    row("restore leaves none", A3_B2, "restore", 0, "", "f"),
    row("restore of an untouched machine does nothing", &[], "restore", 0, "", "f"),
    row("repair of a sound partition changes nothing", A3, "repair a", 0, "3", "7"),
    row("run leaves nothing behind", &[], "run --cpus 3 -- true", 0, "", "f"),
    row("run leaves other partitions alone", A3, "run --cpus 2 -- true", 0, "3", "7"),
    row("run returns the exit status", &[], "run --cpus 3 -- sh -c 'exit 9'", 9, "", "f"),
    row("run returns 128 + signal", &[], "run --cpus 3 -- sh -c 'kill -TERM $$'", 143, "", "f"),
    row(
        "run of a missing command says 127 and undoes",
        &[],
        "run --cpus 3 -- /no/such",
        127,
        "",
        "f",
    ),
    row("run of what is no program says 126", &[], "run --cpus 3 -- /etc", 126, "", "f"),
    row("run on a taken cpu is refused", A3, "run --cpus 3 -- true", 22, "3", "7"),
    row("exec in no partition is refused", &[], "exec a -- true", 32, "", "f"),
    row("exec of a missing command leaves the partition", A3, "exec a -- /no/such", 127, "3", "7"),
    row("a task that does not exist is refused", A3, "add a --pid 4194303", 33, "3", "7"),
    row("an irq moves to another partition", A3_IRQ_B2, "move a --to b --irq ttyS0", 0, "2-3", "3"),
    row("an irq of no partition is not moved", A3_B2, "move a --to b --irq ttyS0", 35, "2-3", "3"),
    row("a task of no partition is not moved", A3_B2, "move a --to b --pid 1", 35, "2-3", "3"),
    row("a move to no partition is refused", A3, "move a --to b --pid 1", 32, "3", "7"),
    row("plan changes nothing", &[], "plan create a --cpus 3", 0, "", "f"),
    row("plan of a run changes nothing", &[], "plan run --cpus 3 -- true", 0, "", "f"),
    row("plan refuses what create refuses", A3, "plan create b --cpus 3", 22, "3", "7"),
    row("strict refuses where managed irqs stay", &[], "create a --cpus 3 --strict", 4, "", "f"),
    row(
        "tick require-off is refused for cpu 0",
        &[],
        "create a --cpus 0 --tick require-off",
        38,
        "",
        "f",
    ),
];
