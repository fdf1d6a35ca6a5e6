#!/bin/bash
# Runs the privileged tests in a guest of each kernel: `test.sh [KERNEL[:KIND]...] [-- FILTER]`.
#
# Problem:  tests that change CPUs, IRQs and cgroups may run only in a guest, on more than one kernel, and
#           what a guest cannot do must be counted and not pass.
# Approach: build the binaries once, hand them to one guest a kernel, let the test runner there print its
#           own lines, and add the skipped ones up at the end.
# KIND is bare (default), systemd, plain (bare, booted without any parameter of ours), or smt (plain with two threads a core).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")

guests=() filter=()
while [ $# -gt 0 ]; do
    case $1 in
    --) shift; filter=("$@"); break ;;
    *) guests+=("$1"); shift ;;
    esac
done
[ ${#guests[@]} -gt 0 ] || guests=(sid-rt:bare trixie-rt:bare backports-rt:bare sid:bare sid-rt:systemd sid-rt:plain sid:smt)

share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
cd "$top"
target=${CARGO_TARGET_DIR:-target}
cargo build --release --quiet -p asmp -p asmp-rt-c
cargo build --release --quiet -p asmp-rt -p asmp-shield --examples
cp "$target"/release/{asmp,asmp-rtf} "$target"/release/examples/{in_partition,containment,create} "$share"
runner=$(cargo test --release --no-run --message-format=json -p asmp --test guest 2>/dev/null |
    sed -n 's/.*"name":"guest".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
cp "$runner" "$share/guest-tests"
cc -O2 -static -Wall -o "$share/bare-writes" "$here/bare-writes.c"

# What a guest is for, unless a filter says what to run: the kills, of which there are many, on one kernel
# of each series, as the devices; programs that enter by themselves also under systemd; the cost of an address
# space on one kernel that has timerlat and one that has not; faults of peers where the kernel serves a thread's
# timer on its own CPU; two threads a core on their own. Timers that move are counted on one of each series, too.
chosen() {
    [ ${#filter[@]} = 0 ] || { printf '%s\n' "${filter[@]}"; return; }
    case $1 in
    *:smt) printf '%s\n' smt: ;;
    *:plain) printf '%s\n' contained: ;;
    sid-rt:bare) printf '%s\n' --skip smt: --skip contained: ;;
    trixie-rt:bare) printf '%s\n' --skip smt: --skip contained: --skip 'measure spaces' ;;
    *:systemd) printf '%s\n' --skip smt: --skip contained: --skip killed --skip uio: --skip device: --skip 'measure spaces' --skip sleeper ;;
    sid:bare) printf '%s\n' --skip smt: --skip contained: --skip killed --skip uio: --skip device: --skip enter: --skip sleeper ;;
    *) printf '%s\n' --skip smt: --skip contained: --skip killed --skip uio: --skip device: --skip enter: --skip 'measure spaces' --skip sleeper ;;
    esac
}

# A PCI device that interrupts when it is told to, where this QEMU has it.
device=()
! qemu-system-x86_64 -device help 2>/dev/null | grep '"edu"' >/dev/null || device=(--device edu)

# The tests of one guest, to its log.
run_guest() {
    "$here/lab.sh" --kernel "$kernel" "${boot[@]}" "${device[@]}" --share "$share" --timeout 1500 -- \
        env ASMP_LAB_GUEST=1 ASMP_BINARY=/share/asmp ASMP_RTF=/share/asmp-rtf ASMP_BARE_WRITES=/share/bare-writes \
        ASMP_RT_EXAMPLES=/share \
        /share/guest-tests --test-threads 1 "${tests[@]}" | tee "$log"
}

skipped=0 failed=0 again=0
for guest in "${guests[@]}"; do
    [ "$guest" != "${guest%%:*}" ] || guest=$guest:bare
    kernel=${guest%%:*} kind=${guest#*:}
    case $kind in
    smt) boot=(--smt) ;;
    plain) boot=() ;;
    *) boot=(--init "$kind" --append 'nohz_full=1-3 rcu_nocbs=1-3') ;;
    esac
    mapfile -t tests < <(chosen "$guest")
    printf '\n=== %s, %s ===\n' "$kernel" "$kind"
    log=$share/$kernel-$kind.log
    code=0
    run_guest || code=$?
    if [ "$code" = 123 ]; then
        printf '\nthe emulator kept a breakpoint (Oops: int3) and the kernel died of it: %s, %s is run once more, whole\n' "$kernel" "$kind"
        again=$((again + 1)) code=0
        run_guest || code=$?
    fi
    [ "$code" = 0 ] || failed=$((failed + 1))
    here_skipped=$(grep -c '^skipped: ' "$log" || true)
    skipped=$((skipped + here_skipped))
done
printf '\n%s guests, %s with failures, %s tests skipped with their reason, %s guests run again after Oops: int3\n' \
    "${#guests[@]}" "$failed" "$skipped" "$again"
[ "$failed" = 0 ]
