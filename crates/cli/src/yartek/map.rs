// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek map`: fetches the robot's map, and draws it.

use super::tcp_port;
use crate::analyze::files::{separate, write, wrong};
use crate::exit::{BAD_GUEST, USAGE, failure};
use crate::output::svg_file;
use anyhow::Result;
use asmp_yartek::{ANSWER_WITHIN, Map, Robot, walls};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the map is: the serial line of a robot that runs, or what one has printed
    ///
    /// `tcp:PORT` is the line of `asmp yartek run --serial tcp:PORT`. A file has what `asmp yartek
    /// run` printed: its last map is drawn. Example: asmp yartek map tcp:5555 -o map.svg
    #[arg(value_name = "tcp:PORT|FILE")]
    from: PathBuf,
    /// Write the drawing, an SVG
    ///
    /// On the left the rooms, on the right the map. If it cannot be written, the old file stays as
    /// it was. Example: -o map.svg
    #[arg(short = 'o', long = "output", value_name = "FILE", value_parser = svg_file())]
    output: PathBuf,
    /// Empty the robot's map once this one is drawn
    ///
    /// Of a robot that runs, at tcp:PORT. It stays where it is. Example: --clear
    #[arg(long)]
    clear: bool,
}

pub fn map(args: &Args) -> Result<u8> {
    let (bytes, how, robot) = match tcp_port(&args.from.to_string_lossy()) {
        Some(port) => fetched(port.map_err(|what| failure(USAGE, what))?)?,
        None if args.clear => {
            let what = "--clear empties the map of a robot that runs: give its tcp:PORT, or leave";
            return Err(failure(USAGE, format!("{what} --clear out")));
        }
        None => {
            separate(std::slice::from_ref(&args.from), &[("-o", Some(args.output.as_path()))])?;
            (printed(&args.from)?, String::new(), None)
        }
    };
    let map = Map::decode(&bytes).map_err(|error| wrong(&args.from, &error.to_string()))?;
    write(&args.output, &map.svg(&walls(), "The robot's map"))?;
    let occupied = map.occupied_mm().count();
    let (columns, rows, count) = (map.columns, map.rows, bytes.len());
    let output = args.output.display();
    println!("{output}: {occupied} of {columns} x {rows} cells, {count} bytes{how}");
    // Ours is kept now.
    if let Some(mut robot) = robot.filter(|_| args.clear) {
        robot.clear().map_err(|error| failed(&args.from, &error))?;
    }
    Ok(0)
}

fn failed(from: &Path, what: &dyn std::fmt::Display) -> anyhow::Error {
    failure(BAD_GUEST, format!("{}: {what}", from.display()))
}

/// From a robot that runs: a map, how it came, and the robot.
fn fetched(port: u16) -> Result<(Vec<u8>, String, Option<Robot<TcpStream>>)> {
    let from = PathBuf::from(format!("tcp:{port}"));
    let line = TcpStream::connect(("127.0.0.1", port)).map_err(|error| {
        let cure = format!("start a robot with asmp yartek run DIR --serial tcp:{port}");
        failed(&from, &format!("{error}: {cure}"))
    })?;
    line.set_read_timeout(Some(ANSWER_WITHIN)).map_err(|error| failed(&from, &error))?;
    let mut robot = Robot::at(line);
    let fetched = robot.map().map_err(|error| failed(&from, &error))?;
    let how = format!("; frames: {}, asked for again: {}", fetched.pieces, fetched.repeated);
    Ok((fetched.map, how, Some(robot)))
}

/// The last map that a robot has printed.
fn printed(path: &Path) -> Result<Vec<u8>> {
    let text = fs::read(path).map_err(|error| wrong(path, &error.to_string()))?;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rfind(|line| line.starts_with("map "));
    let line = last.ok_or_else(|| {
        wrong(path, "has no map: a robot prints one each ten seconds, until a command comes")
    })?;
    Map::printed(line).ok_or_else(|| wrong(path, "has a map that is not hexadecimal"))
}
