#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The latencies of docs/measurements/sharing.md, in one boot: `bench-sharing-in-guest.sh SAMPLES
# ROUNDS`. How late a real-time task wakes on a CPU that all share, that is isolated, or that others
# share with and without the guard, under loads that run on every CPU that they may use.
set -euo pipefail
samples=$1 rounds=$2
asmp=/share/asmp
cd "$(mktemp -d)"
echo "### Kernel $(uname -r), $(nproc) CPUs, $(date -u +%F)"
for round in $(seq "$rounds"); do
    for load in idle cpu artis; do
        echo
        echo "### Load $load, round $round of $rounds"
        $asmp measure latency --kinds fifo,best-effort,shared,partition --load "$load" \
            --load-dir /var/tmp --samples "$samples" --period 5ms --source nanosleep --no-trace \
            -o "$load-$round" -q
    done
done
