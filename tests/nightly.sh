#!/bin/bash
# Runs the lock-free code of crates/channel under Miri (undefined behaviour),
# ThreadSanitizer (data races) or AddressSanitizer (accesses out of bounds, with
# fences around shared memory, while peers scribble and are killed):
# tests/nightly.sh miri|tsan|asan.
#
# Problem:  they need the nightly toolchain, which a machine may have no way to.
# Approach: install it if it is missing; where that fails, say what was skipped.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
target=${CARGO_TARGET_DIR:-target}

case $1 in
asan) components='' has='--version' ;;
*) components='miri,rust-src' has='miri --version' ;;
esac
# shellcheck disable=SC2086 # words of a command
if ! cargo +nightly $has >/dev/null 2>&1; then
    if ! rustup toolchain install nightly --profile minimal ${components:+--component $components} >/dev/null 2>&1; then
        echo "skipped: $1: no nightly toolchain${components:+ with $components} to be had"
        exit 0
    fi
fi

case $1 in
miri)
    CARGO_TARGET_DIR=$target/miri cargo +nightly miri test --quiet -p asmp-channel --lib -- ring:: seqlock::
    ;;
tsan)
    RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$target/tsan cargo +nightly test --quiet -Zbuild-std \
        --target x86_64-unknown-linux-gnu -p asmp-channel --lib -- ring:: seqlock:: fifo:: typed:: mbuff::
    ;;
asan)
    RUSTFLAGS='-Zsanitizer=address --cfg asan' CARGO_TARGET_DIR=$target/asan cargo +nightly test --quiet \
        --target x86_64-unknown-linux-gnu -p asmp-channel --lib -- shm:: fifo:: typed:: mbuff:: scribbl killed
    ;;
esac
