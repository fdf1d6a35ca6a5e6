// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The committed header is what cbindgen makes of the sources now.

use std::fs;
use std::path::Path;

#[test]
fn the_committed_header_is_what_the_sources_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_src(root.join("src/lib.rs"));
    let mut now = Vec::new();
    builder.with_config(config).generate().unwrap().write(&mut now);
    let now = String::from_utf8(now).unwrap();
    let path = root.join("include/asmp_rt.h");
    if std::env::var_os("ASMP_WRITE_HEADER").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        now == committed,
        "include/asmp_rt.h is old: ASMP_WRITE_HEADER=1 cargo test -p asmp-rt-c --test header"
    );
}
