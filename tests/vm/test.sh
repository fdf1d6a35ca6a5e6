#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs the privileged tests in guests: `test.sh [KERNEL[@ARCH][:BOOT]...] [-- FILTER]`; without
# guests, in those of the tier (ASMP_TIER: ci or nightly) that the tests' own binary names.
#
# Problem:  tests that change CPUs, IRQs and cgroups may run only in a guest, on more than one
#           kernel, and what a guest cannot do must be counted and not pass.
# Approach: take the binaries of `cargo test`'s build, hand them to some guests at a time, let the
#           test runner there choose what that guest is for and print its own lines, and add up at
#           the end.
# BOOT is bare (default), large (bare, with 24 CPUs), systemd, persistent (systemd, with our
# services enabled and a partition in /etc/asmp), plain (bare, booted without any parameter of
# ours), smt (plain with two threads a core), watched (bare, without tsc=reliable), locked or blind
# (bare, with CPU 3 isolated at boot, and locked down or without debugfs). ASMP_GUESTS_AT_ONCE: how
# many run side by side (default: one for each CPU). ASMP_GUEST_SECONDS: how long one may take
# (4200; nightly 10000).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
# shellcheck source=lib.sh
. "$here/lib.sh"
export ASMP_TIER=${ASMP_TIER:-ci}

guests=() filter=()
while [ $# -gt 0 ]; do
    case $1 in
    --) shift; filter=("$@"); break ;;
    *:*) guests+=("$1"); shift ;;
    *) guests+=("$1:bare"); shift ;;
    esac
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$top"

# built ARCH NAME: a test's or example's program.
built() {
    sed -n 's/.*"name":"'"$2"'".*"executable":"\([^"]*\)".*/\1/p' "$work/build@$1" | tail -n 1
}

# programs GUEST: builds what the guests of that architecture run, once, in share@ARCH.
programs() {
    local share debug program
    architecture "${1%%:*}"
    share=$work/share@$ARCH debug=${CARGO_TARGET_DIR:-target}/${TARGET:+$TARGET/}debug
    [ ! -d "$share" ] || return 0
    mkdir "$share"
    "$here/setup.sh" "$ARCH"
    cargo test "${BUILD[@]}" --no-run --quiet --message-format=json >"$work/build@$ARCH"
    # Without what only a debugger reads: a share is copied for each guest.
    for program in asmp $PROGRAMS; do
        "${CROSS}strip" -o "$share/${program##*/}" "$debug/$program"
    done
    for program in guest containment stranger; do
        [ -z "$(built "$ARCH" $program)" ] ||
            "${CROSS}strip" -o "$share/$program" "$(built "$ARCH" $program)"
    done
    "${CROSS}gcc" -O2 -static -Wall -o "$share/bare-writes" "$here/bare-writes.c"
    # Of this machine's own architecture alone.
    [ -n "$TARGET" ] || program=$(tests/artis.sh)
    [ -n "$TARGET" ] || [ -z "$program" ] || strip -o "$share/asmp-artis" "$program"
}

# As `make install` and `systemctl enable` leave /etc, with programs of the share.
installed_etc() {
    local units=$work/etc/systemd/system unit
    mkdir -p "$work/etc/asmp" "$units/multi-user.target.wants"
    for unit in cli/asmp daemon/asmpd; do
        sed 's|/usr/local/bin|/share|' "crates/$unit.service" >"$units/${unit#*/}.service"
        ln -s "../${unit#*/}.service" "$units/multi-user.target.wants/"
    done
    printf '[[partition]]\nname = "motion"\ncpus = "3"\n' >"$work/etc/asmp/motion.toml"
}

