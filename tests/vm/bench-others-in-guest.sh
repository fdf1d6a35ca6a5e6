#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What others gain and lose, in one boot: `bench-others-in-guest.sh ROUNDS [WORKLOAD...]`. The upper
# half of the CPUs is a partition: shared, isolated, or there is none (plain). On each of these CPUs
# a real-time task uses 5 %, of all three kinds alike. Prints each measurement, then a table.
#
# Units: rates, so more is better: turns, calls or operations a second, runs of hackbench and
# compilations a minute. `cpus` and `user_cpus` are CPU time a second as the kernel accounts it, all
# and in user mode: these do not depend on how fast an emulated CPU is just then.
set -euo pipefail
rounds=$1
shift
workloads=("$@")
[ $# -gt 0 ] || workloads=(compute calls-1 calls hackbench fio-memory fio-disk compile)
asmp=/share/asmp stats=/sys/fs/bpf/asmp/stats seconds=6
cpus=$(nproc)
rt_first=$((cpus / 2)) rt_last=$((cpus - 1))
# What the scheduler did meanwhile, by its names.
counted=(began_on_rt left_in_kernel left_in_user too_short at_tick asked made_room)
cd "$(mktemp -d -p /var/tmp)"

begin() {
    local cpu within=()
    case $1 in
    shared) $asmp create a --cpus "$rt_first-$rt_last" --share ;;
    isolated) $asmp create a --cpus "$rt_first-$rt_last" ;;
    esac >/dev/null
    [ "$1" = plain ] || within=("$asmp" exec a --)
    for cpu in $(seq $rt_first $rt_last); do
        "${within[@]}" /share/rt0 rt0 100000 "$cpu" &
    done
    sleep 2
    [ "$(pgrep -cx rt0)" = $((cpus - rt_first)) ] || { echo "not all of rt0 run" >&2; exit 1; }
}

end() {
    # shellcheck disable=SC2046 # words
    kill $(pgrep -x rt0)
    wait
    [ "$1" = plain ] || $asmp destroy a >/dev/null
}

# spin_or_call KIND PROCESSES TURNS: their turns a second, together.
spin_or_call() {
    local _
    {
        for _ in $(seq "$2"); do /share/load "$1" $seconds "$3" & done
        # Without it the CPU time of these would be unknown.
        wait
    } | awk '{ sum += $2 } END { print sum }'
}

# fio_in DIRECTORY [OPTION...]: operations a second of reads and writes of 4 KiB, together.
fio_in() {
    local dir=$1
    shift
    mkdir -p "$dir"
    fio --name=job --directory="$dir" --rw=randrw --bs=4k --size=4m --numjobs="$cpus" \
        --ioengine=psync --time_based --runtime=$seconds --group_reporting \
        --output-format=terse --terse-version=3 "$@" |
        awk -F';' '/^3;/ { print $8 + $49; n = 1 } END { exit !n }'
}

