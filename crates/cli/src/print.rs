// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Output for people: outcomes, plans, status. All output of the program goes through this module.
//!
//! Names of other people's processes, groups and files are in it. No control character leaves, and
//! [`line()`] lets no name begin a line of its own. Only JSON and the text of Prometheus go out as
//! they are.

mod guests;

use anyhow::Result;
use asmp_daemon::granted::Shown;
use asmp_daemon::interface::{Repaired, State};
use asmp_host::clock::utc;
use asmp_host::sharing;
use asmp_host::systemd::SERVICE;
use asmp_host::{CpuSet, Facts};
use asmp_shield::text::{shown, shown_lines};
use asmp_shield::verify::{Finding, PartitionStatus, Status, TickStatus};
use asmp_shield::{
    Action, Affected, Chosen, Demotion, Elsewhere, Mode, Outcome, Plan, Reason, Refused, Step,
};
use serde::Serialize;
use std::cell::RefCell;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::path::PathBuf;
use std::sync::OnceLock;

/// These shadow the macros of std, which panic when the reader of a pipe has left (`asmp … | head
/// -1`). A panic in the middle of a change would leave it half done.
macro_rules! print {
    ($($words:tt)*) => { $crate::print::out(format_args!($($words)*)) };
}

macro_rules! println {
    () => { $crate::print::out(format_args!("\n")) };
    ($($words:tt)*) => { $crate::print::out(format_args!("{}\n", format_args!($($words)*))) };
}

macro_rules! eprintln {
    ($($words:tt)*) => { $crate::print::err(format_args!($($words)*)) };
}

/// Prints one line: no name in it can begin another.
macro_rules! line {
    ($($words:tt)*) => { $crate::print::line(format_args!($($words)*)) };
}

/// Why a write to standard output failed; later output is dropped.
static ENDED: OnceLock<ErrorKind> = OnceLock::new();

pub fn out(words: Arguments) {
    raw(&shown_lines(&words.to_string()));
}

pub fn line(words: Arguments) {
    raw(&(shown(&words.to_string()) + "\n"));
}

/// A value as JSON, which has escapes of its own.
pub fn json(value: &impl Serialize) -> Result<()> {
    raw(&(serde_json::to_string_pretty(value)? + "\n"));
    Ok(())
}

/// Whether a program still reads standard output, as far as is known.
pub fn is_read() -> bool {
    ENDED.get().is_none()
}

/// A format that other programs read, and that has escapes of its own.
pub fn raw(text: &str) {
    if cfg!(test) {
        record(text);
    } else if ENDED.get().is_none() {
        note(stdout().write_all(text.as_bytes()));
    }
}

/// Prints a line to standard error. A failure to do so is ignored.
pub fn err(words: Arguments) {
    let line = format!("{}\n", shown(&words.to_string()));
    if cfg!(test) {
        record(&line);
    } else {
        let _ = stderr().write_all(line.as_bytes());
    }
}

thread_local! {
    /// What a test has printed since it last took it.
    static RECORD: RefCell<String> = const { RefCell::new(String::new()) };
}

fn record(text: &str) {
    // What std's own macro prints is shown only where a test fails.
    std::print!("{text}");
    RECORD.with_borrow_mut(|record| record.push_str(text));
}

/// Quotes a text for the shell, where it needs that: a reader may copy the command that we print.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
pub fn recorded() -> String {
    RECORD.take()
}

fn note(written: std::io::Result<()>) {
    if let Err(error) = written {
        let _ = ENDED.set(error.kind());
    }
}

/// Whether all output was written. A reader that has left is no failure. Call at the end.
pub fn is_complete(changed: bool) -> bool {
    note(stdout().flush());
    match ENDED.get() {
        None | Some(ErrorKind::BrokenPipe) => true,
        Some(why) => {
            eprintln!("asmp: {}", incomplete(*why, changed));
            false
        }
    }
}

fn incomplete(why: ErrorKind, changed: bool) -> String {
    let truth = match changed {
        true => "; the change was made all the same: `asmp status` shows what is in force",
        false => "",
    };
    format!("standard output cannot be written: {why}{truth}")
}

