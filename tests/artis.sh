#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds asmp-artis (crates/artis), which loads the scheduler of shared partitions, and prints where
# it is; with `test` it runs the crate's tests first. Where clang or a header is missing it prints a
# line `skipped: …` to stderr and nothing else; in CI (ASMP_CI) that fails.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

skipped() {
    echo "skipped: asmp-artis: $1" >&2
    [ -z "${ASMP_CI:-}" ] || exit 1
    exit 0
}

# A clang of version 16 or newer.
find_clang() {
    local name version
    for name in ${BPF_CLANG:-} clang-19 clang clang-2{2..0} clang-1{8..6}; do
        version=$("$name" -dumpversion 2>/dev/null) || continue
        [ "${version%%.*}" -lt 16 ] || { echo "$name"; return; }
    done
    return 1
}

BPF_CLANG=$(find_clang) || skipped 'no clang 16 or newer (apt-get install clang-19)'
[ -e /usr/include/libelf.h ] || skipped 'no libelf.h (apt-get install libelf-dev)'
[ -e /usr/include/zlib.h ] || skipped 'no zlib.h (apt-get install zlib1g-dev)'
CARGO_TARGET_DIR=$(readlink -m "${CARGO_TARGET_DIR:-target}")/artis
LIBBPF_SYS_LIBRARY_PATH=/usr/lib/$(gcc -print-multiarch)
export BPF_CLANG CARGO_TARGET_DIR LIBBPF_SYS_LIBRARY_PATH
cd crates/artis
[ "${1:-}" != test ] || cargo test --release --locked --quiet >&2
cargo build --release --locked --quiet >&2
echo "$CARGO_TARGET_DIR/release/asmp-artis"
