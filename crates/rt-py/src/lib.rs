//! The time-sharing ends of rt-FIFOs and mbuffs for Python: the module `asmp_rt._native`, which the package `asmp_rt`
//! (python/) completes with asyncio. Docstrings are for readers of Python; how a channel behaves is in `asmp_rt`.
//!
//! Whoever waits has let the interpreter go, looks for signals every 100 ms, and holds no lock of ours: so a channel
//! can be used and closed by other threads meanwhile. Nothing of another process's memory is ever a Rust reference.

mod bytes;
mod errors;
mod fifo;
mod mbuff;
mod record;
mod slot;
mod wait;

use asmp_channel::{Pages, default_dir};
use pyo3::prelude::*;
use std::path::PathBuf;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::fifo::{Fifo, FifoReader, FifoWriter};
    #[pymodule_export]
    use super::mbuff::Mbuff;
    #[pymodule_export]
    use super::record::{Record, RecordWriter};
}

fn directory(dir: Option<PathBuf>) -> PathBuf {
    dir.unwrap_or_else(default_dir)
}

fn pages(huge: bool) -> Pages {
    if huge { Pages::Huge } else { Pages::Normal }
}