/// A count and its noun: "1 change", "2 changes".
fn of(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The outcome of a change: a headline, then what the kernel refused, then what this boot does not
/// allow.
pub fn outcome(outcome: &Outcome, headline: &str) {
    if let Some(recovered) = outcome.recovered.as_ref().filter(|recovered| recovered.steps > 0) {
        eprintln!("asmp: first undid an interrupted change ({})", of(recovered.steps, "step"));
    }
    line!("{headline} ({}, settings read back)", of(outcome.changes, "change"));
    if let Some(why) = &outcome.no_room {
        eprintln!("asmp: no room is kept for undoing: {why}: make room, then run `asmp repair`");
    }
    chosen("  ", &outcome.plan.chosen);
    demoted(&outcome.demoted);
    elsewhere(&outcome.elsewhere);
    refused(&outcome.refused);
    for cannot in &outcome.plan.cannot {
        line!("  not in this boot: {}", cannot.what);
        line!("    cure: {}", cannot.cure);
    }
    affected("  ", &outcome.plan.affected);
    for left_out in &outcome.plan.left_out {
        line!("  left out: {}", left_out.what);
        line!("    cure: {}", left_out.cure);
    }
}

/// Names the CPUs that were chosen, each with the reason, and what was not.
fn chosen(indent: &str, chosen: &[Chosen]) {
    for Chosen { partition, need, kept, choice } in chosen {
        let near = need.near.as_ref().map_or_else(String::new, |near| format!(" near {near}"));
        let whole = if need.whole_cores { " of whole cores" } else { "" };
        let s = if need.count == 1 { "" } else { "s" };
        let verb = if *kept { "keeps" } else { "gets" };
        let (count, cpus) = (need.count, &choice.cpus);
        line!("{indent}{partition} needs {count} CPU{s}{whole}{near} and {verb} CPU {cpus}");
        for Reason { cpu, why } in &choice.reasons {
            line!("{indent}       CPU {cpu}: {why}");
        }
        match &choice.next {
            Some(next) => line!("{indent}       not CPU {}: {}", next.cpus, next.why),
            None => line!("{indent}       no other CPUs are possible"),
        }
    }
}

/// Names the groups and tasks of others that lose CPUs.
fn affected(indent: &str, affected: &[Affected]) {
    for one in affected {
        line!("{indent}affected: {one}");
    }
    if !affected.is_empty() {
        line!("{indent}  cure: {}", Affected::CURE);
    }
}

/// The suffix of a list of CPUs whose SMT siblings were taken out of use; empty if there are none.
pub fn idle_siblings(idle: &CpuSet) -> String {
    if idle.is_empty() { String::new() } else { format!(", SMT siblings {idle} idle") }
}

/// Names the threads that lost their real-time policy when they left a partition.
pub fn demoted(demotions: &[Demotion]) {
    for demotion in demotions {
        let Demotion { task, command, policy, partition } = demotion;
        eprintln!(
            "asmp: task {} ({command}) left {partition} as SCHED_OTHER; it was {policy}",
            task.tid
        );
    }
}

/// Names the tasks that are not where they came from.
pub fn elsewhere(tasks: &[Elsewhere]) {
    tasks.iter().for_each(|task| eprintln!("asmp: {task}"));
}

/// Prints what the kernel refused, one line for each reason.
pub fn refused(refused: &[Refused]) {
    refusals(refused).iter().for_each(|line| line!("  {line}"));
}

pub fn refusals(refused: &[Refused]) -> Vec<String> {
    let mut reasons: Vec<(&str, bool, Vec<&str>)> = Vec::new();
    for one in refused {
        match reasons
            .iter_mut()
            .find(|(reason, disturbs, _)| *reason == one.reason && *disturbs == one.disturbs)
        {
            Some((_, _, what)) => what.push(&one.what),
            None => reasons.push((&one.reason, one.disturbs, vec![&one.what])),
        }
    }
    reasons.sort_by_key(|(_, disturbs, _)| !disturbs);
    reasons
        .into_iter()
        .map(|(reason, disturbs, what)| {
            let harm = if disturbs { "" } else { " (it is not delivered to these CPUs)" };
            format!("the kernel refused{harm}: {}: {reason}", what.join("; "))
        })
        .collect()
}

fn what(step: &Step) -> (String, String) {
    match &step.action {
        Action::Set { knob, to, .. } => (knob.path.display().to_string(), to.clone()),
        Action::Delegate { on: true } => {
            (format!("systemd: {SERVICE}"), "started, delegated".to_owned())
        }
        Action::Delegate { on: false } => (format!("systemd: {SERVICE}"), "stopped".to_owned()),
        Action::MakeGroup { path, threaded } => (
            path.display().to_string(),
            if *threaded { "made, threaded" } else { "made" }.to_owned(),
        ),
        Action::RemoveGroup { path, .. } => (path.display().to_string(), "removed".to_owned()),
        Action::MoveIn { placed, groups } => (
            format!("{} {} ({})", kind(placed.alone), placed.task.tid, placed.command),
            groups.rt.display().to_string(),
        ),
        Action::MoveOut { placed, .. } => (
            format!("{} {} ({})", kind(placed.alone), placed.task.tid, placed.command),
            placed.from.display().to_string(),
        ),
        Action::Evacuate { groups, .. } => {
            (format!("tasks in {}", groups.domain.display()), "back to their cgroups".to_owned())
        }
        Action::Share { cpus } => (sharing::CPUS.to_owned(), cpus.to_string()),
        Action::NoteMasks => {
            ("CPUs of kernel threads and of process 1".to_owned(), "noted".to_owned())
        }
        Action::GiveBackMasks { masks } => {
            (format!("CPUs of {} threads", masks.len()), "as noted".to_owned())
        }
        Action::Confine => ("threads that could be elsewhere".to_owned(), "system CPUs".to_owned()),
        Action::SetTaskPolicy { placed, to, .. } => (
            format!("{} {} ({})", kind(placed.alone), placed.task.tid, placed.command),
            to.to_string(),
        ),
        Action::RestoreTaskPolicy { placed, .. } => (
            format!("{} {} ({})", kind(placed.alone), placed.task.tid, placed.command),
            "the policies it had before".to_owned(),
        ),
        Action::SetPolicy { thread, to } => {
            (format!("thread {} ({})", thread.task.tid, thread.command), to.to_string())
        }
    }
}

fn kind(alone: bool) -> &'static str {
    if alone { "thread" } else { "process" }
}

