#!/bin/bash
# Runs the lock-free code of crates/rt under Miri (undefined behaviour) or
# ThreadSanitizer (data races): tests/nightly.sh miri|tsan.
#
# Problem:  both need the nightly toolchain, which a machine may have no way to.
# Approach: install it if it is missing; where that fails, say what was skipped.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
target=${CARGO_TARGET_DIR:-target}

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    if ! rustup toolchain install nightly --profile minimal --component miri,rust-src >/dev/null 2>&1; then
        echo "skipped: $1: no nightly toolchain with miri and rust-src to be had"
        exit 0
    fi
fi

case $1 in
miri)
    CARGO_TARGET_DIR=$target/miri cargo +nightly miri test --quiet -p asmp-rt --lib -- ring:: seqlock::
    ;;
tsan)
    RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$target/tsan cargo +nightly test --quiet -Zbuild-std \
        --target x86_64-unknown-linux-gnu -p asmp-rt --lib -- ring:: seqlock:: fifo:: mbuff::
    ;;
esac
