// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines that lack something, or whose clock or state is wrong.

use super::{Fake, assert_same, prepared};
use crate::exit;
use crate::print::recorded;
use asmp_shield::{Caller, Request, Spec};

const A_YEAR_S: u64 = 366 * 86_400;

#[test]
fn ticks_of_an_unknown_timer_are_no_proof_and_require_off_changes_nothing() {
    let fake = Fake::new();
    let timer = "/sys/devices/system/clockevents/clockevent3/current_device";
    fake.kernel.set_file(timer, "timer7");
    let untouched = fake.kernel.snapshot();
    let (code, words) = fake.says("create a --cpus 3 --tick require-off");
    assert_eq!(code, exit::UNPROVED, "{words}");
    assert!(words.contains("timer timer7"), "{words}");
    assert_same(&untouched, &fake, "not proved");
    assert!(fake.files().is_empty(), "{:?}", fake.files());
    fake.done("create a --cpus 3");
    fake.done("restore");
    assert_same(&untouched, &fake, "restored");
}

#[test]
fn a_kernel_that_cannot_stop_ticks_has_partitions_and_says_so_everywhere() {
    let fake = Fake::new();
    fake.kernel.remove_file("/sys/devices/system/cpu/nohz_full");
    fake.kernel.set_file("/proc/cmdline", "quiet");
    let untouched = fake.kernel.snapshot();
    let cannot = "CONFIG_NO_HZ_FULL";
    for (line, says) in [
        ("plan create a --cpus 3", cannot),
        ("create a --cpus 3", cannot),
        ("status", "CPU 3 cannot stop it in this boot"),
        ("boot show", cannot),
        ("boot enable --cpus 1-3 --dry-run", cannot),
        ("destroy a", ""),
    ] {
        recorded();
        fake.done(line);
        let words = recorded();
        assert!(words.contains(says), "{line}: {words}");
        let helps = ["asmp boot enable --cpus", "boot with nohz_full="];
        assert!(!helps.iter().any(|what| words.contains(what)), "{line}: {words}");
    }
    for line in
        ["create a --cpus 3 --tick require-off", "plan create a --cpus 3 --tick require-off"]
    {
        let (code, words) = fake.says(line);
        assert_eq!(code, 38, "{line}");
        assert!(words.contains(cannot), "{line}: {words}");
    }
    assert_same(&untouched, &fake, "destroyed");
}

#[test]
fn a_priority_of_irq_handlers_without_a_line_is_said_to_wait() {
    let fake = Fake::new();
    let file = fake.dir.path().join("partitions.toml");
    let text = "[[partition]]\nname = \"b\"\ncpus = \"2\"\nirq_priority = 90\n";
    std::fs::write(&file, text).unwrap();
    let file = file.display();
    let note = "IRQ priority 90 has no effect until it has a line";
    for (line, says) in [
        ("plan create a --cpus 3 --irq-priority 90".to_owned(), true),
        ("create a --cpus 3 --irq-priority 90".to_owned(), true),
        ("plan run --cpus 2 --irq-priority 90 -- true".to_owned(), true),
        (format!("apply {file} --dry-run"), true),
        (format!("apply {file}"), true),
        ("plan create c --cpus 1 --irq ttyS0 --irq-priority 90".to_owned(), false),
        ("plan create c --cpus 1".to_owned(), false),
    ] {
        recorded();
        fake.done(&line);
        let words = recorded();
        assert_eq!(words.matches(note).count(), usize::from(says), "{line}: {words}");
    }
}

#[test]
fn a_partition_that_was_made_before_the_clock_was_set_back_is_0_s_old_and_can_be_destroyed() {
    let (fake, untouched) = prepared(&[]);
    let now = Caller::now(0, "root", "test");
    let next_year = Caller { time_s: now.time_s + A_YEAR_S, ..now };
    let spec = Spec::of("3".parse().unwrap());
    fake.shield().change(&Request::Create { name: "a".into(), spec }, &next_year).unwrap();
    recorded();
    fake.done("status");
    let words = recorded();
    assert!(words.contains("since: 0 s by root: test\n"), "{words}");
    fake.done("destroy a");
    assert_same(&untouched, &fake, "destroyed");
}

#[test]
fn status_as_json_prints_nothing_where_the_state_cannot_be_read() {
    let fake = Fake::new();
    fake.done("create a --cpus 3");
    std::fs::write(fake.dir.path().join("state.json"), "hello\n").unwrap();
    recorded();
    let (code, why) = fake.says("status --json");
    assert_eq!(code, exit::BAD_STATE, "{why}");
    // What is recorded is both outputs: nothing but the error is there.
    assert_eq!(recorded(), format!("asmp status --json: {why}\n"));
}