/// Prints every step of a plan (file, old value, new value, reason), then what this boot does not
/// allow, and what the caller could not read.
pub fn plan(facts: &Facts, plan: &Plan, unreadable: &[PathBuf], as_json: bool) -> Result<()> {
    if as_json {
        let value = serde_json::json!({
            "schema": 1,
            "kernel": facts.release,
            "chosen": plan.chosen,
            "steps": plan.steps,
            "cannot": plan.cannot,
            "left_out": plan.left_out,
            "affected": plan.affected,
            "unreadable": unreadable,
        });
        return json(&value);
    }
    chosen("", &plan.chosen);
    if plan.steps.is_empty() {
        line!("nothing to do");
    }
    for (number, step) in plan.steps.iter().enumerate() {
        let (path, new) = what(step);
        let new = if new.is_empty() { "(none)" } else { &new };
        let number = number + 1;
        match step.old.as_deref() {
            Some(old) => {
                let old = if old.is_empty() { "(none)" } else { old };
                line!("{number:3}. {path}: {old} -> {new}");
            }
            None => line!("{number:3}. {path}: {new}"),
        }
        line!("       {}", step.why);
    }
    for cannot in &plan.cannot {
        line!("not in this boot: {}", cannot.what);
        line!("       cure: {}", cannot.cure);
    }
    affected("", &plan.affected);
    if let Some(first) = unreadable.first() {
        let (first, count) = (first.display(), unreadable.len());
        match facts.root {
            true => {
                line!("not planned, because the kernel closes it: {first} ({count} such files)")
            }
            false => line!(
                "not planned, because only root may read it: {first} ({count} such files); use sudo"
            ),
        }
    }
    for left_out in &plan.left_out {
        line!("left out: {}", left_out.what);
        line!("       cure: {}", left_out.cure);
    }
    Ok(())
}

