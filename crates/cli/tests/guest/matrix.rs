//! The state matrix: before, action, expected exit code and CPUs. One row is one test.
//! The same form as the kernel's own test_cpuset_prs.sh.

use super::lab::{Test, asmp, isolated, read, test};
use std::fs;

struct Row {
    name: &'static str,
    before: &'static [&'static str],
    action: &'static str,
    code: i32,
    /// `cpuset.cpus.isolated` after it, and the mask that new IRQ lines start with.
    isolated: &'static str,
    irq_mask: &'static str,
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
const A23: &[&str] = &["create a --cpus 2-3"];

const ROWS: &[Row] = &[
    row("create takes its cpu out of the system", &[], "create a --cpus 3", 0, "3", "7"),
    row("create of several cpus is one partition", &[], "create a --cpus 2-3", 0, "2-3", "3"),
    row("create of a gap keeps the cpu between", &[], "create a --cpus 1,3", 0, "1,3", "5"),
    row("create understands last", &[], "create a --cpus last", 0, "3", "7"),
    row("create understands all-but", &[], "create a --cpus 'all-but 0'", 0, "1-3", "1"),
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
    row("run of a missing command says 127 and undoes", &[], "run --cpus 3 -- /no/such", 127, "", "f"),
    row("run of what is no program says 126", &[], "run --cpus 3 -- /etc", 126, "", "f"),
    row("run on a taken cpu is refused", A3, "run --cpus 3 -- true", 22, "3", "7"),
    row("exec in no partition is refused", &[], "exec a -- true", 32, "", "f"),
    row("exec of a missing command leaves the partition", A3, "exec a -- /no/such", 127, "3", "7"),
    row("a task that does not exist is refused", A3, "add a --pid 4194303", 33, "3", "7"),
    row("plan changes nothing", &[], "plan create a --cpus 3", 0, "", "f"),
    row("plan of a run changes nothing", &[], "plan run --cpus 3 -- true", 0, "", "f"),
    row("plan refuses what create refuses", A3, "plan create b --cpus 3", 22, "3", "7"),
    row("strict refuses where managed irqs stay", &[], "create a --cpus 3 --strict", 4, "", "f"),
    row("tick require-off is refused for cpu 0", &[], "create a --cpus 0 --tick require-off", 38, "", "f"),
];

/// One test for each row; the row is found again by its name.
pub fn all() -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    macro_rules! rows {
        ($($index:literal)*) => { $( if let Some(row) = ROWS.get($index) {
            tests.push(test(row.name, || check(&ROWS[$index])));
        } )* };
    }
    rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37
          38 39 40 41 42 43 44 45 46 47 48);
    assert_eq!(tests.len(), ROWS.len(), "every row is a test");
    tests.push(test("cpu 0 keeps house for candidates and the kernel's own words say so", cpu_zero));
    tests.push(test("boot writes its drop-in and no other file", boot_drop_in));
    tests.push(test("an offline cpu is refused", offline_cpu_is_refused));
    tests.push(test("a file declares partitions and an unchanged file changes nothing", a_file_declares));
    tests.push(test("every other irq leaves and a named irq comes", irqs_leave_and_come));
    tests.push(test("without root a change is refused", without_root));
    tests
}

fn check(row: &Row) {
    for line in row.before {
        asmp(line).done();
    }
    asmp(row.action).code(row.code);
    assert_eq!(isolated(), row.isolated, "isolated CPUs");
    let mask = read("/proc/irq/default_smp_affinity");
    assert_eq!(mask.trim_start_matches('0'), row.irq_mask, "default IRQ mask");
    asmp("status").done();
}

