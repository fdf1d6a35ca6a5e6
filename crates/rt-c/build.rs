// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library's name for those who are linked with it: without one they would keep the path it had
//! then.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libasmp_rt.so");
}
