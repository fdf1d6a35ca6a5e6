#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# moves-in-guest.sh COUNT ROUNDS: makes COUNT system calls or faults of each kind, ROUNDS times,
# without and with the scheduler of shared partitions, whose real-time CPU is 3. Prints KIND in the
# order in which the plugin moves.c writes its lines, and what the scheduler counted of ejections.
set -u
count=$1 rounds=$2
artis=/share/asmp-artis bpf=/sys/fs/bpf/asmp

# What the lab records for its own checks would count as well.
rmdir /sys/kernel/tracing/instances/lab* 2>/dev/null

# kind NAME WHAT CPU COMMAND...: COMMAND starts the caller.
kind() {
    local name=$1 what=$2 cpu=$3
    shift 3
    "$@" /share/caller "$what" "$count" "$cpu" || exit
    echo "$name"
}

stat_of() { awk -v name="$1" '$1 == name { print $2 }' $bpf/stats; }

for _ in $(seq "$rounds"); do
    kind plain-0-nothing nothing 0 taskset -c 0
    kind plain-0-getpid getpid 0 taskset -c 0
    kind plain-0-fault fault 0 taskset -c 0
    kind plain-nohz-getpid getpid 3 taskset -c 3
    kind plain-affinity affinity 3 taskset -c 3
    $artis set 3 || exit
    kind artis-0-getpid getpid 0 taskset -c 0
    kind artis-0-fault fault 0 taskset -c 0
    kind artis-nohz-getpid getpid 2 taskset -c 2
    kind artis-rt0-getpid getpid 3 taskset -c 3 chrt -f 80
    $artis set ''
    # Guests go to CPU 3 as soon as they can. Observers would count as well.
    $artis set 3 --eager || exit
    rm $bpf/observe_*
    kind guest-nothing nothing 3 taskset -c 0,3
    before=$(stat_of calls_from_rt) asked=$(stat_of asked) ticks=$(stat_of at_tick)
    kind guest-getpid getpid 3 taskset -c 0,3
    echo "ejected $(($(stat_of calls_from_rt) - before)), asked to be fetched" \
        "$(($(stat_of asked) - asked)), at a tick $(($(stat_of at_tick) - ticks))" >&2
    $artis set ''
done
