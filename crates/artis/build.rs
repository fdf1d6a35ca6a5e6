// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles src/bpf with clang, and generates the Rust code that loads it: main.skel.rs.

use std::path::{Path, PathBuf};

/// FNV-1a over the texts of the programs.
fn sum(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("src/bpf is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it has a name").path()).collect();
    paths.sort();
    let texts = paths.iter().map(|path| std::fs::read(path).expect("it is a file"));
    texts.flatten().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    println!("cargo::rustc-env=ASMP_ARTIS_BUILD={version}-{:016x}", sum(Path::new("src/bpf")));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang".to_owned());
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-env-changed=BPF_CLANG");
    let built = libbpf_cargo::SkeletonBuilder::new()
        .source("src/bpf/main.bpf.c")
        .clang(&clang)
        .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
        .build_and_generate(out.join("main.skel.rs"));
    if let Err(error) = built {
        panic!("{clang} cannot compile src/bpf (BPF_CLANG names another): {error:#}");
    }
}
