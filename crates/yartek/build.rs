// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the kernel's core for this machine, so that tests call the very code of the boards.

const KERNEL: &str = "../../yartek";

fn main() {
    println!("cargo:rerun-if-changed={KERNEL}");
    #[cfg(feature = "core-c")]
    compile_core();
}

#[cfg(feature = "core-c")]
fn compile_core() {
    println!("cargo:rerun-if-env-changed=ASMP_CI");
    cc::Build::new()
        .file(format!("{KERNEL}/kernel/edf.c"))
        .include(format!("{KERNEL}/include"))
        .std("c11")
        // Another compiler may know more warnings: that stops no user.
        .warnings_into_errors(std::env::var_os("ASMP_CI").is_some())
        .extra_warnings(true)
        .flag("-Wconversion")
        .compile("yartek");
}
