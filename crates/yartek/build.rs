// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the kernel's core for this machine, so that tests call the very code of the boards.

fn main() {
    const KERNEL: &str = "../../yartek";
    println!("cargo:rerun-if-changed={KERNEL}");
    cc::Build::new()
        .file(format!("{KERNEL}/kernel/edf.c"))
        .include(format!("{KERNEL}/include"))
        .std("c11")
        .warnings_into_errors(true)
        .extra_warnings(true)
        .flag("-Wconversion")
        .compile("yartek");
}
