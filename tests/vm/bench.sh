#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The measurements of docs/measurements/latency.md: `bench.sh [SAMPLES [ROUNDS]]`; the figures' page
# is kept.
#
# Problem:  figures that are to be compared must come from one boot of one kernel.
# Approach: one guest does everything in turn and prints it; what needs a clock that no host
#           disturbs is done in a second one, whose clock counts instructions.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
# shellcheck source=lib.sh
. "$here/lib.sh"

share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
cd "$top"
cargo build --release --quiet -p asmp
cp "${CARGO_TARGET_DIR:-target}/release/asmp" "$here"/bench-*in-guest.sh "$share"
tests=$(cargo test --release --no-run --message-format=json -p asmp-measure --lib 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
cp "$tests" "$share/measure-tests"
cc -O2 -static -Wall -o "$share/hog" "$here/hog.c"
"$here/lab.sh" --kernel "${KERNEL:-sid-rt}" --append 'nohz_full=1-3 rcu_nocbs=1-3' \
    --share "$share" --out "$CACHE/bench" \
    --timeout 3600 -- /share/bench-in-guest.sh "${1:-2000}" "${2:-3}"
"$here/lab.sh" --kernel "${KERNEL:-sid-rt}" --icount --append 'nohz_full=1-3 rcu_nocbs=1-3' \
    --share "$share" \
    --timeout 2400 -- /share/bench-icount-in-guest.sh
say "figures: $CACHE/bench/report.html"