fn boot_drop_in() {
    let dir = "/etc/default/grub.d";
    let _ = fs::remove_dir_all(dir);
    asmp("boot enable --cpus 1-3").code(41).says("nohz_full=1-3").says("by hand");
    fs::create_dir_all(dir).expect("the guest's disk is its own");
    asmp("boot enable --cpus 1-3 --dry-run").done();
    assert_eq!(fs::read_dir(dir).expect("the directory").count(), 0, "a dry run writes nothing");
    asmp("boot enable --cpus 0-3").code(2).says("CPU 0");
    asmp("boot enable --cpus 1-9").code(20);
    asmp("boot enable --cpus 1-3").done().says("update-grub");
    let text = read(format!("{dir}/asmp.cfg"));
    // As update-grub does: the file is shell, read after the machine's own settings.
    let shell = format!("GRUB_CMDLINE_LINUX=quiet; {text}\necho \"$GRUB_CMDLINE_LINUX\"");
    let output = std::process::Command::new("sh").args(["-c", &shell]).output().expect("sh starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "quiet nohz_full=1-3 rcu_nocbs=1-3");
    asmp("boot show").done().says("asmp.cfg");
    asmp("boot disable").done();
    assert_eq!(fs::read_dir(dir).expect("the directory").count(), 0);
    asmp("boot disable").done().says("nothing to do");
}

fn cpu_zero() {
    match read("/sys/devices/system/cpu/nohz_full").is_empty() {
        true => asmp("create a --cpus 0").done(),
        // 6.12 lets it go.
        false if read("/proc/sys/kernel/osrelease").starts_with("6.") => asmp("create a --cpus 0"),
        false => asmp("create a --cpus 0").code(3).says("housekeeping"),
    };
}

fn offline_cpu_is_refused() {
    let online = "/sys/devices/system/cpu/cpu2/online";
    fs::write(online, "0").expect("CPU 2 goes offline");
    let called = asmp("create a --cpus 2");
    fs::write(online, "1").expect("CPU 2 comes back");
    called.code(21).says("offline");
}

fn a_file_declares() {
    let file = "/tmp/partitions.toml";
    fs::write(file, "[[partition]]\nname = \"a\"\ncpus = \"3\"\n[[partition]]\nname = \"b\"\ncpus = \"2\"\n")
        .expect("/tmp");
    asmp(&format!("apply {file} --dry-run")).done().says("isolated");
    assert_eq!(isolated(), "");
    asmp(&format!("apply {file}")).done();
    assert_eq!(isolated(), "2-3");
    asmp(&format!("apply {file}")).done().says("0 changes");
    // CPUs pass from one partition to the other in one transaction.
    fs::write(file, "[[partition]]\nname = \"a\"\ncpus = \"2\"\n[[partition]]\nname = \"b\"\ncpus = \"3\"\n")
        .expect("/tmp");
    asmp(&format!("apply {file}")).done();
    asmp("status a").done().says("a: CPU 2");
    fs::write(file, "[[partition]]\nname = \"a\"\ncpus = \"2\"\ncolour = 3\n").expect("/tmp");
    asmp(&format!("apply {file}")).code(40).says("colour");
    asmp("apply /no/such.toml").code(40).says("/no/such.toml");
}

fn irqs_leave_and_come() {
    asmp("create a --cpus 3 --irq ttyS0").done();
    let mut stayed = Vec::new();
    for entry in fs::read_dir("/proc/irq").expect("/proc/irq").flatten() {
        let Ok(list) = fs::read_to_string(entry.path().join("smp_affinity_list")) else { continue };
        let number = entry.file_name().to_string_lossy().into_owned();
        let actions = fs::read_to_string(format!("/sys/kernel/irq/{number}/actions")).unwrap_or_default();
        if actions.trim() == "ttyS0" {
            assert_eq!(list.trim(), "3", "the named line came");
        } else if list.trim() == "3" || list.trim().ends_with("-3") {
            stayed.push((number, actions.trim().to_owned()));
        }
    }
    // Only managed lines (a queue of each virtio disk) and the two old ones of the interrupt controller stay.
    for (number, actions) in &stayed {
        assert!(
            actions.contains("-req.") || number == "0" || number == "2",
            "IRQ {number} ({actions}) stayed"
        );
    }
    asmp("create b --cpus 2 --irq ttyS0").code(37);
    asmp("remove a --irq ttyS0").done();
    asmp("remove a --irq ttyS0").code(35);
    asmp("add a --irq ttyS0").done();
}

fn without_root() {
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(super::lab::binary())
        .args(["create", "a", "--cpus", "3"])
        .output()
        .expect("setpriv starts");
    super::lab::called("create a (as nobody)", output).code(10).says("sudo");
}
