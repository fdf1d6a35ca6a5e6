#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds asmp-artis (crates/artis), which loads the scheduler of shared partitions, and prints where
# it is. Without clang it prints nothing but a line `skipped: …` to stderr; in CI (ASMP_CI) that
# fails.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

skip() {
    echo "skipped: asmp-artis: $*" >&2
    [ -z "${ASMP_CI:-}" ] || exit 1
    exit 0
}

clang=''
for name in "${BPF_CLANG:-}" clang clang-21 clang-20 clang-19 clang-18; do
    [ -n "$clang" ] || ! command -v "$name" >/dev/null || clang=$name
done
[ -n "$clang" ] || skip "no clang (apt-get install clang-19)"
for header in libelf.h zlib.h; do
    echo "#include <$header>" | cc -E - >/dev/null 2>&1 ||
        skip "no $header (apt-get install libelf-dev zlib1g-dev)"
done

target=$(readlink -m "${CARGO_TARGET_DIR:-target}/artis")
# Debian has no static libelf of its own name where libbpf-sys looks for it.
export BPF_CLANG=$clang CARGO_TARGET_DIR=$target
export LIBBPF_SYS_LIBRARY_PATH=${LIBBPF_SYS_LIBRARY_PATH:-/usr/lib/$(cc -dumpmachine)}
cargo build --release --quiet --locked --manifest-path crates/artis/Cargo.toml >&2
echo "$target/release/asmp-artis"
