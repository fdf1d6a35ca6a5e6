#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# In a guest whose clock counts instructions (16 ns each): a planted delay of 200 us, and what a
# sample costs.
set -euo pipefail
asmp=/share/asmp
cd "$(mktemp -d)"

echo "### A FIFO-99 thread takes CPU 3 for 200 us every 20 ms (clock of instructions)"
echo
taskset -c 3 chrt -f 99 /share/hog 200 20000 &
hog=$!
$asmp measure latency --kinds fifo --source nanosleep --samples 300 --period 3ms --explain 3 \
    -o planted -q
kill "$hog"
echo "(the thread is hog/$hog)"

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
