// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The robot's C code, compiled for this machine, in virtual time: the kernel's own choice of jobs,
//! and a clock that moves by three microseconds each time a job reads it.

use super::reference::{Event, cosine, direction, sine};
use asmp_yartek::{Edf, Job, Late, Next, Task};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[repr(C)]
#[derive(Clone, Copy)]
struct WorldPose {
    x_mm: i32,
    y_mm: i32,
    angle: u32,
}

#[repr(C)]
pub struct Reader {
    cells: *const u8,
    columns: u32,
    rows: u32,
    next: u32,
    bytes: [u8; 5],
    given: u32,
    ready: u32,
}

/// `struct map_place`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapPlace {
    pub x: i32,
    pub y: i32,
    pub left: i32,
    pub right: i32,
    pub straight: i32,
}

#[repr(C)]
struct MapState {
    cells: *mut u8,
    columns: u32,
    rows: u32,
    last: *mut u16,
    most: u32,
    readings: u32,
}

type Entry = unsafe extern "C" fn(*const Job);

unsafe extern "C" {
    safe fn robot_begin(beam: c_int);
    safe fn robot_clear();
    safe fn robot_compute();
    safe fn robot_is_done() -> bool;
    fn robot_read(reader: *mut Reader);
    fn get_sonar1(job: *const Job);
    fn get_sonar2(job: *const Job);
    fn get_sonar3(job: *const Job);
    fn get_sonar4(job: *const Job);
    fn get_sonar5(job: *const Job);
    fn get_sonar6(job: *const Job);
    fn update_map(job: *const Job);
    fn get_odo1(job: *const Job);
    fn get_odo2(job: *const Job);
    fn anti_sensor(job: *const Job);
    safe fn world_pose(us: u32) -> WorldPose;
    safe fn world_distance(sonar: u32, us: u32) -> u32;
    fn map_clear(map: *mut MapState);
    safe fn map_start(left: i32, right: i32) -> MapPlace;
    safe fn map_counted(before: i32, counter: u16) -> i32;
    fn map_move(place: *mut MapPlace, left: i32, right: i32);
    fn map_reading(map: *mut MapState, place: *const MapPlace, angle: u32, us: u32);
    fn map_antisensor(map: *mut MapState, place: *const MapPlace);
    fn map_read(reader: *mut Reader, cells: *const u8, columns: u32, rows: u32);
    fn map_next(reader: *mut Reader, byte: *mut u8) -> bool;
    #[link_name = "sine"]
    safe fn c_sine(angle: u32) -> i32;
}

static NOW_US: AtomicU32 = AtomicU32::new(0);
static EVENTS: Mutex<Vec<Event>> = Mutex::new(Vec::new());
/// The C code has one robot.
static ROBOT: Mutex<()> = Mutex::new(());

#[unsafe(no_mangle)]
extern "C" fn robot_us() -> u32 {
    NOW_US.fetch_add(3, Ordering::Relaxed) + 3
}

#[unsafe(no_mangle)]
extern "C" fn robot_saw(event: c_int, a: u32, b: u32, c: u32) {
    let event = Event::of([event as u32, a, b, c]).expect("an event");
    EVENTS.lock().expect("events").push(event);
}

pub fn sine_of_c(angle: u32) -> i32 {
    c_sine(angle)
}

fn all_bytes(reader: &mut Reader) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut byte = 0;
    // SAFETY: robot_read() or map_read() has set up the reader, and its cells still live.
    while unsafe { map_next(reader, &raw mut byte) } {
        bytes.push(byte);
    }
    bytes
}

fn new_reader() -> Reader {
    Reader {
        cells: std::ptr::null(),
        columns: 0,
        rows: 0,
        next: 0,
        bytes: [0; 5],
        given: 0,
        ready: 0,
    }
}

/// A map of C alone, with any shape.
pub struct CMap {
    cells: Vec<u8>,
    last: Vec<u16>,
    state: MapState,
    pub place: MapPlace,
}

impl CMap {
    pub fn new(columns: u32, rows: u32, most: u32) -> Self {
        // Not 0: what is there before map_clear() does not count.
        let mut cells = vec![7; (columns * rows) as usize];
        let mut last = vec![3; most as usize];
        let mut state = MapState {
            cells: cells.as_mut_ptr(),
            columns,
            rows,
            last: last.as_mut_ptr(),
            most,
            readings: 9,
        };
        // SAFETY: the state's cells and readings are as many as it says.
        unsafe { map_clear(&raw mut state) };
        Self { cells, last, state, place: map_start(0, 0) }
    }

    pub fn go_by(&mut self, left: i16, right: i16) {
        let counter = |counted: i32, by: i16| counted.wrapping_add(by.into()) as u16;
        let left = map_counted(self.place.left, counter(self.place.left, left));
        let right = map_counted(self.place.right, counter(self.place.right, right));
        // SAFETY: a place is plain numbers.
        unsafe { map_move(&raw mut self.place, left, right) };
    }

