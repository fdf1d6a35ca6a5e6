#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What others gain and lose on shared CPUs, docs/measurements/sharing.md: `bench-others.sh [ROUNDS
# [WORKLOAD...]]`. In one guest, in turns: no partition, a shared one, an isolated one.
# KERNEL: sid (default), sid-rt. CPUS: 4 (default) or another even number; half is the partition.
#
# Problem:  a whole kernel build is too much for an emulator.
# Approach: the workload `compile` is the kernel's own compiler calls for some files of its lib/,
#           which a `make tinyconfig` on this machine gives, and their sources.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
# shellcheck source=lib.sh
. "$here/lib.sh"

kernel=${KERNEL:-sid} cpus=${CPUS:-4}
[ $# -gt 0 ] || set -- 3
linux='linux-source-6.12'
files=(argv_split bcd bsearch cmdline ctype kasprintf list_sort sort)

# sources DIR: these files, the headers that they include, and a Makefile.
sources() {
    local dir=$1 tree=$1/tree/$linux name tool missing='' objects=("${files[@]/#/lib/}")
    objects=("${objects[@]/%/.o}")
    for tool in flex bison bc xz; do command -v "$tool" >/dev/null || missing+=" $tool"; done
    [ -z "$missing" ] ||
        as_root apt-get -qq install -y --no-install-recommends flex bison bc xz-utils >/dev/null
    private_apt amd64 trixie
    mkdir -p "$dir/tree" "$dir/linux"
    (cd "$dir" && apt-get "${APT[@]}" download $linux) >&2
    dpkg-deb -x "$dir"/$linux*.deb "$dir"
    tar -xf "$dir/usr/src/$linux.tar.xz" -C "$dir/tree"
    make -s -C "$tree" tinyconfig >/dev/null
    make -s -C "$tree" "${objects[@]}" >&2
    {
        echo "all: ${objects[*]}"
        for name in "${files[@]}"; do
            printf 'lib/%s.o:\n\t' "$name"
            sed -n 's/^savedcmd_[^ ]* := //p' "$tree/lib/.$name.o.cmd"
        done
    } >"$dir/linux/Makefile"
    # The first is no dependency in their eyes, for it changes too often.
    {
        echo include/generated/autoconf.h
        for name in "${files[@]}"; do
            sed -n 's/^source_[^ ]* := //p; s/^  \([a-z][^ ]*\).*/\1/p' "$tree/lib/.$name.o.cmd"
        done
    } | sort -u | tar -c -C "$tree" -T - | tar -x -C "$dir/linux"
    tar -c -C "$dir" linux
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
share=$dir/share
mkdir "$share"
cd "$top"
artis=$(tests/artis.sh)
[ -n "$artis" ] || exit 0
cargo build --release --quiet -p asmp
strip -o "$share/asmp" "${CARGO_TARGET_DIR:-target}/release/asmp"
strip -o "$share/asmp-artis" "$artis"
gcc -O2 -static -Wall -o "$share/load" "$here/artis/load.c"
# By a name of its own, which pgrep finds.
cp "$share/load" "$share/rt0"
cp "$here/bench-others-in-guest.sh" "$share"

sum=$({ declare -f sources; echo "${files[@]}"; } | sha256sum | cut -c1-12)
archive=$CACHE/sources/$linux-lib-$sum.tar
if [ ! -e "$archive" ]; then
    say "fetching $linux"
    mkdir -p "${archive%/*}"
    # In a process of its own, whose end lets go of apt's lock.
    (sources "$dir/linux") >"$archive.new"
    mv "$archive.new" "$archive"
fi
tar -xf "$archive" -C "$share"

# Of all CPU time of this machine, in ticks: the part that was used or taken away, and all.
ticks() {
    awk '$1 == "cpu" { used = $2 + $3 + $4 + $7 + $8 + $9; print used, used + $5 + $6 }' /proc/stat
}

before=$(ticks) TIMEFORMAT='%U %S'
exec 3>&2
{
    time ASMP_IMAGE_PACKAGES='fio gcc libc6-dev make' \
        "$here/lab.sh" --kernel "$kernel" --cpus "$cpus" --share "$share" --timeout 3000 \
        --append "nohz_full=1-$((cpus - 1)) rcu_nocbs=1-$((cpus - 1)) preempt=full ${APPEND:-}" -- \
        bash /share/bench-others-in-guest.sh "$@" 2>&3
} 2>"$dir/time" || status=$?
# What others use here slows CPUs of the guest at any instant, which no program in it can see.
echo "$before $(ticks) $(tail -n 1 "$dir/time") $(getconf CLK_TCK)" | awk '{
    printf "of this machine: %d %% the guest, %d %% others\n", 100 * ($5 + $6) * $7 / ($4 - $2),
        100 * ($3 - $1 - ($5 + $6) * $7) / ($4 - $2) }'
exit "${status:-0}"
