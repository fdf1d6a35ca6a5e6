#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# sources.sh PART: prints the hash of all files that decide the result of a sanitizer or of the
# bindings' tests. sources.sh --record PART...: writes those hashes to .ci/green, which `.ci/run`
# compares with (`make nightly` does so after a green run).
#
# Problem:  loom, Miri, TSan, ASan and the tests of the Python bindings take long and see a few
#           crates only. CI has a clone of main alone: no branch to compare with, and a push may
#           bring many merges.
# Approach: compare contents instead of history. What has passed once in these very files need not
#           run again.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

# The crate whose tests a part runs.
crate_of() {
    case $1 in
    python) echo asmp-rt-py ;;
    *) echo asmp-channel ;;
    esac
}

# Of Cargo.lock only what that crate is built of: a dependency of another one changes nothing here.
packages() {
    cargo tree --quiet --locked --edges normal,build,dev --prefix none --format '{p}' \
        --package "$(crate_of "$1")" | sed 's/ (.*//' | sort -u
}

paths() {
    local crates=(crates/rt crates/analysis crates/host)
    [ ! -e crates/channel ] || crates=(crates/channel)
    case $1 in
    loom | miri | tsan | asan) ;;
    python)
        crates+=(crates/rt crates/rt-c crates/rt-py examples/rt/python)
        crates+=(tests/python.sh tests/python.txt tests/venv.sh)
        ;;
    *) echo "no part $1" >&2; exit 2 ;;
    esac
    # Not their integration tests: no such part runs them.
    printf '%s\n' "${crates[@]}" Cargo.toml rust-toolchain.toml \
        tests/nightly.sh tests/nightly-toolchain \
        ':!crates/channel/tests' ':!crates/rt/tests' ':!crates/rt-c/tests/c'
}

# Names and contents as they lie here, whether committed or not.
hash_of() {
    local paths
    mapfile -t paths < <(paths "$1")
    {
        git ls-files -z --cached --others --exclude-standard -- "${paths[@]}" | sort -zu |
            xargs -0 sha256sum 2>/dev/null
        packages "$1"
    } | sha256sum | cut -c1-16
}

if [ "${1:-}" = --record ]; then
    shift
    for part; do
        hash=$(hash_of "$part")
        echo "$part $hash"
    done >.ci/green
else
    hash_of "$1"
fi
