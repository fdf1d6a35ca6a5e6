#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# In a guest: RUNS of each fault against a shielded thread, then the three ways to see the test
# fail.
set -euo pipefail
runs=$1
asmp=/share/asmp
containment=(/share/containment --period-ms 50 --cpu 3 --partition containment)

say() { printf '\n### %s\n\n' "$*"; }
# What must be found out is found out: exit code 1.
must_fail() {
    local code=0
    say "${*} (2 runs of each)"
    "${containment[@]}" --runs 2 "$@" || code=$?
    [ "$code" = 1 ]
}

say "Kernel $(uname -r), $(nproc) CPUs, $(date -u +%F), period 50 ms"
$asmp create containment --cpus 3 >/dev/null
"${containment[@]}" --runs "$runs"
must_fail --wait-on-peer
must_fail --forgetful
$asmp destroy containment >/dev/null
# A fair scheduler keeps 50 ms; a shorter period shows whose the CPU is.
must_fail --unshielded --period-ms 5
