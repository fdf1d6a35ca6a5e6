#!/bin/bash
# Runs the privileged tests in a guest of each kernel: `test.sh [KERNEL[:INIT]...] [-- FILTER]`.
#
# Problem:  tests that change CPUs, IRQs and cgroups may run only in a guest, on more than one kernel, and
#           what a guest cannot do must be counted and not pass.
# Approach: build the binaries once, hand them to one guest a kernel, let the test runner there print its
#           own lines, and add the skipped ones up at the end.
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
[ ${#guests[@]} -gt 0 ] || guests=(sid-rt:bare trixie-rt:bare backports-rt:bare sid:bare sid-rt:systemd)

share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
cd "$top"
cargo build --release --quiet -p asmp
cp target/release/asmp "$share/asmp"
tests=$(cargo test --release --no-run --message-format=json -p asmp --test guest 2>/dev/null |
    sed -n 's/.*"name":"guest".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
cp "$tests" "$share/guest-tests"
cc -O2 -static -Wall -o "$share/bare-writes" "$here/bare-writes.c"

# Two hundred kills take five minutes a guest: on the first kernel, unless a filter says what to run.
all=("${filter[@]}")
skipped=0 failed=0
for guest in "${guests[@]}"; do
    kernel=${guest%%:*} init=bare
    [ "$kernel" = "$guest" ] || init=${guest#*:}
    printf '\n=== %s, %s init ===\n' "$kernel" "$init"
    log=$share/$kernel-$init.log
    code=0
    "$here/lab.sh" --kernel "$kernel" --init "$init" --append 'nohz_full=1-3 rcu_nocbs=1-3' \
        --share "$share" --timeout 1500 -- env ASMP_LAB_GUEST=1 ASMP_BINARY=/share/asmp \
        ASMP_BARE_WRITES=/share/bare-writes /share/guest-tests --test-threads 1 "${filter[@]}" | tee "$log" || code=$?
    [ "$code" = 0 ] || failed=$((failed + 1))
    [ ${#all[@]} -gt 0 ] || filter=(--skip killed)
    here_skipped=$(grep -c '^skipped: ' "$log" || true)
    skipped=$((skipped + here_skipped))
done
printf '\n%s guests, %s with failures, %s tests skipped with their reason\n' "${#guests[@]}" "$failed" "$skipped"
[ "$failed" = 0 ]
