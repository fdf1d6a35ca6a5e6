#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# in-guest.sh COUNT PERIOD_US LOAD...: wakes a real-time task on CPU 3 COUNT times: as it is, on a
# shared CPU without and with the guard, on an isolated one; each under each load. Prints KIND LOAD
# in the order in which the plugin writes its lines.
# LOADs: idle, compute (8 tasks), kernel (tasks that call the kernel all the time).
set -u
count=$1 period=$2
shift 2
asmp=/share/asmp share=/share

# What the lab records for its own checks would count as well.
rmdir /sys/kernel/tracing/instances/lab* 2>/dev/null

loaded() {
    case $1 in
    compute) for _ in {1..8}; do $share/load spin 100000 0 & done ;;
    kernel)
        $share/calls 4 100000 2000 &
        for kind in faults forks mixed calls spin spin; do $share/load $kind 100000 1000 & done
        for _ in 1 2; do
            while :; do dd if=/dev/zero of=/tmp/zeros-$BASHPID bs=1M count=64 2>&-; done &
        done
        ;;
    esac
}

for load; do
    for kind in fifo best-effort shared isolated; do
        case $kind in
        fifo) start=(taskset -c 3 chrt -f 80) ;;
        *)
            flags=()
            [ $kind = isolated ] || flags=(--share)
            [ $kind != best-effort ] || flags=(--share=best-effort)
            $asmp create a --cpus 3 "${flags[@]}" >&2 || exit
            start=("$asmp" exec a --policy fifo:80 --)
            ;;
        esac
        setsid bash -c "$(declare -f loaded); share=$share; loaded $load; wait" >/dev/null 2>&1 &
        group=$!
        sleep 2
        "${start[@]}" $share/rt0 "$count" "$period" && echo "$kind $load"
        [ "$load" = idle ] || kill -KILL -- -$group
        wait $group 2>/dev/null
        [ $kind = fifo ] || $asmp destroy a >&2 || exit
    done
done
