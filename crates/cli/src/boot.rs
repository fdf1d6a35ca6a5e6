// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Boot parameters of candidate CPUs. Only what no run time can do (`nohz_full=`, `rcu_nocbs=`), in
//! one drop-in of our own; no other file is ever written. For other boot loaders `loader` says what
//! to do by hand.

use crate::args::Boot;
use crate::exit::{NO_BOOT_DROP_IN, NOT_ROOT, USAGE, failure};
use anyhow::{Context, Result};
use asmp_host::store::replace_file;
use asmp_host::{CpuSet, Facts, Kernel};
use std::fs;
use std::path::Path;

mod loader;

use loader::{DROP_INS, Loader};

const FILE: &str = "asmp.cfg";

pub fn boot(kernel: &dyn Kernel, action: &Boot) -> Result<()> {
    let facts = Facts::read(kernel)?;
    let file = Path::new(DROP_INS).join(FILE);
    let loader = loader::find(kernel);
    match action {
        Boot::Show => show(&facts, loader, &file),
        Boot::Enable { cpus, dry_run } => {
            let cpus = candidates(&facts, cpus.resolve(&facts.cpus.online))?;
            enable(&facts, loader, &file, &cpus, *dry_run)
        }
        Boot::Disable => disable(&facts, loader, &file),
    }
}

fn show(facts: &Facts, loader: Loader, file: &Path) -> Result<()> {
    let of = |name: &str| facts.boot_parameter(name).unwrap_or("not given").to_owned();
    println!("this boot: nohz_full={} rcu_nocbs={}", of("nohz_full"), of("rcu_nocbs"));
    println!("candidates now: {}", some(&facts.cpus.nohz_full));
    if !facts.cpus.tick_can_stop {
        println!("{CANNOT}");
    }
    match fs::read_to_string(file) {
        Ok(text) => print!("{}:\n{text}", file.display()),
        Err(_) => println!("{}: not there", file.display()),
    }
    if facts.cpus.tick_can_stop {
        println!("to change it: {}", loader.how("nohz_full=LIST rcu_nocbs=LIST"));
    }
    Ok(())
}

const CANNOT: &str = "this kernel cannot stop a tick (it was built without CONFIG_NO_HZ_FULL): \
                      only another kernel helps";

fn some(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "none".to_owned() } else { format!("CPU {cpus}") }
}

/// CPU 0 keeps time for the others, and the system needs a CPU with a tick.
fn candidates(facts: &Facts, cpus: CpuSet) -> Result<CpuSet> {
    asmp_shield::possible_cpus(facts, &cpus)?;
    if cpus.contains(0) {
        return Err(failure(
            USAGE,
            "CPU 0 cannot be a candidate: it keeps the time for the others; leave it out",
        ));
    }
    Ok(cpus)
}

fn parameters(cpus: &CpuSet) -> String {
    format!("nohz_full={cpus} rcu_nocbs={cpus}")
}

fn text(cpus: &CpuSet) -> String {
    format!(
        "# Written by `asmp boot enable`, removed by `asmp boot disable`.\n\
         GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {}\"\n",
        parameters(cpus)
    )
}

fn enable(facts: &Facts, loader: Loader, file: &Path, cpus: &CpuSet, dry_run: bool) -> Result<()> {
    let text = text(cpus);
    match loader {
        Loader::GrubDropIns => print!("{}:\n{text}", file.display()),
        _ => println!("to do by hand: {}", loader.how(&parameters(cpus))),
    }
    if !facts.cpus.tick_can_stop {
        println!("note: {CANNOT}");
    }
    for name in ["nohz_full", "rcu_nocbs", "isolcpus"] {
        if let Some(value) = facts.boot_parameter(name) {
            println!(
                "note: this boot already has {name}={value}; given elsewhere it stays, and the \
                 last one counts"
            );
        }
    }
    if dry_run {
        return Ok(());
    }
    may_write(facts, loader, &parameters(cpus))?;
    replace_file(file, text.as_bytes(), 0o644)
        .with_context(|| format!("{}: cannot be written", file.display()))?;
    println!("written; now run update-grub, and reboot when it suits you");
    Ok(())
}

fn disable(facts: &Facts, loader: Loader, file: &Path) -> Result<()> {
    if !file.exists() {
        println!("{}: not there, nothing to do", file.display());
        if loader != Loader::GrubDropIns {
            println!("what was given to the boot loader by hand stays there");
        }
        return Ok(());
    }
    may_write(facts, loader, "")?;
    fs::remove_file(file).with_context(|| format!("{}: cannot be removed", file.display()))?;
    println!("{} removed; now run update-grub, and reboot when it suits you", file.display());
    Ok(())
}

fn may_write(facts: &Facts, loader: Loader, parameters: &str) -> Result<()> {
    if !facts.root {
        return Err(failure(NOT_ROOT, "only root may write boot parameters: use sudo"));
    }
    match loader {
        Loader::GrubDropIns => Ok(()),
        _ => Err(failure(
            NO_BOOT_DROP_IN,
            format!(
                "{DROP_INS} does not exist, and asmp writes nothing but GRUB's drop-ins: {}",
                loader.how(parameters)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drop_in_adds_to_what_is_there_and_says_who_wrote_it() {
        let text = text(&"1-3".parse().unwrap());
        assert!(text.contains("$GRUB_CMDLINE_LINUX nohz_full=1-3 rcu_nocbs=1-3"));
        assert!(text.starts_with("# Written by `asmp boot enable`"));
    }

    #[test]
    fn disable_says_that_what_was_given_to_another_loader_by_hand_stays() {
        let facts = Facts::read(&asmp_host::fake::FakeKernel::new()).unwrap();
        let file = Path::new("/no/such/directory/asmp.cfg");
        for (loader, stays) in [(Loader::Grubby, true), (Loader::GrubDropIns, false)] {
            crate::print::recorded();
            disable(&facts, loader, file).unwrap();
            let words = crate::print::recorded();
            assert!(words.contains("nothing to do"), "{words}");
            assert_eq!(words.contains("by hand stays there"), stays, "{words}");
        }
    }
}
