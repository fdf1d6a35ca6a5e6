// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the state matrix on a real kernel, and what takes more than a row.

use super::guests::{Architecture, Boot, On, Tier};
use super::lab::{Test, asmp, console, guest, isolated, read, test};
use super::rows::{ROWS, Row};
use super::snapshot::snapshot;
use std::fs;
use std::path::Path;

/// One test for each row. What `asmp` refuses before it writes anything is the same on every
/// kernel.
pub fn all() -> Vec<Test> {
    let of_row = |row: &'static Row| {
        let on = if is_refusal(row) { On::One } else { On::All };
        test(row.name, move || check(row)).on(on).also_on_arm64(Tier::Nightly)
    };
    let mut tests: Vec<Test> = ROWS.iter().map(of_row).collect();
    tests
        .push(test("cpu 0 keeps house for candidates and the kernel's own words say so", cpu_zero));
    tests.push(test("boot writes its drop-in and no other file", boot_drop_in).on(On::One));
    tests.push(test("an offline cpu is refused", offline_cpu_is_refused));
    tests.push(test(
        "a file declares partitions and an unchanged file changes nothing",
        a_file_declares,
    ));
    // Not on arm64: its lines of each CPU stay, and the test knows those of amd64.
    tests.push(test("every other irq leaves and a named irq comes", irqs_leave_and_come));
    tests.push(test(ROUND, round).on(On::One).booted(&[Boot::Bare]).also_on_arm64(Tier::Ci));
    tests.push(test("without root a change is refused", without_root).on(On::One));
    tests.push(test("the snapshot sees every setting that a plan changes", settings_are_seen));
    tests
}

const ROUND: &str = "check, create, noise, status and destroy, and the machine is as it was";

/// What every machine must do, in little time.
fn round() {
    asmp("check").done();
    asmp("create a --cpus 3 --irq ttyS0").done();
    assert_eq!(isolated(), "3");
    let report = asmp("noise a -t 3s --json").done().out;
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let counts = &report["cpus"]["3"];
    assert!(counts["ticks"].is_u64(), "the row of the tick is known: {report}");
    let has_events = Path::new("/sys/kernel/tracing/events/exceptions").exists();
    assert_eq!(counts["user_page_faults"].is_u64(), has_events, "{report}");
    asmp("status").done().says("a: CPU 3");
    asmp("destroy a").done();
    if guest().is_some_and(|guest| guest.architecture == Architecture::Arm64) {
        lines_of_each_cpu();
    }
}

/// Numbers below 32 are the GIC's own interrupts (SGIs and PPIs), which each CPU has for itself.
fn lines_of_each_cpu() {
    asmp("create a --cpus 3 --irq arch_timer").code(36).says("arch_timer");
    let plan = asmp("plan create a --cpus 3").done().out;
    let mut of_each_cpu = 0;
    for entry in fs::read_dir("/proc/irq").expect("/proc/irq").flatten() {
        let number = entry.file_name().to_string_lossy().into_owned();
        let text = |name: &str| fs::read_to_string(format!("/sys/kernel/irq/{number}/{name}"));
        let chip = text("chip_name").unwrap_or_default();
        let hwirq = text("hwirq").ok().and_then(|text| text.trim().parse::<u32>().ok());
        if chip.starts_with("GIC") && hwirq.is_some_and(|hwirq| hwirq < 32) {
            of_each_cpu += 1;
            assert!(!plan.contains(&format!("/proc/irq/{number}/")), "IRQ {number}: {plan}");
        }
    }
    assert!(of_each_cpu > 1 && plan.contains("/proc/irq/"), "{of_each_cpu} such lines: {plan}");
}

/// Whether the row's exit code says that the request itself was refused: 2, 20 to 38.
fn is_refusal(row: &Row) -> bool {
    row.code == 2 || (20..=38).contains(&row.code)
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

/// What the idle machine changes by itself is left out of the snapshot: no setting of ours may be
/// among it, or a test would not see that it stays changed.
fn settings_are_seen() {
    let plan = asmp("plan --json create a --cpus 3").done().out;
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    let steps = plan["steps"].as_array().expect("steps");
    let paths = steps.iter().filter_map(|step| step["knob"]["path"].as_str());
    // Groups that are to be made have no files yet; the snapshot follows no links.
    let paths: Vec<_> = paths.filter_map(|path| fs::canonicalize(path).ok()).collect();
    assert!(paths.len() > 5, "{paths:?}");
    let seen = snapshot();
    let unseen: Vec<_> =
        paths.iter().filter(|path| !seen.contains_key(&path.display().to_string())).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
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
    fs::write(
        file,
        "[[partition]]\nname = \"a\"\ncpus = \"3\"\n[[partition]]\nname = \"b\"\ncpus = \"2\"\n",
    )
    .expect("/tmp");
    asmp(&format!("apply {file} --dry-run")).done().says("isolated");
    assert_eq!(isolated(), "");
    asmp(&format!("apply {file}")).done();
    assert_eq!(isolated(), "2-3");
    asmp(&format!("apply {file}")).done().says("0 changes");
    // CPUs pass from one partition to the other in one transaction.
    fs::write(
        file,
        "[[partition]]\nname = \"a\"\ncpus = \"2\"\n[[partition]]\nname = \"b\"\ncpus = \"3\"\n",
    )
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
        let actions =
            fs::read_to_string(format!("/sys/kernel/irq/{number}/actions")).unwrap_or_default();
        if actions.trim() == console() {
            assert_eq!(list.trim(), "3", "the named line came");
        } else if list.trim() == "3" || list.trim().ends_with("-3") {
            stayed.push((number, actions.trim().to_owned()));
        }
    }
    // Only managed lines (a queue of each virtio disk) and the two old ones of the interrupt
    // controller stay.
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
