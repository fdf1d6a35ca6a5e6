#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# yartek-proof.sh [PROOF...|explored]: proves the contracts of yartek's kernel (yartek/proof), then
# breaks the kernel in each way that mutants.txt lists, and asks whether the proof finds that. Nine
# minutes on two cores; `explored`, the proofs that do without CBMC: a minute.
#
# Problem:  a test runs some cases. That an interrupt comes between two given accesses to memory is
#           one case of millions.
# Approach: CBMC looks at all values of one step of the scheduler (K1). What levels share (K2, K3,
#           K4, K6, K7) is compiled with a call before each access to a volatile word, and run once
#           for each sequence of interrupts there. Modules (K8, K10) run once for each sequence of
#           calls.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
begun=0 skipped=0

has_cbmc() { tests/cbmc.sh cbmc --version >/dev/null 2>&1; }

# checked DIR FUNCTION OPTIONS...: by CBMC.
checked() {
    local dir=$1 function=$2
    shift 2
    tests/cbmc.sh cbmc -I "$dir/include" --no-standard-checks --bounds-check --pointer-check \
        --unwinding-assertions --unwind 9 --stop-on-fail "$@" --function "$function" \
        "$dir/proof/edf.c" 2>&1
}

# explored DIR SCENARIO FILE OPTIONS...: FILE is explored, both below DIR.
explored() {
    local dir=$1 scenario=$2 file=$3 out=$work/explored
    local flags=(-std=c11 -D_GNU_SOURCE -O2 -I "$dir/include" -I "$dir/kernel")
    shift 3
    # The model of a port calls what is static in it. Addresses of a board have 32 bits.
    gcc "${flags[@]}" -w -ffunction-sections -fsanitize=thread \
        --param tsan-distinguish-volatile=1 "$@" -c "$dir/$file" -o "$out.o"
    gcc "${flags[@]}" -Wall -Wextra -Werror "$@" -Wl,--gc-sections "$out.o" \
        "$dir/proof/$scenario.c" "$dir/proof/explore.c" -o "$out"
    "$out"
}

# at_random DIR SCENARIO FILE: FILE is called at random, a million times and more.
at_random() {
    local dir=$1
    gcc -std=c11 -D_GNU_SOURCE -O2 -I "$dir/include" -Wall -Wextra -Werror -DSTEPS=1000 \
        -fsanitize=address,undefined -fno-sanitize-recover=all \
        "$dir/$3" "$dir/proof/$2.c" "$dir/proof/random.c" -o "$work/random"
    "$work/random" 2>&1
}

# proof NAME DIR: proves the sources there; prints what was broken.
proof() {
    local dir=$2
    case $1 in
    begins | ended | arrived | next) checked "$dir" "$1" ;;
    skipping)
        checked "$dir" next -DCOUNT=2 -DSKIPS=true -DBITS=8 \
            --unwindset yk_edf_next.0:4,skip.0:4,skip.1:4
        ;;
    skipped) checked "$dir" skipped -DBITS=16 --unwindset skip.0:4,skip.1:4 ;;
    lines) explored "$dir" lines kernel/lines.c -Dstatic= ;;
    arrivals) explored "$dir" arrivals kernel/edf.c ;;
    heap) explored "$dir" heap modules/heap.c ;;
    ramdisk) explored "$dir" ramdisk modules/ramdisk.c -DYK_DISK_BLOCK=4 ;;
    random) at_random "$dir" ramdisk modules/ramdisk.c ;;
    serial)
        explored "$dir" serial proof/serial/code.c -Dstatic= -DYK_SERIAL_OUT=2 \
            -DMOST="$(sed -n 's/^most = \([0-9]*\)$/\1/p' "$dir/app/robot/robot.toml")"
        ;;
    ring | box) explored "$dir" "$1" "kernel/$1.c" ;;
    alarm-*) explored "$dir" alarm "proof/${1#alarm-}/clock.c" ;;
    *) explored "$dir" clock "proof/$1/clock.c" ;;
    esac
}