pub fn orphans(status: &Status) {
    for group in &status.orphans {
        println!("{}: asmp made it, its state is lost: run `asmp restore`", group.display());
    }
}

/// The status of every partition, or of one.
pub fn status(status: &Status, now_s: u64) {
    if status.interrupted {
        line!("a change was cut short and is not undone yet: run `asmp repair`");
    }
    if status.changing {
        line!("a change is under way: what follows may be half of it");
    }
    if status.journal_unreadable {
        line!("a change is under way or was interrupted: run as root to know");
    }
    orphans(status);
    line!("system: CPU {}", status.system_cpus);
    if !status.boot_isolated_cpus.is_empty() {
        line!("isolated at boot (isolcpus=): CPU {}", status.boot_isolated_cpus);
    }
    if !status.boot_isolated_uncounted.is_empty() {
        line!(
            "  cpuset.cpus.isolated does not count CPU {} (Linux 6.12 forgets a CPU of isolcpus= \
             when a partition with it ends): boot again",
            status.boot_isolated_uncounted
        );
    }
    if !status.foreign_isolated_cpus.is_empty() {
        let by = match status.orphans.is_empty() {
            true => "another program",
            false => "the groups above, or another program",
        };
        line!("isolated by {by}: CPU {}", status.foreign_isolated_cpus);
    }
    if let Some(home) = &status.irq_home {
        line!("device interrupts are routed to CPU {home} alone; `asmp restore` undoes that");
    }
    findings("left: ", &status.left);
    affected("", &status.affected);
    if status.partitions.is_empty() {
        line!("no partition");
    }
    for partition in &status.partitions {
        one(partition, now_s);
    }
}

/// What asmpd says of itself.
pub fn held(asmpd: &State) {
    let since = ago(asmpd.running_us / 1_000_000);
    if asmpd.blind {
        line!("asmpd has run for {since}, and cannot look at the machine now: `asmp events`");
        return;
    }
    let repaired = match asmpd.counts.repaired {
        1 => "1 violation".to_owned(),
        count => format!("{count} violations"),
    };
    let storm = if asmpd.storming { "; broken as fast as repaired: repairs wait" } else { "" };
    line!("held by asmpd, which has run for {since}: {repaired} repaired{storm} (`asmp events`)");
    for Repaired { partition, count } in &asmpd.repaired {
        line!("  of {partition}: {count}");
    }
}

/// What a user who is not root may do.
pub fn granted(grant: &Shown) {
    let Shown { cpus, policy, partitions, seconds } = grant;
    let time = seconds.map(|s| format!(", for {} at most", ago(s))).unwrap_or_default();
    let partitions = of(*partitions, "partition");
    line!("you may `asmp run` on CPU {cpus}: at most {policy}, {partitions} at a time{time}");
}

/// Settings whose values before the lost partitions are not known.
pub fn unknown(settings: &[String]) {
    println!("  their state was lost; asmp may have changed these settings:");
    settings.iter().for_each(|setting| println!("    {setting}"));
}

/// What violates partitions that a change repaired.
pub fn violated(verb: &str, partitions: &[&PartitionStatus]) {
    for partition in partitions {
        findings(&format!("  {} {verb}: ", partition.name), &partition.violations);
    }
}

fn state(shielded: bool, mode: Mode, guarantee_checked: Option<bool>) -> &'static str {
    match mode {
        Mode::Isolated if shielded => "shielded",
        Mode::Isolated => "VIOLATED",
        Mode::Shared if !shielded => "shared, VIOLATED",
        Mode::BestEffort if !shielded => "shared without a guarantee, VIOLATED",
        Mode::Shared if guarantee_checked != Some(true) => {
            "shared, guarantee not checked (look as root)"
        }
        Mode::Shared => "shared, guarded",
        Mode::BestEffort => "shared without a guarantee",
    }
}

