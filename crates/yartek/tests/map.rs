// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The robot of the case study: its map beside one computed apart, and beside its rooms. On this
//! machine in virtual time, and on the boards. `YARTEK_DRIVE_S=280` for the whole drive there.

mod board;
mod robot;

use asmp_analysis::Task;
use asmp_yartek::{Application, Ending, Map, Trace, walls};
use board::{Board, Line, each};
use robot::host::{Beam, CMap, Drive, drive, sine_of_c};
use robot::reference::{self, Event, Place, Robot, Shape};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The whole path, and some seconds at its end.
const DRIVE_US: u32 = 280_000_000;
/// The box is gone.
const GONE_US: u32 = 6_000_000;
const SHAPE: Shape = Shape { columns: 256, rows: 128, most: 4096 };

fn distance_mm((x, y): (f64, f64)) -> f64 {
    let to_wall = |wall: &asmp_yartek::Wall| {
        let [from, to] = [wall.from_mm, wall.to_mm].map(|(x, y)| (f64::from(x), f64::from(y)));
        let along = (to.0 - from.0, to.1 - from.1);
        let square = along.0 * along.0 + along.1 * along.1;
        let part = ((x - from.0) * along.0 + (y - from.1) * along.1) / square;
        let part = part.clamp(0.0, 1.0);
        (x - from.0 - part * along.0).hypot(y - from.1 - part * along.1)
    };
    walls().iter().map(to_wall).fold(f64::INFINITY, f64::min)
}

fn share(hits: usize, all: usize) -> f64 {
    100.0 * hits as f64 / all as f64
}

/// A map beside the rooms.
struct Accuracy {
    /// Distances of occupied cells from the nearest wall.
    mm: Vec<f64>,
    /// Percent of the wall cells that a sonar's axis met: mapped within so many cells.
    mapped: [f64; 3],
}

impl Accuracy {
    fn of(map: &Map, drive: &Drive) -> Self {
        let mut mm: Vec<f64> = map.occupied_mm().map(distance_mm).collect();
        mm.sort_by(f64::total_cmp);
        let cell = |x: f64, y: f64| ((x / 50.0).floor() as i64, (y / 50.0).floor() as i64);
        let occupied: HashSet<(i64, i64)> = map.occupied_mm().map(|(x, y)| cell(x, y)).collect();
        // Without those of the box.
        let hits = drive.hits.iter().filter(|(_, x, y)| distance_mm((*x, *y)) < 10.0);
        let seen: HashSet<(i64, i64)> = hits.map(|(_, x, y)| cell(*x, *y)).collect();
        let mapped = [0, 1, 2].map(|reach| {
            let is_mapped = |(x, y): &&(i64, i64)| {
                (-reach..=reach)
                    .any(|dx| (-reach..=reach).any(|dy| occupied.contains(&(x + dx, y + dy))))
            };
            share(seen.iter().filter(is_mapped).count(), seen.len())
        });
        Self { mm, mapped }
    }

    fn within(&self, mm: f64) -> f64 {
        share(self.mm.iter().filter(|far| **far <= mm).count(), self.mm.len())
    }

    fn print(&self, name: &str) {
        println!(
            "{name}: {} cells, {:.1} % within 100 mm of a wall, {:.1} % within 200 mm, median \
             {:.0} mm; of the seen wall cells {:.1} % mapped, {:.1} % within 1 cell, {:.1} % \
             within 2",
            self.mm.len(),
            self.within(100.0),
            self.within(200.0),
            self.mm[self.mm.len() / 2],
            self.mapped[0],
            self.mapped[1],
            self.mapped[2]
        );
    }
}

/// All maps that were computed, beside those computed apart.
fn compare(events: &[Event], maps: &[Vec<u8>], shape: Shape) {
    let mut robot = Robot::new(shape);
    let expected: Vec<Vec<u8>> = events.iter().filter_map(|event| robot.see(*event)).collect();
    assert!(!maps.is_empty() && maps.len() == expected.len(), "{} maps", maps.len());
    for (at, (map, expected)) in maps.iter().zip(&expected).enumerate() {
        assert_eq!(map, expected, "map {at} of {}", maps.len());
    }
}

