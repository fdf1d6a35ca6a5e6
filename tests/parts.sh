#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# parts.sh TARGET...: runs `make TARGET` for each, in that order.
#
# Each part runs also where an earlier one failed. `TARGET?` is left out where .ci/green holds the
# sources of its last green run (see sources.sh); ASMP_ALL=1 runs it all the same. `TARGET&` runs
# beside what follows the first of them, at nice 19, one after the other: for parts that only
# compute. `--` waits for them. The end is what they printed, a table of minutes by part, and one
# line that counts tests.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit
work=$(mktemp -d)
export ASMP_COUNTS=$work/counts
: >"$ASMP_COUNTS"
group=''
trap '[ -z "$group" ] || kill -- "-$group" 2>/dev/null; rm -rf "$work"' EXIT

table='' failed=0 aside=()

# part TARGET
part() {
    local started=$SECONDS result=passed
    printf '\n##### %s\n' "$1"
    make --no-print-directory "$1" || result=FAILED
    awk -v s=$((SECONDS - started)) -v n="$1" -v r="$result" \
        'BEGIN { printf "%6.1f min  %-8s %s\n", s / 60, n, r }' >"$work/$1.row"
}

# row TARGET: into the table. A part that was killed has none.
row() {
    local text
    text=$(cat "$work/$1.row" 2>/dev/null || printf '%6s      %-8s FAILED: it did not end' '' "$1")
    [[ $text != *FAILED* ]] || failed=$((failed + 1))
    table+=$text$'\n'
}

# parts_aside TARGET... in a process group of their own, so that they end with us.
parts_aside() {
    renice -n 19 -p "$BASHPID" >/dev/null
    for target; do part "$target" >"$work/$target.said" 2>&1; done
}

is_green() { [ -z "${ASMP_ALL:-}" ] && grep -qsx "$1 $(tests/sources.sh "$1")" .ci/green; }

for target; do
    [[ $target != *\& ]] || aside+=("${target%&}")
done
for target; do
    case $target in
    *\&)
        [ -z "$group" ] || continue
        set -m
        parts_aside "${aside[@]}" &
        group=$!
        set +m
        ;;
    --) [ -z "$group" ] || wait "$group" ;;
    *\?)
        if is_green "${target%\?}"; then
            table+=$(printf '%6s      %-8s sources as in its last green run' '' "${target%\?}")
            table+=$'\n'
        else
            part "${target%\?}"
            row "${target%\?}"
        fi
        ;;
    *)
        part "$target"
        row "$target"
        ;;
    esac
done
[ -z "$group" ] || wait "$group"
for target in "${aside[@]}"; do
    cat "$work/$target.said" 2>/dev/null
    row "$target"
done
group=''

printf '\n##### minutes by part, %s\n%s' "$(git rev-parse --short HEAD)" "$table"
awk -v s="$SECONDS" 'BEGIN { printf "%6.1f min  in all\n\n", s / 60 }'
read -r passed bad skipped < <(tests/sum.sh "$ASMP_COUNTS")
# A part that failed without a failed test (formatting, a build) counts as one.
[ "$failed" = 0 ] || [ "$bad" != 0 ] || bad=$failed
printf '%s passed, %s failed, %s skipped\n' "$passed" "$bad" "$skipped"
[ "$failed" = 0 ] && [ "$bad" = 0 ]