checked=(begins ended arrived next skipping skipped)
explored=(lines arrivals ring box serial heap ramdisk random)
for board in yartek/proof/*/clock.c; do
    board=$(basename "$(dirname "$board")")
    explored+=("$board" "alarm-$board")
done
case $* in
'') proofs=("${checked[@]}" "${explored[@]}") ;;
explored) proofs=("${explored[@]}") ;;
*) proofs=("$@") ;;
esac

# is_skipped PROOF: says so.
is_skipped() {
    local missing
    if [[ " ${checked[*]} " == *" $1 "* ]]; then
        ! has_cbmc || return 1
        missing='cbmc, which cannot be had from Debian trixie'
    else
        ! command -v gcc >/dev/null || return 1
        missing='gcc (apt-get install gcc)'
    fi
    [ -z "${ASMP_CI:-}" ] || { echo "$1: no $missing" >&2; exit 1; }
    echo "skipped: $1: no $missing"
    skipped=$((skipped + 1))
}

# As many at once as there are CPUs, and as memory takes: CBMC needs up to 4 GiB.
at_once=$(awk -v cpus="$(nproc)" '/^MemAvailable:/ {
    fit = int($2 / 1024 / 1024 / 4)
    print fit < 1 ? 1 : fit < cpus ? fit : cpus
}' /proc/meminfo)

# beside COMMAND ARGS...: begins it in the background, with a directory of its own, when there is
# room. What it prints comes whole.
beside() {
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n || true; done
    begun=$((begun + 1))
    mkdir "$work/$begun"
    {
        if said=$(work=$work/$begun "$@"); then touch "$work/$begun/good"; fi
        echo "$said"
    } &
}

# proved PROOF
proved() {
    local said began=$SECONDS
    if ! said=$(proof "$1" yartek); then
        printf 'BROKEN  %-12s\n%s\n' "$1" "$(tail -n 40 <<<"$said")"
        return 1
    fi
    printf 'proved  %-12s %4d s  %s\n' "$1" $((SECONDS - began)) "$(tail -n 1 <<<"$said")"
}

for name in "${proofs[@]}"; do
    is_skipped "$name" || beside proved "$name"
done

# mutant PROOF CONTRACT FILE CHANGE
mutant() {
    local said broken
    mkdir "$work/yartek"
    cp -r yartek/{app,include,kernel,modules,port,proof} "$work/yartek"
    perl -0pi -e "$4" "$work/yartek/$3"
    if cmp -s "yartek/$3" "$work/yartek/$3"; then
        echo "MISSED  $3: nothing fits $4"
        return 1
    fi
    if said=$(proof "$1" "$work/yartek"); then
        echo "MISSED  $3: $4: nothing was found"
        return 1
    fi
    broken=$(grep -Eom 1 'K[0-9]+ .*' <<<"$said" || true)
    if [[ $broken != "$2"* ]]; then
        printf 'MISSED  %s: %s: found "%s", not "%s"\n' "$3" "$4" "$broken" "$2"
        tail -n 5 <<<"$said"
        return 1
    fi
    printf 'found   %-12s %s\n' "$1" "$broken"
}

while IFS='|' read -r name contract file change; do
    name=${name%% *}
    # Lines of comments have `#` there.
    [[ -n $name && " ${proofs[*]} " == *" $name "* ]] || continue
    ! is_skipped "$name" || continue
    contract=$(sed 's/^ *//; s/ *$//' <<<"$contract")
    file=${file// /}
    beside mutant "$name" "$contract" "$file" "${change# }"
done <yartek/proof/mutants.txt

wait
# One that was killed is not good.
passed=$(find "$work" -name good | wc -l)
failed=$((begun - passed))

line="yartek-proof: $passed passed, $failed failed, $skipped skipped"
echo "$line"
[ -z "${ASMP_COUNTS:-}" ] || echo "$line" >>"$ASMP_COUNTS"
[ "$failed" = 0 ]