fn last(drive: &Drive) -> Map {
    Map::decode(&drive.maps.last().expect("a map").1).expect("a map")
}

#[test]
fn sines_are_those_of_their_rule() {
    for angle in 0..70_000 {
        let expected = reference::sine(i64::from(angle));
        assert_eq!(i64::from(sine_of_c(angle)), expected, "{angle}");
        let exact = (f64::from(angle) / 65536.0 * std::f64::consts::TAU).sin();
        assert!((expected as f64 / 16384.0 - exact).abs() < 0.0002, "{angle}");
    }
}

#[test]
fn any_readings_make_the_map_that_the_reference_makes() {
    let mut seed = 1_u64;
    let mut random = move |below: u32| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u32 % below
    };
    for (columns, rows, most) in [(96, 64, 500), (40, 90, 7), (40, 40, 1000), (256, 128, 64)] {
        let shape = Shape { columns: columns.into(), rows: rows.into(), most: most as usize };
        let (mut of_c, mut apart) = (CMap::new(columns, rows, most), reference::Map::new(shape));
        let mut place = Place::start(0, 0);
        let mut is_full = false;
        for step in 0..4000 {
            // At times it stands, and hears the same again and again: cells come to 255.
            let stands = step % 1000 < 600;
            let turn = random(4000) as i16 - 2000;
            let [left, right] = [1, -1].map(|sign| sign * turn + random(3000) as i16 - 1400);
            let [left, right] = if stands { [0, 0] } else { [left, right] };
            of_c.go_by(left, right);
            place.go_to(place.left + i64::from(left), place.right + i64::from(right));
            let at = [of_c.place.x, of_c.place.y].map(i64::from);
            assert_eq!(at, [place.x, place.y], "step {step}");
            let (sonar, us) = if stands { (2, 2000) } else { (random(6), 1166 + random(16_334)) };
            let angle = reference::direction(sonar as usize);
            of_c.reading(angle as u32, us);
            apart.reading(&place, angle, us);
            is_full |= apart.cells.contains(&255);
            if random(40) == 0 && step % 1000 > 400 {
                of_c.antisensor();
                apart.antisensor(&place);
            }
            assert_eq!(of_c.bytes(), apart.bytes(), "{columns} by {rows}, step {step}");
        }
        assert!(is_full || most < 255);
    }
}

#[test]
fn each_map_of_a_drive_is_the_references() {
    for beam in [Beam::Ideal, Beam::Cone] {
        // It clears the map on its way, in the midst of a turn.
        let drive = drive(beam, 60_000_000, Some(33_000_000));
        assert!(drive.events.contains(&Event::Clear));
        let maps: Vec<Vec<u8>> = drive.maps.iter().map(|(_, bytes)| bytes.clone()).collect();
        compare(&drive.events, &maps, SHAPE);
        let occupied =
            |(_, bytes): &(u32, Vec<u8>)| Map::decode(bytes).expect("a map").occupied_mm().count();
        let counts: Vec<usize> = drive.maps.iter().map(occupied).collect();
        assert!(counts.contains(&0) && counts.last() > Some(&50), "{counts:?}");
    }
}

#[test]
fn with_ideal_sonars_the_map_is_the_rooms() {
    let drive = drive(Beam::Ideal, DRIVE_US, None);
    let map = last(&drive);
    let found = Accuracy::of(&map, &drive);
    found.print("ideal beam");
    assert!(found.within(100.0) >= 99.0 && found.mapped[2] >= 95.0);
    let nearest = drive.places.iter().copied().map(distance_mm).fold(f64::INFINITY, f64::min);
    assert!(nearest > 300.0, "the robot drives into walls");
    // All three rooms.
    for room in [400.0..4400.0, 4400.0..8400.0, 8400.0..12400.0] {
        assert!(map.occupied_mm().filter(|(x, _)| room.contains(x)).count() > 200, "{room:?}");
    }
    if let Some(path) = std::env::var_os("YARTEK_MAP_SVG") {
        let svg = map.svg(&walls(), "The robot's rooms and its map of them");
        println!("{} bytes of SVG", svg.len());
        std::fs::write(path, svg).expect("a drawing");
    }
}

