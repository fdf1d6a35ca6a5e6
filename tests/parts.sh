#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# parts.sh TARGET...: runs `make TARGET` for each, in that order.
#
# Each part runs also where an earlier one failed. `TARGET?` is left out where .ci/green holds the
# sources of its last green run (see sources.sh); ASMP_ALL=1 runs it all the same. The end is a
# names of the tests that failed, a table of minutes by part, and one line that counts tests.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit
ASMP_COUNTS=$(mktemp) ASMP_FAILED=$(mktemp)
export ASMP_COUNTS ASMP_FAILED
trap 'rm -f "$ASMP_COUNTS" "$ASMP_FAILED"' EXIT

table='' failed=0

# part TARGET
part() {
    local started=$SECONDS result=passed
    printf '\n##### %s\n' "$1"
    if ! make --no-print-directory "$1"; then
        result=FAILED failed=$((failed + 1))
    fi
    table+=$(awk -v s=$((SECONDS - started)) -v n="$1" -v r="$result" \
        'BEGIN { printf "%6.1f min  %-8s %s", s / 60, n, r }')$'\n'
}

is_green() { [ -z "${ASMP_ALL:-}" ] && grep -qsx "$1 $(tests/sources.sh "$1")" .ci/green; }

for target; do
    if [[ $target == *\? ]] && is_green "${target%\?}"; then
        table+=$(printf '%6s      %-8s sources as in its last green run' - "${target%\?}")$'\n'
    else
        part "${target%\?}"
    fi
done

# A log may be kept by its end alone.
[ ! -s "$ASMP_FAILED" ] || { printf '\n##### failed\n'; head -n 40 "$ASMP_FAILED"; }
printf '\n##### minutes by part, %s\n%s' "$(git rev-parse --short HEAD)" "$table"
awk -v s="$SECONDS" 'BEGIN { printf "%6.1f min  in all\n\n", s / 60 }'
read -r passed bad skipped < <(tests/sum.sh "$ASMP_COUNTS")
# A part that failed without a failed test (formatting, a build) counts as one.
[ "$failed" = 0 ] || [ "$bad" != 0 ] || bad=$failed
printf '%s passed, %s failed, %s skipped\n' "$passed" "$bad" "$skipped"
[ "$failed" = 0 ] && [ "$bad" = 0 ]
