#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs the lock-free code of crates/channel under Miri (undefined behaviour), ThreadSanitizer (data
# races) or AddressSanitizer (accesses out of bounds, with fences around shared
# memory, while peers scribble and are killed): tests/nightly.sh miri|tsan|asan. With yartek-asan,
# yartek's C, which traps at undefined behaviour, too.
#
# Problem:  they need a nightly toolchain, and each night's is another one.
# Approach: tests/nightly-toolchain names the only one that is used. It is
#           installed if it is missing. Where that fails, the tests are skipped
#           and counted as such; with ASMP_CI they fail.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
target=${CARGO_TARGET_DIR:-target}
nightly=$(cat tests/nightly-toolchain)

case $1 in
*asan) components='' has='--version' ;;
*) components='miri,rust-src' has='miri --version' ;;
esac
# shellcheck disable=SC2086 # words of a command
if ! cargo "+$nightly" $has >/dev/null 2>&1 &&
    ! said=$(rustup toolchain install "$nightly" --profile minimal \
        ${components:+--component $components} 2>&1); then
    reason="$nightly${components:+ with $components} cannot be installed: ${said##*$'\n'}"
    if [ -n "${ASMP_CI:-}" ]; then
        echo "$1: $reason" >&2
        exit 1
    fi
    echo "skipped: $1: $reason"
    echo "$1: 0 passed, 0 failed, 1 skipped"
    exit 0
fi

# `--show-output`: lines that begin with `skipped: ` are counted.
case $1 in
miri)
    export CARGO_TARGET_DIR=$target/miri
    tests/counted.sh miri cargo "+$nightly" miri test --quiet \
        -p asmp-channel --lib -- --show-output ring:: seqlock::
    ;;
tsan)
    export RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$target/tsan
    tests/counted.sh tsan cargo "+$nightly" test --quiet -Zbuild-std \
        --target x86_64-unknown-linux-gnu \
        -p asmp-channel --lib -- --show-output ring:: seqlock:: fifo:: typed:: mbuff::
    ;;
asan)
    # Nightly in full: what is chosen else has to do with memory that others can write.
    tests=(shm:: fifo:: typed:: mbuff:: scribbl killed)
    [ "${ASMP_TIER:-}" != nightly ] || tests=()
    export RUSTFLAGS='-Zsanitizer=address --cfg asan' CARGO_TARGET_DIR=$target/asan
    tests/counted.sh asan cargo "+$nightly" test --quiet --target x86_64-unknown-linux-gnu \
        -p asmp-channel --lib -- --show-output "${tests[@]}"
    ;;
yartek-asan)
    # Its core, frames and the robot, in the tests that need no board.
    export RUSTFLAGS='-Zsanitizer=address' CARGO_TARGET_DIR=$target/yartek-asan
    export CFLAGS='-fsanitize=address,undefined -fsanitize-undefined-trap-on-error'
    tests/counted.sh yartek-asan cargo "+$nightly" test --quiet --no-fail-fast \
        --target x86_64-unknown-linux-gnu -p asmp-yartek --test identity --test arrivals \
        --test link --test map -- --show-output
    ;;
esac