#[test]
fn with_cones_most_of_the_map_is_near_the_rooms() {
    let drive = drive(Beam::Cone, DRIVE_US, None);
    let found = Accuracy::of(&last(&drive), &drive);
    found.print("cone of 12.5 degrees");
    assert!(found.within(200.0) >= 60.0);
}

#[test]
fn what_moved_away_disappears_from_the_map() {
    let drive = drive(Beam::Ideal, 20_000_000, None);
    let marks = |bytes: &[u8]| {
        let map = Map::decode(bytes).expect("a map");
        map.occupied_mm().filter(|middle| distance_mm(*middle) > 150.0).count()
    };
    let counts: Vec<(u32, usize)> =
        drive.maps.iter().map(|(at, bytes)| (*at, marks(bytes))).collect();
    let most = counts.iter().map(|(_, marks)| *marks).max().expect("maps");
    let there = counts.iter().rfind(|(_, marks)| *marks > 0).expect("marks of the box");
    println!(
        "the box: {most} cells at most; the last are gone {:.1} s after it",
        f64::from(there.0 - GONE_US) / 1e6 + 0.5
    );
    // While it was there, and the map still had them once it had gone.
    assert!(most >= 4 && there.0 > GONE_US && there.0 < GONE_US + 4_000_000, "{counts:?}");
}

#[test]
fn the_bytes_of_a_map_grow_with_its_readings_and_not_with_its_grid() {
    let bytes = |columns, rows, readings| {
        let mut map = CMap::new(columns, rows, 4096);
        for reading in 0..readings {
            map.reading(reading * 5003, 1166 + reading * 37 % 8000);
        }
        map.bytes().len()
    };
    let sizes = [(64, 64), (128, 128), (255, 255)]
        .map(|(columns, rows)| [0, 100, 400].map(|readings| bytes(columns, rows, readings)));
    println!("bytes of 0, 100 and 400 readings in 4,096, 16,384 and 65,025 cells: {sizes:?}");
    for [none, some, many] in sizes {
        assert!(none <= 9 && some <= none + 100 * 6 && many <= none + 400 * 6);
        assert!(many > some && some > none + 100);
    }
    // A run may have one byte more for its length.
    let [small, _, large] = sizes;
    assert!(large[2] <= small[2] * 4 / 3 && large[1] <= small[1] * 4 / 3);
}

/// Task, begin and end of each job of a sonar. Errors: two sound at once.
fn apart(jobs: &[(usize, u64, u64)]) -> Result<usize, String> {
    let mut sonars: Vec<_> = jobs.iter().filter(|(task, _, _)| *task < 6).collect();
    sonars.sort_by_key(|(_, begin, _)| *begin);
    match sonars.windows(2).find(|pair| pair[0].2 > pair[1].1) {
        Some(pair) => Err(format!("{:?} and {:?}", pair[0], pair[1])),
        None => Ok(sonars.len()),
    }
}

#[test]
fn two_sonars_that_sound_at_once_are_found() {
    assert_eq!(apart(&[(0, 0, 5), (6, 2, 9), (1, 5, 8)]), Ok(2));
    assert!(apart(&[(0, 0, 5), (1, 4, 8)]).is_err());
}

fn app(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../yartek/app/robot").join(name)
}

