// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How `measure` uses the shield: what a run needs is set, and taken back whatever happens.

use crate::args::Shape;
use crate::change::{adopt_kernel_threads, prove_ticks, wish};
use crate::exit::{USAGE, failure};
use anyhow::Result;
use asmp_host::tracefs::timerlat;
use asmp_host::{Cpu, CpuSet, CpuSpec, Facts, task};
use asmp_measure::experiment::{Arrangement, Conductor, ConductorError, Place};
use asmp_shield::plan::Base;
use asmp_shield::{
    Action, Aspect, ChangeError, Partition, Plan, Refusal, Shield, Smt, State, SystemIrqs, Terms, Tick,
    request,
};
use std::cell::{Cell, RefCell};

/// The conductor that changes this machine through the shield. Its errors are [`ChangeError`]s.
pub struct ByShield<'a> {
    shield: &'a Shield<'a>,
    /// Of the partition that is made for a run.
    name: String,
    /// Something may have to be taken back by the shield.
    entered: Cell<bool>,
    /// Until the shield journals the settings of timerlat, they are held here.
    timerlat: RefCell<Option<timerlat::Borrowed<'a>>>,
}

/// The one CPU that the words mean. Refuses a machine or a caller that can make no partition.
pub fn one_cpu(shield: &Shield, spec: &CpuSpec) -> Result<Cpu> {
    let facts = Facts::read(shield.kernel())?;
    request::check_machine(&facts)?;
    let cpus = spec.resolve(&facts.cpus.online);
    let unknown = cpus.difference(&facts.cpus.possible);
    if !unknown.is_empty() {
        return Err(Refusal::UnknownCpus { cpus: unknown, possible: facts.cpus.possible.clone() }.into());
    }
    let offline = cpus.difference(&facts.cpus.online);
    if !offline.is_empty() {
        return Err(Refusal::OfflineCpus { cpus: offline, online: facts.cpus.online.clone() }.into());
    }
    match (cpus.len(), cpus.first()) {
        (1, Some(cpu)) => Ok(cpu),
        _ => Err(failure(USAGE, format!("--cpu {cpus}: one CPU is measured at a time"))),
    }
}

impl<'a> ByShield<'a> {
    pub fn new(shield: &'a Shield<'a>) -> Self {
        Self {
            shield,
            name: format!("measure-{}", std::process::id()),
            entered: Cell::new(false),
            timerlat: RefCell::new(None),
        }
    }

    fn place(&self, place: &Place) -> Result<Vec<String>, ConductorError> {
        let kernel = self.shield.kernel();
        let outcome = match place {
            Place::Unchanged => return Ok(Vec::new()),
            Place::IrqsKeptTo { cpus } => {
                let terms = Terms { irqs: SystemIrqs::KeepTo(cpus), ..Terms::default() };
                self.shield.change(|_, state| Ok(state.partitions.clone()), terms)?
            }
            Place::Partition { cpu, tick_off, prove_tick_off, without } => {
                let owner = task::identify(kernel, std::process::id() as i32);
                let shape = shape(*cpu, *tick_off, without)?;
                let decide = |facts: &Facts, state: &mut State| {
                    let mut after = request::create(facts, state, &wish(&self.name, &shape, owner))?;
                    adopt_kernel_threads(kernel, facts, state, &mut after);
                    Ok(after)
                };
                let proof =
                    |facts: &Facts, base: &Base, after: &[Partition]| prove_ticks(kernel, facts, base, after);
                let proof: Option<asmp_shield::Proof> = prove_tick_off.then_some(&proof);
                self.shield.change(decide, Terms { proof, ..Terms::default() })?
            }
        };
        Ok(settings(&outcome.plan))
    }
}

impl Conductor for ByShield<'_> {
    fn check(&self, cpu: Cpu, places: &[Place]) -> Result<(), ConductorError> {
        let state = self.shield.state()?;
        if let Some(owner) = state.partitions.iter().find(|partition| partition.shielded().contains(cpu)) {
            let (cpus, owner) = (CpuSet::from_iter([cpu]), owner.name.clone());
            return Err(ChangeError::from(Refusal::TakenCpus { cpus, owner }).into());
        }
        for place in places {
            if let Place::Partition { cpu, tick_off, without, .. } = place {
                let shape = shape(*cpu, *tick_off, without)?;
                self.shield.plan(
                    |facts, state| request::create(facts, state, &wish("measure", &shape, None)),
                    false,
                )?;
            }
        }
        Ok(())
    }

    fn enter(&self, arrangement: &Arrangement) -> Result<Vec<String>, ConductorError> {
        self.entered.set(arrangement.place != Place::Unchanged);
        let settings = self.place(&arrangement.place)?;
        if let Some(wanted) = &arrangement.timerlat {
            let borrowed =
                timerlat::Borrowed::set(self.shield.kernel(), wanted).map_err(ChangeError::from)?;
            self.timerlat.replace(Some(borrowed));
        }
        Ok(settings)
    }

    fn admit(&self, tid: i32) -> Result<(), ConductorError> {
        let decide = |facts: &Facts, state: &mut State| {
            let base = Base::of(facts).ok_or(Refusal::NoCgroupV2)?;
            let unknown = |_| Refusal::UnknownTask { tid };
            let thread = task::read(self.shield.kernel(), tid).map_err(unknown)?;
            request::add_task(facts, state, &self.name, &thread, true, Vec::new(), &base.in_tree())
        };
        self.shield.change(decide, Terms::default())?;
        Ok(())
    }

    fn leave(&self) -> Result<(), ConductorError> {
        drop(self.timerlat.take());
        let terms = Terms { demote: true, irqs: SystemIrqs::Anywhere, ..Terms::default() };
        let without = |_: &Facts, state: &mut State| {
            let others = state.partitions.iter().filter(|partition| partition.name != self.name);
            Ok(others.cloned().collect())
        };
        if self.entered.replace(false) {
            self.shield.change(without, terms)?;
        }
        Ok(())
    }
}

/// An error of this conductor, which keeps its exit code.
pub fn failed(error: ConductorError) -> anyhow::Error {
    match error.downcast::<ChangeError>() {
        Ok(error) => (*error).into(),
        Err(error) => anyhow::Error::from_boxed(error),
    }
}

fn shape(cpu: Cpu, tick_off: bool, without: &[String]) -> Result<Shape, ConductorError> {
    Ok(Shape {
        cpus: CpuSpec::List(CpuSet::from_iter([cpu])),
        irqs: Vec::new(),
        irq_priority: None,
        tick: if tick_off { Tick::RequireOff } else { Tick::Keep },
        smt: Smt::Idle,
        strict: false,
        without: without.iter().map(|name| name.parse::<Aspect>()).collect::<Result<_, _>>()?,
    })
}

/// What the shield has set, one line a setting.
fn settings(plan: &Plan) -> Vec<String> {
    let line = |step: &asmp_shield::Step| match &step.action {
        Action::Set { knob, to, .. } => {
            Some(format!("{}: {} -> {to}", knob.path.display(), step.old.as_deref().unwrap_or("?")))
        }
        _ => None,
    };
    plan.steps.iter().filter_map(line).collect()
}
