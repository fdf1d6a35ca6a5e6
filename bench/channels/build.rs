// SPDX-License-Identifier: Apache-2.0 OR MIT
fn main() {
    println!("cargo::rerun-if-changed=src/bare.c");
    cc::Build::new().file("src/bare.c").opt_level(2).compile("bare");
}