/// As robot.toml, in microseconds.
fn tasks() -> Vec<(&'static str, Task, &'static str)> {
    let sonars =
        ["get_sonar1", "get_sonar2", "get_sonar3", "get_sonar4", "get_sonar5", "get_sonar6"];
    let task = |entry, cost, period| (entry, Task::new(entry, cost, period), "YK_FINISH");
    let mut all: Vec<_> = sonars.map(|entry| task(entry, 20_000, 500_000)).into();
    all.extend([
        task("update_map", 100_000, 500_000),
        task("get_odo1", 20_000, 1_200_000),
        task("get_odo2", 20_000, 1_200_000),
        task("anti_sensor", 20_000, 2_000_000),
    ]);
    all
}

fn event(line: &str) -> Option<Event> {
    let words = line.strip_prefix("e ")?.split(' ');
    let words: Vec<u32> =
        words.map(|word| u32::from_str_radix(word, 16)).collect::<Result<_, _>>().ok()?;
    Event::of(words.try_into().ok()?)
}

/// A drive on a board.
fn on_board(board: &Board, beam: &str, readings: usize, seconds: u64) {
    let tasks = tasks();
    let table = board.table(&tasks, &[Line { service: "hear", most: 4 }]);
    let files = ["commands.c", "main.c", "map.c", "sine.c", "tasks.c", "world.c"].map(app);
    let words = [
        "-DROBOT_LOG".to_owned(),
        format!("-DROBOT_BEAM={beam}"),
        format!("-DROBOT_READINGS={readings}"),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let until = board.ticks(seconds * 1_000_000);
    let output = board.run_with(&words, Application::Files(&files), &table, until);
    let name = board.name();
    assert_eq!(output.ending, Ending::Exit(0), "{name}: {}", output.console);
    let trace = Trace::of(&output.console, tasks.len());
    assert_eq!(trace.partial, None, "{name}");
    let in_us: Vec<Task> = tasks.iter().map(|(_, task, _)| task.clone()).collect();
    let in_ticks = board.in_ticks(&in_us);
    assert_eq!(trace.missed(&in_ticks), 0, "{name}");
    let mut longest = [0; 10];
    for job in &trace.jobs {
        longest[job.task] = longest[job.task].max(job.end_ticks - job.begun_ticks);
        assert!(longest[job.task] <= in_ticks[job.task].cost_ticks(), "{name}: {job:?}");
    }
    let jobs: Vec<_> =
        trace.jobs.iter().map(|job| (job.task, job.begun_ticks, job.end_ticks)).collect();
    let fired = apart(&jobs).unwrap_or_else(|both| panic!("{name}: {both} sound at once"));
    let events: Vec<Event> = trace.lines.iter().filter_map(|line| event(line)).collect();
    let maps: Vec<Vec<u8>> = trace.lines.iter().filter_map(|line| Map::printed(line)).collect();
    assert_eq!(events.len() + maps.len(), trace.lines.len(), "{name}: other lines");
    compare(&events, &maps, Shape { most: readings, ..SHAPE });
    let echoes = events.iter().filter(|event| matches!(event, Event::Sonar { us: 1.., .. }));
    let echoes = echoes.count();
    assert!(fired as u64 >= seconds * 12 - 12 && echoes > 64, "{name}: {fired} {echoes}");
    let us = longest.map(|ticks| board.0.rate().ns_up(ticks).expect("a time") / 1000);
    println!(
        "{name} {beam}: {} jobs, {fired} sonars one by one, {echoes} echoes, {} maps, the last of \
         {} bytes; longest job of each task {us:?} us",
        jobs.len(),
        maps.len(),
        maps.last().map_or(0, Vec::len)
    );
}

#[test]
fn a_boards_map_is_the_references_and_no_two_sonars_sound_at_once() {
    let seconds = std::env::var("YARTEK_DRIVE_S");
    let seconds = seconds.map_or(12, |seconds| seconds.parse().expect("a number"));
    each(|board| {
        on_board(board, "WORLD_IDEAL", 4096, seconds);
        // The oldest readings leave the map.
        on_board(board, "WORLD_CONE", 64, seconds);
    });
}