fn one(partition: &PartitionStatus, now_s: u64) {
    let state = state(partition.shielded, partition.mode, partition.guarantee_checked);
    let idle = idle_siblings(&partition.idle_cpus);
    line!(
        "{}: CPU {}{idle}: {state}, the kernel says {:?}",
        partition.name,
        partition.cpus,
        partition.kernel_says
    );
    line!(
        "  since: {} by {}",
        ago(now_s.saturating_sub(partition.created_s)),
        partition.created_by
    );
    for words in guests::lines(&partition.shared) {
        line!("  {words}");
    }
    if let Some(grant) = &partition.granted {
        let end = grant.until_s.map(|end_s| format!(", until {} UTC", utc(end_s)));
        let end = end.unwrap_or_default();
        line!("  grant: of user {}, at most {}{end}", grant.uid, grant.policy);
    }
    line!(
        "  tick:  {}",
        match &partition.tick {
            TickStatus::Kept => "kept".to_owned(),
            TickStatus::CanStop => "stops while one task runs (asmp noise counts it)".to_owned(),
            TickStatus::CannotStop { cpus } => format!("CPU {cpus} cannot stop it in this boot"),
        }
    );
    if !partition.irqs.is_empty() {
        let irqs: Vec<String> = partition.irqs.iter().map(u32::to_string).collect();
        line!("  irqs:  {}", irqs.join(" "));
    }
    for task in &partition.tasks {
        let policy = task.policy.as_deref().unwrap_or("ended");
        line!("  task:  {} {} {policy} on CPU {}", task.tid, task.command, task.allowed_cpus);
    }
    for group in &partition.sub_groups {
        println!("  group: {} was made inside; it goes with the partition", group.display());
    }
    findings("  violated: ", &partition.violations);
    findings("  stays: ", &partition.stays);
}

fn findings(label: &str, findings: &[Finding]) {
    for finding in findings {
        line!("{label}{}", finding.what);
        if !finding.cure.is_empty() {
            line!("    {}", finding.cure);
        }
    }
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// An error with its causes in one line. A cause that the text already ends with is not repeated:
/// errors of kernel files hold the kernel's reason in their own sentence.
pub fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        text if text.ends_with(&cause) => text.to_owned(),
        text => format!("{text}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_shield::ChangeError;

    #[test]
    fn a_directory_in_a_command_to_copy_is_one_word_of_the_shell() {
        for word in ["before", "/srv/a.b/measure-1732464000", "grün"] {
            assert_eq!(shell_word(word), word);
        }
        for word in ["two words", "$HOME", "*", "it's", "a;b", "", "tab\t"] {
            let echo = format!("printf %s {}", shell_word(word));
            let output = std::process::Command::new("sh").args(["-c", &echo]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn what_was_not_looked_at_is_not_called_guarded() {
        let unseen = state(true, Mode::Shared, Some(false));
        assert_eq!(unseen, "shared, guarantee not checked (look as root)");
        assert_eq!(state(true, Mode::Shared, Some(true)), "shared, guarded");
        assert_eq!(state(false, Mode::Shared, Some(false)), "shared, VIOLATED");
        assert_eq!(state(false, Mode::Isolated, None), "VIOLATED");
    }

    #[test]
    fn output_that_cannot_be_written_does_not_hide_that_a_change_was_made() {
        let full = incomplete(ErrorKind::StorageFull, true);
        assert!(full.contains("no storage space") && full.contains("change was made"), "{full}");
        assert!(!incomplete(ErrorKind::StorageFull, false).contains("change"));
    }

    #[test]
    fn the_kernels_reason_is_printed_once_however_many_errors_hold_it() {
        let refused = asmp_host::Error::busy("/sys/x".as_ref(), "write");
        let reason = "/sys/x: cannot write: Device or resource busy (os error 16)";
        let error = anyhow::Error::new(ChangeError::from(refused));
        assert_eq!(chain(&error), reason);
        assert_eq!(chain(&error.context("create")), format!("create: {reason}"));
    }
}