# work WORKLOAD: does it, and prints its rate.
work() {
    local began
    case $1 in
    compute) spin_or_call spin "$cpus" 0 ;;
    calls-1) spin_or_call calls 1 "$turns" ;;
    calls) spin_or_call calls "$cpus" "$turns" ;;
    hackbench) hackbench -g 1 -l 1500 | awk '/^Time:/ { print 60 / $2; n = 1 } END { exit !n }' ;;
    fio-memory) fio_in /dev/shm/fio ;;
    fio-disk) fio_in fio --direct=1 ;;
    compile)
        rm -f /share/linux/lib/*.o
        began=${EPOCHREALTIME/./}
        make -s -C /share/linux -j "$cpus" >&2 || return
        echo "$began ${EPOCHREALTIME/./}" | awk '{ print 60e6 / ($2 - $1) }'
        ;;
    esac
}

# How much of 3 s, once a workload runs, the CPUs of the partition idle, in per cent.
idle_meanwhile() {
    sleep 2
    for _ in 1 2; do
        awk -v first=$rt_first -v ms="$((${EPOCHREALTIME/./} / 1000))" '
            /^cpu[0-9]/ && substr($1, 4) >= first { idle += $5 + $6; n++ }
            END { print idle * 10 / n, ms }' /proc/stat
        sleep 3
    done | awk '{ if (NR == 1) { idle = $1; ms = $2 } else print 100 * ($1 - idle) / ($2 - ms) }'
}

# The CPU time that the real-time tasks have used, in ms.
rt0_ms() {
    local pid
    for pid in $(pgrep -x rt0); do cat "/proc/$pid/schedstat"; done |
        awk '{ ns += $1 } END { print int(ns / 1e6) }'
}

# stats_of NAME...: what the scheduler has counted under these names; 0 where there is none.
stats_of() {
    local name
    for name; do
        { cat $stats 2>/dev/null || true; } |
            awk -v name="$name" '$1 == name { n = $2 } END { print n + 0 }'
    done
}

# measure ROUND KIND WORKLOAD: a line, as `columns` names its words.
columns="round kind workload rate user_cpus cpus rt_idle% rt0% move_ns ${counted[*]}"
measure() {
    local before rt0 ms sampler TIMEFORMAT='%U %S'
    before=$(stats_of "${counted[@]}")
    idle_meanwhile >idle &
    sampler=$!
    ms=${EPOCHREALTIME/./} rt0=$(rt0_ms)
    { time work "$3" >value 2>errors; } 2>used || { cat errors used >&2; exit 1; }
    rt0=$(($(rt0_ms) - rt0)) ms=$(((${EPOCHREALTIME/./} - ms) / 1000))
    wait $sampler
    awk -v ms=$ms -v rt0=$rt0 -v n=$((cpus - rt_first)) -v idle="$(cat idle)" \
        -v what="$1 $2 $3 $(cat value)" '{ printf "%s %.3f %.3f %.1f %.1f", what, $1 * 1000 / ms,
            ($1 + $2) * 1000 / ms, idle, 100 * rt0 / ms / n }' <(tail -n 1 used)
    printf ' %s' "$(stats_of move_ns)"
    paste -d ' ' <(echo "$before") <(stats_of "${counted[@]}") |
        awk '{ printf " %d", $2 - $1 } END { print "" }'
}

# Of the lines of measure(): the medians of each kind, shared and isolated in per cent of plain.
table() {
    awk '
        function of(kind, column,    part, n, i, j, swap) {
            n = split(all[name, kind, column], part, " ")
            for (i = 1; i <= n; i++)
                for (j = i + 1; j <= n; j++)
                    if (part[j] + 0 < part[i] + 0) {
                        swap = part[i]; part[i] = part[j]; part[j] = swap
                    }
            return part[int((n + 1) / 2)] + 0
        }
        function percent(kind, column) { return 100 * of(kind, column) / of("plain", column) }
        BEGIN {
            form = "%-10s %8s | %6s %8s | %5s %6s %6s %8s | %6s %8s | %7s\n"
            printf form, "", "rate", "rate", "rate", "CPUs", "user", "user", "user",
                "idle %", "idle %", "a move,"
            printf form, "workload", "plain", "shared", "isolated", "plain", "plain", "shared",
                "isolated", "shared", "isolated", "us"
            form = "%-10s %8.5g | %6.0f %8.0f | %5.2f %6.2f %6.0f %8.0f | "
            form = form "%6.1f %8.1f | %7.0f\n"
        }
        {
            if (!seen[$3]++) names[++count] = $3
            for (i = 4; i <= 9; i++) all[$3, $2, i] = all[$3, $2, i] " " $i
        }
        END {
            for (row = 1; row <= count; row++) {
                name = names[row]
                printf form, name, of("plain", 4), percent("shared", 4), percent("isolated", 4),
                    of("plain", 6), of("plain", 5), percent("shared", 5), percent("isolated", 5),
                    of("shared", 7), of("isolated", 7), of("shared", 9) / 1000
            }
        }'
}

echo "### Kernel $(uname -r), $cpus CPUs, $rt_first-$rt_last the partition, $(date -u +%F)"
# A call each 250 us: as long as a CPU that no other program uses needs for so many turns.
turns=100000
turns=$(/share/load calls 3 $turns | awk -v turns=$turns '{ printf "%d", turns * $2 / 4000 }')
echo "turns between two calls: $turns"
echo "$columns"
for round in $(seq "$rounds"); do
    for kind in plain shared isolated; do
        begin $kind
        for workload in "${workloads[@]}"; do
            measure "$round" $kind "$workload" | tee -a measured
        done
        end $kind
    done
done
echo
table <measured
awk '{ used[$2] += $8; n[$2]++ }
    END {
        for (kind in used) {
            mean = used[kind] / n[kind]
            printf "rt0, %s: %.1f %% on average\n", kind, mean
            if (mean < 4.5 || mean > 5.5) { print "that is not 5 %"; bad = 1 }
        }
        exit bad
    }' measured
