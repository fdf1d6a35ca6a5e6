// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek map` and the serial line of `run`, as a user calls them: no board is needed.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

fn asmp(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    command.current_dir(dir).arg("yartek").args(arguments).output().expect("asmp starts")
}

/// Exit code, and what was said in one line.
fn refused(output: &Output) -> (i32, String) {
    let said = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert_eq!((said.lines().count(), &*output.stdout), (1, &b""[..]), "{said}");
    (output.status.code().expect("an exit code"), said)
}

/// 4 by 2 cells of 50 mm, with three that were met.
const MAP: &str = "000400023200030101020109010002";

#[test]
fn the_last_map_that_was_printed_is_drawn() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = format!("map 00\nspeed 3\nmap {MAP}\n12 jobs, 0 deadlines missed\n");
    fs::write(dir.path().join("printed"), text).expect("a file");
    let output = asmp(dir.path(), &["map", "printed", "-o", "map.svg"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.stdout, b"map.svg: 3 of 4 x 2 cells, 15 bytes\n");
    let svg = fs::read_to_string(dir.path().join("map.svg")).expect("a drawing");
    assert!(svg.starts_with("<svg ") && svg.matches("v50h-50z").count() == 3, "{svg}");
}

#[test]
fn what_is_no_map_is_refused_and_the_old_drawing_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("map.svg"), "old").expect("a file");
    let (short, odd) = (&MAP[..MAP.len() - 2], &MAP[..MAP.len() - 1]);
    for (text, words) in [
        ("12 jobs\n".to_owned(), "printed: has no map: a robot prints one each ten seconds"),
        (format!("map {odd}\n"), "printed: has a map that is not hexadecimal"),
        ("map +1+1\n".to_owned(), "printed: has a map that is not hexadecimal"),
        (format!("map {short}\n"), "printed: no map: it ends after 14 bytes"),
        ("map ffffffff32008180f8ff0f\n".to_owned(), "no map: a grid of 65535 by 65535 cells"),
    ] {
        fs::write(dir.path().join("printed"), &text).expect("a file");
        let (code, said) = refused(&asmp(dir.path(), &["map", "printed", "-o", "map.svg"]));
        assert!(code == 40 && said.contains(words), "{code} {said}");
    }
    let (code, said) = refused(&asmp(dir.path(), &["map", "away", "-o", "map.svg"]));
    assert!(code == 40 && said.contains("away: "), "{code} {said}");
    let (code, said) = refused(&asmp(dir.path(), &["map", "printed", "-o", "printed"]));
    assert!(code == 2 && said.contains("-o"), "{code} {said}");
    assert_eq!(fs::read(dir.path().join("map.svg")).expect("a drawing"), b"old");
}

#[test]
fn the_map_of_a_file_is_not_emptied() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("printed"), format!("map {MAP}\n")).expect("a file");
    let (code, said) = refused(&asmp(dir.path(), &["map", "printed", "-o", "map.svg", "--clear"]));
    let words = "--clear empties the map of a robot that runs: give its tcp:PORT, or leave";
    assert!(code == 2 && said.contains(words), "{code} {said}");
    assert!(!dir.path().join("map.svg").exists());
}

#[test]
fn a_port_where_no_robot_is_and_one_that_is_none_are_told() {
    let dir = tempfile::tempdir().expect("a directory");
    for port in ["tcp:0", "tcp:", "tcp:65536", "tcp:serial"] {
        let (code, said) = refused(&asmp(dir.path(), &["map", port, "-o", "map.svg"]));
        assert!(code == 2 && said.contains("is no port: give a number from 1"), "{code} {said}");
    }
    // Free for the moment.
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = format!("tcp:{}", listener.local_addr().expect("its address").port());
    drop(listener);
    let (code, said) = refused(&asmp(dir.path(), &["map", &port, "-o", "map.svg"]));
    let cure = format!("start a robot with asmp yartek run DIR --serial {port}");
    assert!(code == 63 && said.contains(&cure), "{code} {said}");
    assert!(fs::read_dir(dir.path()).expect("a directory").next().is_none());
}

#[test]
fn a_serial_line_that_ends_nowhere_known_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    for (line, words) in [
        ("tty", "give pty, or tcp: and a port"),
        ("tcp:0", "0 is no port: give a number from 1 to 65535"),
    ] {
        let output = asmp(dir.path(), &["run", "tasks.toml", "--serial", line]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{said}");
    }
}
