//! What really happens on CPUs: counts of what disturbs them, and the papers' experiments (latency, overhead)
//! with their loads, run directories, summaries and pictures. Changes no setting of the machine but those of
//! its own trace instances.

pub mod collect;
pub mod compare;
pub mod exchange;
pub mod experiment;
pub mod explain;
pub mod load;
pub mod noise;
pub mod plot;
pub mod probe;
pub mod report;
pub mod run;
pub mod sample;
pub mod spaces;
pub mod summary;
pub mod timerlat;
