// SPDX-License-Identifier: Apache-2.0 OR MIT
//! check: prints what the doctor found.

use crate::asmpd::Asmpd;
use crate::exit::VIOLATED;
use crate::print;
use anyhow::Result;
use asmp_daemon::policy;
use asmp_host::Kernel;
use asmp_shield::doctor::{Examination, Item, Verdict};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Prints the findings; the exit code is 7 where something is missing.
pub fn check(kernel: &dyn Kernel, as_json: bool) -> Result<u8> {
    let mut examination = Examination::of(kernel)?;
    examination.items.extend(of_asmpd(kernel));
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

/// asmpd, and what it needs.
fn of_asmpd(kernel: &dyn Kernel) -> Vec<Item> {
    let item = |what, verdict, found: String, cure: &str| {
        let cure = if verdict == Verdict::Optional { cure.to_owned() } else { String::new() };
        Item { what, verdict, found, cure }
    };
    let good = |is_so| if is_so { Verdict::Ok } else { Verdict::Optional };
    let found = |is_so, yes: &str, no: &str| if is_so { yes } else { no }.to_owned();
    let asmpd = Asmpd::connect();
    let fuse = kernel.exists(Path::new("/dev/fuse"));
    let opened = File::open(policy::FILE).map_err(|error| error.kind());
    let policy = match (opened, policy::Files::default().read()) {
        (Err(ErrorKind::PermissionDenied), _) => {
            (Verdict::NotApplicable, "only root may read it: sudo asmp check".to_owned())
        }
        (Err(ErrorKind::NotFound), _) => {
            (Verdict::NotApplicable, format!("{}: not there", policy::FILE))
        }
        (_, Ok(_)) => (Verdict::Ok, policy::FILE.to_owned()),
        (_, Err(why)) => (Verdict::Optional, format!("it grants nothing: {why}")),
    };
    let cure = match asmpd {
        Ok(_) => "it repairs what others break: systemctl enable --now asmpd",
        Err(_) => "see what it says: journalctl -u asmpd",
    };
    vec![
        item(
            "asmpd",
            good(matches!(asmpd, Ok(Some(_)))),
            match asmpd {
                Ok(Some(_)) => "running".to_owned(),
                Ok(None) => "not running".to_owned(),
                Err(why) => why.to_string(),
            },
            cure,
        ),
        item(
            "partitions as files",
            good(fuse),
            found(fuse, "/dev/fuse", "there is no /dev/fuse"),
            "modprobe fuse, then restart asmpd",
        ),
        item("policy of users", policy.0, policy.1, "correct it: asmp help policy"),
    ]
}
