// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells the linker where memory.x and device.x are, which the script of cortex-m-rt includes.

fn main() {
    println!("cargo:rustc-link-search={}", env!("CARGO_MANIFEST_DIR"));
    println!("cargo:rustc-link-arg-bins=-Tlink.x");
    println!("cargo:rerun-if-changed=memory.x");
    println!("cargo:rerun-if-changed=device.x");
}
