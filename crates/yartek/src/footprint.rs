// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of an image each source has, from the linker's map (GNU ld, `-Map`).

use std::path::{Path, PathBuf};

/// A source in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// `edf` for kernel/edf.c; `port` for both files of a port.
    pub name: String,
    /// Code, constants, and what variables begin with.
    pub flash_bytes: u64,
    /// Variables.
    pub ram_bytes: u64,
}

/// Is a section of the image in flash, and in RAM? `None`: it is not loaded.
const fn needs(section: &str) -> Option<(bool, bool)> {
    match section.as_bytes() {
        b".text" => Some((true, false)),
        b".data" => Some((true, true)),
        b".bss" | b".kept" => Some((false, true)),
        _ => None,
    }
}

fn name_of(source: &Path) -> String {
    match source.starts_with("port") {
        true => "port".to_owned(),
        false => source.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// What each source has. `sources` are the files that the compiler was given: the linker loads
/// their objects in the same order. A source that has nothing in the image is left out. A map that
/// cannot be read has no parts.
pub(crate) fn parts(map: &str, sources: &[PathBuf]) -> Vec<Part> {
    let Some((_, map)) = map.split_once("Linker script and memory map") else { return vec![] };
    let objects: Vec<&str> = map.lines().filter_map(|line| line.strip_prefix("LOAD ")).collect();
    let mut parts = Vec::<Part>::new();
    let mut section = None;
    for line in map.lines() {
        if !line.starts_with([' ', '\t']) {
            section = line.split_whitespace().next().and_then(needs);
            continue;
        }
        let Some((in_flash, in_ram)) = section else { continue };
        // The section's name may be on the line before. `*fill*` has no object.
        let mut words = line.split_whitespace().rev();
        let (Some(object), Some(bytes)) = (words.next(), words.next().and_then(hex)) else {
            continue;
        };
        let Some(at) = objects.iter().position(|loaded| *loaded == object) else { continue };
        let Some(name) = sources.get(at).map(|source| name_of(source)) else { continue };
        let found = parts.iter().position(|part| part.name == name).unwrap_or_else(|| {
            parts.push(Part { name, flash_bytes: 0, ram_bytes: 0 });
            parts.len() - 1
        });
        parts[found].flash_bytes += if in_flash { bytes } else { 0 };
        parts[found].ram_bytes += if in_ram { bytes } else { 0 };
    }
    parts.retain(|part| part.flash_bytes + part.ram_bytes > 0);
    parts.sort_by(|a, b| (b.flash_bytes, &a.name).cmp(&(a.flash_bytes, &b.name)));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
Discarded input sections

 .text          0x00000000        0x0 /tmp/a.o
 .text.gone     0x00000000       0x99 /tmp/b.o

Linker script and memory map

LOAD /tmp/a.o
LOAD /tmp/b.o
LOAD /tmp/c.o

.text           0x00000000      0x1ac
 *(.vectors)
 .vectors       0x00000000       0x40 /tmp/a.o
 .text.yk_port_now
                0x00000040       0x20 /tmp/b.o
                0x00000040                yk_port_now
 *fill*         0x00000060        0x4 
 .rodata.long_name
                0x00000064      0x148 /tmp/c.o

.data           0x20000000        0x4 load address 0x000001ac
 .data          0x20000000        0x4 /tmp/c.o

.bss            0x20000004       0x10
 COMMON         0x20000004       0x10 /tmp/b.o

.debug_info     0x00000000      0x900
 .debug_info    0x00000000      0x900 /tmp/c.o
";

    #[test]
    fn a_map_says_what_each_source_has() {
        let sources = ["port/x/start.S", "port/x/port.c", "table.c"].map(PathBuf::from);
        let part = |name: &str, flash_bytes, ram_bytes| Part {
            name: name.to_owned(),
            flash_bytes,
            ram_bytes,
        };
        let expected = [part("table", 0x148 + 4, 4), part("port", 0x60, 0x10)];
        assert_eq!(parts(MAP, &sources), expected);
        assert_eq!(parts("no map", &sources), []);
    }
}
