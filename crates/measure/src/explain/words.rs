// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for what a sample's CPU did.

use asmp_host::tracefs::{Event, EventKind};

/// `+12.0 us IPI reschedule`: the event, since the instant that was due.
pub(super) fn describe(event: &Event, due_ns: u64) -> String {
    let what = match &event.kind {
        EventKind::LocalTimer => "local timer".to_owned(),
        EventKind::TimerExpired(function) => format!("timer {function}"),
        EventKind::Ipi(name) => format!("IPI {name}"),
        EventKind::Device { irq, name } => format!("IRQ {irq} ({name})"),
        EventKind::Softirq(name) => format!("softirq {name}"),
        EventKind::HandlerEnd => "handler ends".to_owned(),
        EventKind::Switch { to_tid, to, .. } => format!("switch to {to}/{to_tid}"),
        EventKind::Waking { tid, command, .. } => format!("wakes {command}/{tid}"),
        EventKind::PageFault { .. } => "page fault".to_owned(),
        EventKind::Migration { tid, command, from, to } => {
            format!("{command}/{tid} moves from CPU {from} to {to}")
        }
        EventKind::Fork { parent, child } => format!("task {parent} forks {child}"),
        EventKind::Timerlat { context, .. } => format!("timerlat {context}"),
        EventKind::Lost(count) => format!("{count} records lost"),
        EventKind::Unreadable => "a record that cannot be read".to_owned(),
    };
    format!("+{} {what}", micros(event.at_ns.saturating_sub(due_ns)))
}

pub(super) fn micros(ns: u64) -> String {
    format!("{:.1} us", ns as f64 / 1e3)
}

/// Columns of a line of [`wrapped`].
pub(super) const COLUMNS: usize = 96;

/// A sentence in lines that a terminal holds; those after the first are indented.
pub(crate) fn wrapped(sentence: &str) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in sentence.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > COLUMNS {
            text.push_str("\n    ");
            column = 4;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text
}
