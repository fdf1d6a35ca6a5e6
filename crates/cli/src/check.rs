// SPDX-License-Identifier: Apache-2.0 OR MIT
//! check: prints what the doctor found.

use crate::exit::VIOLATED;
use crate::print;
use anyhow::Result;
use asmp_host::Kernel;
use asmp_shield::doctor::{Examination, Verdict};

/// Prints the findings; the exit code is 7 where something is missing.
pub fn check(kernel: &dyn Kernel, as_json: bool) -> Result<u8> {
    let examination = Examination::of(kernel)?;
    let (facts, items) = (&examination.facts, &examination.items);
    if as_json {
        let value = serde_json::json!({
            "schema": 1, "kernel": facts.release, "items": items, "facts": facts,
        });
        print::json(&value)?;
    } else {
        line!("kernel {}, CPU {}", facts.release, facts.cpus.online);
        for item in items {
            let word = match item.verdict {
                Verdict::Ok => "ok",
                Verdict::Missing => "MISSING",
                Verdict::Optional => "optional",
                Verdict::NotApplicable => "n/a",
            };
            line!("{word:>8}  {}: {}", item.what, item.found);
            if !item.cure.is_empty() {
                line!("          cure: {}", item.cure);
            }
        }
    }
    Ok(if examination.lacks_something() { VIOLATED } else { 0 })
}
