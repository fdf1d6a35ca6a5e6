// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles src/bpf with clang, and generates the Rust code that loads it: main.skel.rs.

use std::path::PathBuf;

fn main() {
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
