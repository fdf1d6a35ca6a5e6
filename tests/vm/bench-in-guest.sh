#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The measurements of docs/measurements/latency.md, in one boot: `bench-in-guest.sh SAMPLES ROUNDS`.
set -euo pipefail
samples=$1 rounds=$2
# The guest's /tmp is in memory. Loads write to its disk.
load_dir=/var/tmp
# shellcheck source=bench-beside-in-guest.sh
. /share/bench-beside-in-guest.sh
cd "$(mktemp -d)"

say() { printf '\n### %s\n\n' "$*"; }
say "Kernel $(uname -r), $(nproc) CPUs, $(date -u +%F)"

say "Our figures beside cyclictest's and rtla's, partition of CPU 3, in turn, us; idle"
beside idle "$rounds" "$((samples / 500))" p50 p99

say "The same under load; missed: of 100 instants"
stress-ng --cpu 3 --io 1 --hdd 1 --temp-path "$load_dir" -q &
beside loaded 5 6 p50 p99 missed
kill $!
wait || true

say "Two sides that are alike, six rounds each, in turn: none is sure"
mkdir alike-a alike-b
for round in 1 2 3 4 5 6; do
    for side in a b; do
        $asmp measure latency --kinds partition --no-trace --samples 500 --period 2ms \
            -o "alike-$side/$round" -q >/dev/null
    done
done
$asmp measure compare alike-a alike-b

for round in $(seq "$rounds"); do
    say "Latency, mixed, run $round of $rounds"
    $asmp measure latency --load mixed --load-factor 8 --load-dir "$load_dir" \
        --samples "$samples" --period 5ms --source nanosleep --no-trace --beside-paper \
        -o "mix-$round" -q
done

say "Overhead, mixed"
$asmp measure overhead --load mixed --load-factor 8 --load-dir "$load_dir" --iterations 40 \
    --work 50ms -o overhead -q

say "Which step helped, mixed"
$asmp measure ab --knob irqs,dl-server,tick --load mixed --load-factor 4 \
    --load-dir "$load_dir" --samples 1000 --period 2ms -o ab -q

say "The cost of an address space (L4RTL)"
$asmp measure spaces --load-factor 2 --load-dir "$load_dir" --samples "$((samples / 5))" \
    -o spaces -q

$asmp measure report mix-1 overhead spaces -o /out/report.html >/dev/null
