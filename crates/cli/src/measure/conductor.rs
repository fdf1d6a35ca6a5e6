// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How `measure` uses the shield: what a run needs is set, and always taken back.

use crate::change::{caller, own_process, waits};
use crate::exit::{USAGE, failure};
use anyhow::Result;
use asmp_host::store::Lock;
use asmp_host::{Cpu, CpuSet, CpuSpec, Facts};
use asmp_measure::experiment::{Arrangement, Conductor, ConductorError, Place};
use asmp_shield::{
    Action, Caller, ChangeError, Members, Plan, Refusal, Request, Shield, Spec, Step, System, Tick,
};
use std::cell::{Cell, OnceCell};

/// The conductor that changes this machine through the shield. Its errors are [`ChangeError`]s.
pub struct ByShield<'a> {
    shield: &'a Shield,
    caller: Caller,
    /// Of the partition that is made for a run.
    name: String,
    /// What `leave` takes back.
    made_partition: Cell<bool>,
    set_system: Cell<bool>,
    /// Of what the machine has once, as long as this lives.
    reserved: OnceCell<Lock>,
}

/// The one CPU that the words mean. Refuses a container, which sees other CPUs and tasks.
pub fn one_cpu(shield: &Shield, spec: &CpuSpec) -> Result<Cpu> {
    let facts = Facts::read(shield.kernel())?;
    asmp_shield::check_tree(&facts)?;
    let cpus = spec.resolve(&facts.cpus.online);
    asmp_shield::online_cpus(&facts, &cpus)?;
    match (cpus.len(), cpus.first()) {
        (1, Some(cpu)) => Ok(cpu),
        _ => Err(failure(USAGE, format!("--cpu {cpus}: one CPU is measured at a time"))),
    }
}

impl<'a> ByShield<'a> {
    pub fn new(shield: &'a Shield) -> Self {
        Self {
            shield,
            caller: caller(shield.kernel()),
            name: format!("measure-{}", std::process::id()),
            made_partition: Cell::new(false),
            set_system: Cell::new(false),
            reserved: OnceCell::new(),
        }
    }

    fn change(&self, request: &Request) -> Result<Plan, ConductorError> {
        let outcome = self.shield.change(request, &self.caller)?;
        if let Some(words) = waits(&outcome) {
            eprintln!("asmp: {words}");
        }
        Ok(outcome.plan)
    }

    fn partition(&self, place: &Place) -> Result<Option<Request>, ConductorError> {
        let Place::Partition { cpu, tick_off, prove_tick_off, without, mode } = place else {
            return Ok(None);
        };
        let spec = Spec {
            // What is tried without a step of the plan may tick for it.
            tick: match (tick_off, prove_tick_off) {
                (true, true) => Tick::RequireOff,
                (true, false) => Tick::Off,
                (false, _) => Tick::Keep,
            },
            without: without.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
            mode: mode.parse()?,
            ..Spec::of(CpuSpec::List(CpuSet::from_iter([*cpu])))
        };
        let owner = own_process(self.shield.kernel());
        Ok(Some(Request::Run { name: self.name.clone(), spec, owner }))
    }
}

impl Conductor for ByShield<'_> {
    fn may_arrange(&self) -> Result<(), ConductorError> {
        self.caller.must_be_root().map_err(ChangeError::from)?;
        let facts = Facts::read(self.shield.kernel())?;
        Ok(asmp_shield::check_machine(&facts).map_err(ChangeError::from)?)
    }

    fn check(&self, cpu: Cpu, places: &[Place]) -> Result<(), ConductorError> {
        let state = self.shield.state()?;
        let owner = state.partitions.iter().find(|owner| owner.shielded().contains(cpu));
        if let Some(owner) = owner {
            let (cpus, owner) = (CpuSet::from_iter([cpu]), owner.name.clone());
            return Err(ChangeError::from(Refusal::TakenCpus { cpus, owner }).into());
        }
        for place in places {
            if let Some(request) = self.partition(place)? {
                self.shield.plan(&request, &self.caller)?;
            }
        }
        Ok(())
    }

    fn reserve(&self, timerlat: bool) -> Result<(), ConductorError> {
        let lock = self.shield.measure_alone(timerlat)?;
        self.reserved.get_or_init(|| lock);
        Ok(())
    }

    fn enter(&self, arrangement: &Arrangement) -> Result<Vec<String>, ConductorError> {
        let mut lines = Vec::new();
        if let Some(request) = self.partition(&arrangement.place)? {
            self.made_partition.set(true);
            lines.extend(settings(&self.change(&request)?));
        }
        let irq_home = match &arrangement.place {
            Place::IrqsKeptTo { cpus } => Some(cpus.clone()),
            Place::Unchanged | Place::Partition { .. } => None,
        };
        let system = System { irq_home, timerlat: arrangement.timerlat.clone() };
        if system != System::default() {
            self.set_system.set(true);
            lines.extend(settings(&self.change(&Request::System(system))?));
        }
        Ok(lines)
    }

    fn admit(&self, tid: i32) -> Result<(), ConductorError> {
        let members = Members { tids: vec![tid], ..Members::default() };
        self.change(&Request::Add { name: self.name.clone(), members })?;
        Ok(())
    }

    fn leave(&self) -> Result<(), ConductorError> {
        // Both are tried, whatever becomes of the first.
        let system = match self.set_system.get() {
            true => self.change(&Request::System(System::default())).map(drop),
            false => Ok(()),
        };
        self.set_system.set(system.is_err());
        if self.made_partition.get() {
            let owner = own_process(self.shield.kernel());
            let end = Request::EndRun { name: self.name.clone(), owner };
            match self.shield.change(&end, &self.caller) {
                // It was never made, or another command destroyed it.
                Err(error) if !error.is_no_partition() => return Err(error.into()),
                _ => {}
            }
            self.made_partition.set(false);
        }
        system
    }
}

/// An error of this conductor, which keeps its exit code.
pub fn failed(error: ConductorError) -> anyhow::Error {
    match error.downcast::<ChangeError>() {
        Ok(error) => (*error).into(),
        Err(error) => anyhow::Error::from_boxed(error),
    }
}

/// What the shield has set, one line a setting.
fn settings(plan: &Plan) -> Vec<String> {
    let line = |step: &Step| match &step.action {
        Action::Set { knob, to, .. } => {
            let old = step.old.as_deref().unwrap_or("?");
            Some(format!("{}: {old} -> {to}", knob.path.display()))
        }
        _ => None,
    };
    plan.steps.iter().filter_map(line).collect()
}
