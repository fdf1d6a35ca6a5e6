// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a partition with this crate alone, as `asmp create NAME --cpus CPUS` does:
//!
//!     create [--plan] NAME CPUS

use asmp_shield::{Caller, Request, Shield, Spec, Tick};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let only_plan = words.first().is_some_and(|word| word == "--plan");
    if only_plan {
        words.remove(0);
    }
    let [name, cpus] = words.as_slice() else {
        return Err("usage: create [--plan] NAME CPUS".into());
    };

    let spec = Spec { tick: Tick::RequireOff, ..Spec::of(cpus.parse()?) };
    let request = Request::Create { name: name.clone(), spec };
    let caller = Caller::now(0, "example", "create");
    let shield = Shield::of_this_machine();

    if only_plan {
        let (_facts, plan) = shield.plan(&request, &caller)?;
        println!("{}", serde_json::to_string_pretty(&plan)?);
        return Ok(());
    }
    let outcome = shield.change(&request, &caller)?;
    println!("partition {name}: {} changes", outcome.changes);
    for refused in &outcome.refused {
        println!("  refused: {}: {}", refused.what, refused.reason);
    }
    for partition in shield.status()?.partitions {
        println!("{}: CPU {}, shielded: {}", partition.name, partition.cpus, partition.shielded);
    }
    Ok(())
}
