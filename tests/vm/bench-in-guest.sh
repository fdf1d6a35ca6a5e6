#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The measurements of docs/measurements/latency.md, in one boot: `bench-in-guest.sh SAMPLES ROUNDS`.
set -euo pipefail
samples=$1 rounds=$2
asmp=/share/asmp
# The guest's /tmp is in memory. Loads write to its disk.
load_dir=/var/tmp
cd "$(mktemp -d)"

say() { printf '\n### %s\n\n' "$*"; }
# A figure of the only run below a directory, in us: `figure DIR KEY`.
figure() { $asmp measure report "$1" --json | python3 -c "
import json, sys
row = json.load(sys.stdin)['rows'][-1]['summary']
percentiles = {one['name']: one['ns'] for one in row['percentiles']}
figures = {'p50': percentiles['p50'], 'avg': row['average_ns'], 'max': row['max_ns']}
print(figures['$2'] / 1e3)"; }
# The middle of its arguments.
middle() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

say "Kernel $(uname -r), $(nproc) CPUs, $(date -u +%F)"

say "Our figures beside cyclictest's and rtla's, idle, partition of CPU 3, in turn, us" \
    "(medians of $rounds)"
for round in $(seq "$rounds"); do
    $asmp measure latency --kinds partition --source nanosleep --no-trace --samples "$samples" \
        --period 2ms -o "ours-$round" -q >/dev/null
    $asmp run --cpus 3 -- cyclictest -q -m -p 80 -t 1 -a 3 -i 2000 -l "$samples" -h 20000 \
        >"cyclictest-$round.txt"
    $asmp measure import "cyclictest-$round.txt" --from cyclictest -o "cyclictest-$round" \
        --kernel "$(uname -r)" --kind partition >/dev/null
    $asmp measure latency --kinds partition --source timerlat --no-trace --samples "$samples" \
        --period 2ms -o "timerlat-$round" -q >/dev/null
    $asmp run --cpus 3 -- rtla timerlat hist -c 3 -u -P f:80 -p 2000 -E 20000 \
        -d "$((samples / 500))s" >"rtla-$round.txt"
    $asmp measure import "rtla-$round.txt" --from rtla -o "rtla-$round" --kernel "$(uname -r)" \
        --kind partition >/dev/null
done
for tool in ours cyclictest timerlat rtla; do
    medians=()
    for round in $(seq "$rounds"); do
        dir=$tool-$round
        [ "$tool" != rtla ] || dir=rtla-$round/Usr-003
        medians+=("$(figure "$dir" p50)")
    done
    echo "$tool: median $(middle "${medians[@]}") of (${medians[*]})"
done

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