    pub fn reading(&mut self, angle: u32, us: u32) {
        assert!(self.last.len() == self.state.most as usize);
        // SAFETY: the vectors that new() made have not moved.
        unsafe { map_reading(&raw mut self.state, &raw const self.place, angle, us) };
    }

    pub fn antisensor(&mut self) {
        // SAFETY: as in reading().
        unsafe { map_antisensor(&raw mut self.state, &raw const self.place) };
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut reader = new_reader();
        let cells = self.state.cells.cast_const();
        assert!(cells == self.cells.as_ptr());
        // SAFETY: there are as many cells as the state says.
        unsafe { map_read(&raw mut reader, cells, self.state.columns, self.state.rows) };
        all_bytes(&mut reader)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beam {
    Ideal,
    Cone,
}

/// What a drive gave.
#[derive(Default)]
pub struct Drive {
    pub events: Vec<Event>,
    /// After each job of `update_map`.
    pub maps: Vec<(u32, Vec<u8>)>,
    /// Of each reading of a sonar, in mm: what its axis met, and when.
    pub hits: Vec<(u32, f64, f64)>,
    /// Of each reading of a sonar: the robot, in mm.
    pub places: Vec<(f64, f64)>,
    /// Task, begin and end, in microseconds.
    pub jobs: Vec<(usize, u32, u32)>,
}

fn tasks() -> [(Entry, u64, u64); 10] {
    let sonars = [get_sonar1, get_sonar2, get_sonar3, get_sonar4, get_sonar5, get_sonar6];
    let [a, b, c, d, e, f] = sonars.map(|entry| (entry as Entry, 500_000, 20_000));
    [
        a,
        b,
        c,
        d,
        e,
        f,
        (update_map, 500_000, 100_000),
        (get_odo1, 1_200_000, 20_000),
        (get_odo2, 1_200_000, 20_000),
        (anti_sensor, 2_000_000, 20_000),
    ]
}

/// Drives for so long. `clear_us`: the background asks for a clear map then.
pub fn drive(beam: Beam, for_us: u32, clear_us: Option<u32>) -> Drive {
    let one: MutexGuard<()> = ROBOT.lock().unwrap_or_else(PoisonError::into_inner);
    let tasks = tasks();
    let set = tasks.map(|(_, period, budget)| Task {
        period_ticks: period,
        offset_ticks: 0,
        deadline_ticks: period,
        budget_ticks: budget,
        is_sporadic: false,
        late: Late::Finish,
    });
    NOW_US.store(0, Ordering::Relaxed);
    EVENTS.lock().expect("events").clear();
    robot_begin(beam as c_int);
    let (mut edf, mut drive, mut is_cleared) = (Edf::new(&set, 0), Drive::default(), false);
    loop {
        let now = NOW_US.load(Ordering::Relaxed);
        if now >= for_us {
            break;
        }
        match edf.next(now.into()) {
            Next::Idle(soonest) => {
                let soonest = soonest.expect("periodic tasks");
                NOW_US.store(soonest.try_into().expect("a time"), Ordering::Relaxed);
            }
            Next::Run(job) => {
                if job.task < 6 {
                    drive.look(job.task, now);
                }
                if !is_cleared && clear_us.is_some_and(|at| now >= at) {
                    is_cleared = true;
                    robot_clear();
                }
                if job.task == 6 {
                    robot_compute();
                }
                // SAFETY: the entries do not look at the job, and one thread is here: `one`.
                unsafe { tasks[job.task as usize].0(&raw const job) };
                let end = NOW_US.load(Ordering::Relaxed);
                drive.jobs.push((job.task as usize, now, end));
                assert!(edf.ended(&job, end.into()));
                if job.task == 6 {
                    assert!(robot_is_done());
                    let mut reader = new_reader();
                    // SAFETY: it fills in the reader.
                    unsafe { robot_read(&raw mut reader) };
                    drive.maps.push((end, all_bytes(&mut reader)));
                }
            }
            Next::NotBegun(job) => panic!("{job:?}"),
        }
    }
    for (task, (_, _, budget)) in tasks.iter().enumerate() {
        let stats = edf.stats(task);
        assert_eq!((stats.missed, stats.over_budget), (0, 0), "task {task}: {budget} {stats:?}");
    }
    drive.events.append(&mut EVENTS.lock().expect("events"));
    drop(one);
    drive
}

impl Drive {
    fn look(&mut self, sonar: u32, now_us: u32) {
        let pose = world_pose(now_us);
        let (x, y) = (f64::from(pose.x_mm), f64::from(pose.y_mm));
        self.places.push((x, y));
        let mm = world_distance(sonar, now_us);
        if mm < 3000 {
            let towards = i64::from(pose.angle) + direction(sonar as usize);
            let mm = f64::from(mm + 200) / 16384.0;
            let (x, y) = (x + mm * cosine(towards) as f64, y + mm * sine(towards) as f64);
            self.hits.push((now_us, x, y));
        }
    }
}
