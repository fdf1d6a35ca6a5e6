#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# In a guest whose clock counts instructions (16 ns each): our figures beside other tools', planted
# delays, and what a sample costs.
set -euo pipefail
# shellcheck source=bench-beside-in-guest.sh
. /share/bench-beside-in-guest.sh
cd "$(mktemp -d)"

# Idle: under load the CPUs of such a guest, which take turns on one thread of the host, leave asmp
# minutes to make a partition.
echo "### Our figures beside cyclictest's and rtla's, idle (clock of instructions), us"
echo "missed: of 100 instants"
echo
beside idle 5 8 p50 p99 missed

echo
echo "### A FIFO-99 thread takes CPU 3 for 200 us every 20 ms (clock of instructions)"
echo
taskset -c 3 chrt -f 99 /share/hog 200 20000 &
hog=$!
$asmp measure latency --kinds fifo --source nanosleep --samples 300 --period 3ms --explain 3 \
    -o planted -q
kill "$hog"
echo "(the thread is hog/$hog)"

echo
echo "### A FIFO-99 thread takes CPU 3 for 40 ms every 400 ms; period 1 ms (clock of instructions)"
echo
taskset -c 3 chrt -f 99 /share/hog 40000 400000 &
hog=$!
$asmp measure latency --kinds fifo --source nanosleep --no-trace --samples 4000 -o stall -q \
    >/dev/null
cyclictest -q -m -p 80 -t 1 -a 3 -i 1000 -D 4 -h 100000 >cyclictest.txt
rtla timerlat hist -c 3 -u -P f:80 -p 1000 -E 100000 -d 4s >rtla.txt
kill "$hog"
for tool in cyclictest rtla; do
    $asmp measure import "$tool.txt" --from "$tool" -o "$tool" --kernel "$(uname -r)" \
        --kind fifo >/dev/null
done
$asmp measure report stall cyclictest rtla --samples-alone --limit 1ms

echo
echo "### The cost of an address space, idle (clock of instructions)"
echo
$asmp measure spaces --load idle --samples 300 -o spaces -q

echo
echo "### What keeping a sample costs the probe"
echo
# The test's limit is meant for a real clock; here only the figure counts.
{ /share/measure-tests --exact probe::tests::keeping_a_sample_costs_little --nocapture \
    2>/dev/null || true; } |
    grep 'a sample costs'
echo "(16 ns an instruction)"