if [ ${#guests[@]} = 0 ]; then
    # This machine's own tests name them.
    programs "kernel@$(own_architecture)"
    mapfile -t guests < <("$(built "$ARCH" guest)" guests "$ASMP_TIER")
fi
for guest in "${guests[@]}"; do programs "$guest"; done
installed_etc

# Nightly a guest has hundreds of random sequences. A test that hangs ends its guest much earlier:
# crates/cli/tests/guest/watchdog.rs.
usual_seconds=4200
[ "$ASMP_TIER" != nightly ] || usual_seconds=10000

# ended RESULT LOG: the names of the tests that have ended with `ok`, or with `FAILED`. A test may
# print before that.
ended() {
    awk -v result="$1" '
        /^test .* \.\.\./ { name = $0; sub(/^test /, "", name); sub(/ +\.\.\. .*/, "", name) }
        name != "" && /(ok|FAILED)$/ { if ($0 ~ result "$") print name; name = "" }' "$2"
}

# The tests of `$1`, a guest, but for those that have ended in it before.
run_guest() {
    local skip=() name
    if [ ${#filter[@]} = 0 ] && [ -s "$work/$1.log" ]; then
        while IFS= read -r name; do skip+=(--skip "$name"); done \
            < <(ended ok "$work/$1.log"; ended FAILED "$work/$1.log")
        skip+=(--exact)
    fi
    local boot=() device=() share candidates='nohz_full=1-3 rcu_nocbs=1-3'
    architecture "${1%%:*}"
    share=$work/share@$ARCH
    # A PCI device that interrupts when it is told to, where this QEMU has it.
    ! "$QEMU" -device help 2>/dev/null | grep '"edu"' >/dev/null || device=(--device edu)
    case ${1#*:} in
    smt) boot=(--smt) ;;
    plain) ;;
    watched) boot=(--watch-clock --append "$candidates") ;;
    locked) boot=(--append "$candidates isolcpus=3 lockdown=integrity") ;;
    persistent) boot=(--init systemd --etc "$work/etc" --append "$candidates") ;;
    large) boot=(--cpus 24 --mem 4G --append 'nohz_full=1-23 rcu_nocbs=1-23') ;;
    blind) boot=(--append "$candidates isolcpus=managed_irq,domain,3 debugfs=off") ;;
    *) boot=(--init "${1#*:}" --append "$candidates") ;;
    esac
    "$here/lab.sh" --kernel "${1%%:*}" "${boot[@]}" "${device[@]}" --share "$share" \
        --timeout "${ASMP_GUEST_SECONDS:-$usual_seconds}" --verbose -- \
        env ASMP_GUEST="$1" ASMP_TIER="$ASMP_TIER" ASMP_CI="${ASMP_CI:-}" ASMP_BINARY=/share/asmp \
        ASMP_RANDOM_SEED="${ASMP_RANDOM_SEED:-}" \
        ASMP_RANDOM_SEQUENCES="${ASMP_RANDOM_SEQUENCES:-}" \
        ASMP_HANDS_MINUTES="${ASMP_HANDS_MINUTES:-}" \
        ASMP_SOAK_MINUTES="${ASMP_SOAK_MINUTES:-}" \
        ASMP_FILE_WRITES="${ASMP_FILE_WRITES:-}" \
        ASMP_RTF=/share/asmp-rtf ASMP_BARE_WRITES=/share/bare-writes ASMP_RT_EXAMPLES=/share \
        /share/guest --test-threads 1 "${skip[@]}" "${filter[@]}" 2>&1
}

# One guest from start to end; leaves NAME.code and NAME.seconds.
one_guest() {
    local code=0 started=$SECONDS
    echo
    echo "=== $1 ==="
    # Of the emulator, which says how idle the two cores were.
    TIMEFORMAT="$1: %R s, of CPU %U s and %S s in the host's kernel"
    time run_guest "$1" || code=$?
    for _ in 1 2; do
        [ "$code" = 123 ] || break
        echo
        echo "the emulator kept a breakpoint and the kernel died of it (Oops: int3)"
        echo "$1: boots again for the tests that have not ended"
        : >"$work/$1.again"
        [ ${#filter[@]} != 0 ] || ended ok "$work/$1.log" >"$work/$1.again"
        code=0
        run_guest "$1" || code=$?
    done
    [ "$code" != 0 ] || [ -z "$(ended FAILED "$work/$1.log")" ] || code=101
    [ "$code" = 0 ] || echo "$1: exit status $code"
    echo "$code" >"$work/$1.code"
    echo $((SECONDS - started)) >"$work/$1.seconds"
}

# Side by side, guests print when they are done.
printed_whole() {
    local lock
    one_guest "$1" >"$work/$1.log" 2>&1
    exec {lock}>"$work/printed"
    flock "$lock"
    cat "$work/$1.log"
}

at_once=${ASMP_GUESTS_AT_ONCE:-$(nproc)}
[ "$at_once" -ge 1 ] || at_once=1
for guest in "${guests[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n || true; done
    if [ "$at_once" = 1 ]; then
        one_guest "$guest" 2>&1 | tee "$work/$guest.log"
    else
        printed_whole "$guest" 2>&1 &
    fi
done
wait

echo
failed=0 again=0
for guest in "${guests[@]}"; do
    # What the test runner says last; a guest that died says nothing.
    line=$(grep "^$guest: .* passed, " "$work/$guest.log" | tail -n 1 || true)
    # It does not count those that ended before it died. What failed there has its exit status.
    if [ -n "$line" ] && [ -s "$work/$guest.again" ]; then
        before=$(wc -l <"$work/$guest.again")
        line=$(awk -v before="$before" '{ $2 += before; print }' <<<"$line")
    fi
    tenths=$(($(cat "$work/$guest.seconds") * 10 / 60))
    printf '%5.1f min  %s\n' "${tenths}e-1" "${line:-$guest: died}"
    if [ "$(cat "$work/$guest.code")" != 0 ]; then
        failed=$((failed + 1))
        # By name here too: a log may be kept by its end alone.
        {
            echo "$guest: exit status $(cat "$work/$guest.code")"
            grep -aE '^---- .* ----$|: not done after [0-9]+ s' "$work/$guest.log" || true
        } | tee -a "${ASMP_FAILED:-/dev/null}"
    fi
    [ ! -e "$work/$guest.again" ] || again=$((again + 1))
    echo "$line" >>"$work/lines"
done
echo "${#guests[@]} guests, $failed with failures, $again run again after Oops: int3"
read -r passed bad skipped < <("$top/tests/sum.sh" "$work/lines")
# A guest that died counts as one.
[ "$failed" = 0 ] || [ "$bad" != 0 ] || bad=$failed
echo "vm: $passed passed, $bad failed, $skipped skipped" | tee -a "${ASMP_COUNTS:-/dev/null}"
[ "$failed" = 0 ]
