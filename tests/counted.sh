#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# counted.sh NAME COMMAND...: runs tests, and says at the end `NAME: N passed, N failed, N skipped`.
#
# Problem:  a test that a machine cannot do prints `skipped: reason` and returns; libtest counts it
#           as passed and shows nothing of it.
# Approach: read the output of `cargo test -- --show-output` (or pytest): hide what passing tests
#           print but for the lines that begin with `skipped: `, and count a test with such a line
#           as skipped. The command's exit status is ours. With ASMP_CI set, tests fail where a tool
#           is missing, so that nothing is skipped for want of a package.
# ASMP_COUNTS names a file that gets the last line, too, and ASMP_FAILED one for the names of the
# tests that failed.
set -uo pipefail
# What tests leave in directories of their own must be as root's files are.
umask 022
name=$1
shift

last=$(mktemp)
trap 'rm -f "$last"' EXIT
"$@" 2>&1 | awk -v name="$name" -v last="$last" -v failures="${ASMP_FAILED:-/dev/null}" '
    # The sections of passing tests: from "successes:" to the next heading.
    /^successes:$/ { hidden = 1; next }
    /^failures:$/ || /^test result: / { hidden = 0 }
    /^---- .* stdout ----$/ { test = $2 }
    /(^|[^a-z])skipped: / && hidden {
        sub(/^.*skipped: /, "")
        print "skipped: " test ": " $0
        if (!(test in seen)) { seen[test] = 1; skipped++; passed-- }
        next
    }
    hidden { next }
    # libtest (with --quiet), libtest-mimic, pytest.
    / --- FAILED$/ || /^test .* FAILED$/ || /^FAILED / { print name ": " $0 >>failures }
    # What a harness of its own does not start; libtest itself has `ignored` parts of other tests
    # only.
    /^skipped: / { skipped++ }
    # libtest and libtest-mimic.
    /^test result: / {
        for (i = 2; i <= NF; i++) {
            if ($i ~ /^passed/) passed += $(i - 1)
            if ($i ~ /^failed/) failed += $(i - 1)
        }
        test = ""; delete seen
        if ($0 ~ /^test result: ok/) next
    }
    # pytest.
    /^(=+ )?[0-9]+ (passed|failed|skipped).* in [0-9.]+s/ {
        for (i = 2; i <= NF; i++) {
            if ($i ~ /^passed/) passed += $(i - 1)
            if ($i ~ /^failed/) failed += $(i - 1)
            if ($i ~ /^skipped/) skipped += $(i - 1)
        }
    }
    # libtest counts, dots and empty lines of each of many binaries.
    /^running [0-9]+ tests?$/ || /^[.i]+( [0-9]+\/[0-9]+)?$/ || /^$/ { next }
    { print; fflush() }
    END {
        line = sprintf("%s: %d passed, %d failed, %d skipped", name, passed, failed, skipped)
        print line
        print line >last
    }'
status=${PIPESTATUS[0]}
[ -z "${ASMP_COUNTS:-}" ] || cat "$last" >>"$ASMP_COUNTS"
exit "$status"
