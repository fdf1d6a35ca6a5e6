// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CSV (RFC 4180): one line a sample, with the run that it belongs to.

use crate::run::Run;
use crate::sample::Sample;

pub const fn csv_heading() -> &'static str {
    "run,experiment,load,kind,source,due_ns,value_ns,handler_ns,thread_ns,system_ns,\
     ticks,device_interrupts,ipis,softirqs,switches,page_faults\n"
}

/// Empty where it was not recorded.
pub fn csv_line(run: &Run, sample: &Sample) -> String {
    let number = |ns: Option<u64>| ns.map_or_else(String::new, |ns| ns.to_string());
    let counts = sample.counts.map_or_else(
        || ",,,,,".to_owned(),
        |c| {
            let all = [c.ticks, c.device_interrupts, c.ipis, c.softirqs, c.switches, c.page_faults];
            all.map(|count| count.to_string()).join(",")
        },
    );
    let provenance = &run.provenance;
    let words = [
        quoted(&run.dir.display().to_string()),
        format!("{:?}", provenance.experiment).to_lowercase(),
        provenance.load.to_string(),
        provenance.kind.to_string(),
        provenance.source.word().to_owned(),
        sample.due_ns.to_string(),
        sample.value_ns.to_string(),
        number(sample.handler_ns),
        number(sample.thread_ns),
        sample.system_ns.to_string(),
        counts,
    ];
    words.join(",") + "\n"
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
