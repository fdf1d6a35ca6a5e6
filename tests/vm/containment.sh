#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The figures of docs/measurements/containment.md: `containment.sh [RUNS]`, of each kind of fault.
#
# Problem:  that faults of time-sharing peers stay away from a real-time thread shows only in many
#           runs, beside runs without a fault in the same boot.
# Approach: one guest does all of them. It is booted without nohz_full=: there the kernel would
#           serve the thread's own timer on a system CPU, and its lateness could not be told from a
#           peer's doing.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")

share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
cd "$top"
target=${CARGO_TARGET_DIR:-target}
cargo build --release --quiet -p asmp
judge=$(cargo test --release --no-run --message-format=json -p asmp-rt --test containment \
    2>/dev/null |
    sed -n 's/.*"name":"containment".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
cp "$judge" "$share/containment"
cp "$target/release/asmp" "$here/containment-in-guest.sh" "$share"
"$here/lab.sh" --kernel "${KERNEL:-sid-rt}" --share "$share" --timeout 7200 -- \
    /share/containment-in-guest.sh "${1:-200}"
