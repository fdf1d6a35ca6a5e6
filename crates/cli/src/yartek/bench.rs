// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek bench`: what the kernel takes on a board.

use super::boards;
use super::guest::{board, of_tool};
use crate::exit::{BAD_GUEST, NOT_ON_BOARD, failure};
use crate::print::json;
use anyhow::Result;
use asmp_yartek::{BenchError, Figure};
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The board
    #[arg(long, value_name = "NAME",
        long_help = format!("The board\n\n{}. Example: --board mps2-an385", boards()))]
    board: String,
    /// Print JSON
    ///
    /// The object has `schema`, the board and its figures, in instructions. Example: asmp yartek
    /// bench --board mps2-an385 --json
    #[arg(long)]
    json: bool,
}

/// The paper's board had so many cycles in a microsecond.
const CYCLES_PER_US: u32 = 33;

pub fn bench(args: &Args) -> Result<u8> {
    let board = board(&args.board)?;
    let figures = asmp_yartek::bench(&board).map_err(|error| match &error {
        BenchError::Tool(error) => of_tool(error),
        BenchError::Refused(_) => failure(NOT_ON_BOARD, error.to_string()),
        BenchError::Guest { .. } | BenchError::Ended { .. } => {
            failure(BAD_GUEST, error.to_string())
        }
    })?;
    if args.json {
        let figures: Vec<_> = figures
            .iter()
            .map(|figure| {
                json!({
                    "what": figure.what, "samples": figure.samples,
                    "least_instructions": tenths(figure.least),
                    "mean_instructions": tenths(figure.mean),
                    "most_instructions": tenths(figure.most),
                    "paper_us": figure.paper_us, "rtai_us": figure.rtai_us,
                    "paper_instructions": figure.paper_instructions,
                })
            })
            .collect();
        json(&json!({ "board": board.name, "figures": figures }))?;
        return Ok(0);
    }
    println!(
        "{:<38} {:>7} {:>7} {:>7} {:>7}  {:>12} {:>12}",
        board.name, "samples", "least", "mean", "most", "paper", "RTAI"
    );
    for figure in &figures {
        println!("{}", line(figure));
    }
    println!(
        "instructions, as QEMU counts them; paper and RTAI: cycles at 33 MHz of an MCF5282, or\n  \
         instructions (i)"
    );
    Ok(0)
}

/// To tenths: a tick of a board may be three quarters of an instruction.
fn tenths(instructions: f64) -> f64 {
    (instructions * 10.0).round() / 10.0
}

fn line(figure: &Figure) -> String {
    let cycles = |us: Option<u32>| {
        us.map_or(String::new(), |us| (u64::from(us * CYCLES_PER_US)).to_string())
    };
    let Figure { what, samples, least, mean, most, paper_us, rtai_us, paper_instructions } = figure;
    let paper = paper_instructions.map_or_else(|| cycles(*paper_us), |count| format!("{count} i"));
    let line = format!(
        "{what:<38} {samples:>7} {least:>7.1} {mean:>7.1} {most:>7.1}  {paper:>12} {:>12}",
        cycles(*rtai_us)
    );
    line.trim_end().to_owned()
}
