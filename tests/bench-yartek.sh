#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The kernel yartek beside FreeRTOS and RTIC 2 on one board in QEMU, mps2-an385: instructions and
# bytes, as a table. bench/yartek/measure.h says how they are counted.
# FREERTOS=DIR: the sources of FreeRTOS-Kernel; without them its column is empty.
# Exits with 1 if ours cannot be measured, if two runs differ, or if a goal is missed: an interrupt
# reaches our service in fewer instructions than the task of FreeRTOS, and our image is smaller.
set -euo pipefail
freertos=${FREERTOS:+$(readlink -m "$FREERTOS")}
cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=vm/lib.sh
. tests/vm/lib.sh
out=$(readlink -m "${CARGO_TARGET_DIR:-target}")/bench-yartek
bench=bench/yartek
target=thumbv7m-none-eabi
warnings=(-Wall -Wextra -Wconversion -Werror)
rm -rf "$out"/*.{elf,txt}
mkdir -p "$out/libc"

# A recording is not wanted: it keeps the emulator's clock exact (AT_ONCE in
# crates/yartek/src/tools.rs).
icount=shift=10,sleep=off,rr=record,rrfile=/dev/null

# run NAME: the figures of NAME.elf, in NAME.txt.
run() {
    local again
    for again in '' .again; do
        timeout 600 qemu-system-arm -M mps2-an385 -semihosting -icount "$icount" \
            -display none -monitor none -serial stdio -kernel "$out/$1.elf" \
            </dev/null >"$out/$1.txt$again" || die "$1: the guest has failed"
    done
    awk '$1 != "m" || NF != 6 || $3 < 1000 { exit 1 } END { if (NR != 4) exit 1 }' "$out/$1.txt" ||
        die "$1: the guest has not measured all: $out/$1.txt"
    cmp "$out/$1.txt" "$out/$1.txt.again" || die "$1: two runs differ"
}

# image NAME TABLE MAIN: ours.
image() {
    ASMP_CI=1 cargo run --quiet -p asmp -- yartek build "$bench/ours/$2.toml" \
        --app "$bench/ours/$3.c" -o "$out/$1.elf" >/dev/null
}

# image_of_freertos NAME FLAG...
image_of_freertos() {
    local name=$1 port=$freertos/portable/GCC/ARM_CM3 objects=() file
    shift
    local flags=(-mcpu=cortex-m3 -mthumb -std=gnu11 -Os -g -ffreestanding -ffunction-sections
        -fdata-sections -fno-tree-loop-distribute-patterns "$@" -isystem "$out/libc"
        -isystem "$freertos/include" -isystem "$port" -I"$bench/freertos")
    for file in "$bench/freertos/main.c" yartek/kernel/memory.c "$freertos"/{tasks,list}.c \
        "$port/port.c"; do
        objects+=("$out/${file##*/}.o")
        case $file in
        "$freertos"/*) arm-none-eabi-gcc "${flags[@]}" -w -c "$file" -o "${objects[-1]}" ;;
        *) arm-none-eabi-gcc "${flags[@]}" "${warnings[@]}" -c "$file" -o "${objects[-1]}" ;;
        esac
    done
    arm-none-eabi-gcc -mcpu=cortex-m3 -mthumb -nostdlib -static \
        -Wl,--gc-sections,--build-id=none,-z,noexecstack,--no-warn-rwx-segments \
        -T yartek/port/mps2-an385/link.ld "${objects[@]}" -o "$out/$name.elf"
}

# image_of_rtic NAME FLAG...
image_of_rtic() {
    local name=$1
    shift
    cargo build --quiet --release --locked --manifest-path "$bench/rtic/Cargo.toml" \
        --target "$target" --target-dir "$out/rtic" "$@"
    cp "$out/rtic/$target/release/rtic-bench" "$out/$name.elf"
}

# Says what it cannot have.
without_rtic() {
    local said
    if ! said=$(rustup target add "$target" 2>&1); then
        echo "no Rust for $target: ${said##*$'\n'}"
        return
    fi
    said=$(cargo fetch --quiet --locked --manifest-path "$bench/rtic/Cargo.toml" \
        --target "$target" 2>&1) || echo "its crates cannot be fetched: ${said##*$'\n'}"
}

# cell SYSTEM NAME: one number if all samples are equal, else the least, the mean and the most.
cell() {
    [ -f "$out/$1.txt" ] || { echo -; return; }
    awk -v name="$2" '$2 == name {
        if ($4 == $6) print $4; else printf "%d %.1f %d\n", $4, $5 / $3, $6
    }' "$out/$1.txt"
}

# bytes SYSTEM flash|ram|stacks: of the image without measurements.
bytes() {
    local image=$out/$1-small.elf
    [ -f "$image" ] || { echo -; return; }
    local stacks text data bss
    read -r text data bss _ < <(arm-none-eabi-size "$image" | tail -n 1)
    # Those of its tasks; the processor's own is not in it.
    stacks=$(arm-none-eabi-nm -S "$image" |
        awk 'tolower($4) ~ /stack/ && tolower($3) == "b" { print "0x" $2 }' | paste -sd+)
    case $2 in
    flash) echo $((text + data)) ;;
    ram) echo $((data + bss - (${stacks:-0}))) ;;
    stacks) echo $((${stacks:-0})) ;;
    esac
}

tests/yartek.sh install || die "ours cannot be measured: a compiler or QEMU is missing"
say "ours"
image yartek set main
image yartek-arrive arrive arrive
image yartek-small small small
run yartek
run yartek-arrive

version_of_freertos=
if [ -z "$freertos" ]; then
    echo "skipped: FreeRTOS: FREERTOS=DIR has to name the sources of FreeRTOS-Kernel"
elif [ ! -f "$freertos/tasks.c" ] || [ ! -f "$freertos/portable/GCC/ARM_CM3/port.c" ]; then
    die "$freertos: no tasks.c or no portable/GCC/ARM_CM3/port.c is there: FREERTOS has to name" \
        "the sources of FreeRTOS-Kernel"
else
    version_of_freertos=$(sed -n 's/^#define tskKERNEL_VERSION_NUMBER *"\(.*\)"/\1/p' \
        "$freertos/include/task.h")
    say "FreeRTOS $version_of_freertos"
    # What it includes of a library that the compiler's package lacks.
    printf '#include <stddef.h>\nvoid *memcpy(void *, const void *, size_t);\n%s\n' \
        'void *memset(void *, int, size_t);' >"$out/libc/string.h"
    : >"$out/libc/stdlib.h"
    image_of_freertos freertos
    image_of_freertos freertos-small -DSMALL
    run freertos
fi

reason=$(without_rtic)
if [ -n "$reason" ]; then
    echo "skipped: RTIC: $reason"
    [ -z "${ASMP_CI:-}" ] || exit 1
else
    say "RTIC"
    image_of_rtic rtic
    image_of_rtic rtic-small --features small
    run rtic
fi
version_of_rtic=$(sed -n '/^name = "rtic"$/ { n; s/version = "\(.*\)"/\1/p }' \
    "$bench/rtic/Cargo.lock")

# row TEXT NAME [SYSTEM-OF-OURS]
row() {
    local of_others=("$(cell freertos "$2")" "$(cell rtic "$2")")
    [ $# = 2 ] || of_others=(- -)
    echo "| $1 | $(cell "${3:-yartek}" "$2") | ${of_others[0]} | ${of_others[1]} |"
}

echo "$(qemu-system-arm --version | head -n 1), $(arm-none-eabi-gcc --version | head -n 1)"
echo
echo "| | yartek | FreeRTOS $version_of_freertos | RTIC $version_of_rtic |"
echo "|---|---|---|---|"
row "interrupt of a timer to its task (ours: a service), CPU asleep" asleep
row "the same, made pending by the background" pending
row "interrupt of a timer to its job with a deadline, CPU asleep" asleep yartek-arrive
row "the same, made pending by the background" pending yartek-arrive
row "start of a period to its task" periodic
row "interrupt to the first statement of its handler" handler
for what in flash ram stacks; do
    case $what in
    flash) text="flash, bytes" ;;
    ram) text="RAM without stacks, bytes" ;;
    stacks) text="stacks of tasks, bytes; beside the processor's own" ;;
    esac
    echo "| $text | $(bytes yartek $what) | $(bytes freertos $what) | $(bytes rtic $what) |"
done

# fewer WHAT OURS THEIRS
status=0
fewer() {
    [ "$2" -lt "$3" ] || { say "goal missed: $1: ours $2, FreeRTOS $3"; status=1; }
}
sum() { awk -v name="$2" '$2 == name { print $5 }' "$out/$1.txt"; }
if [ -n "$freertos" ]; then
    for what in asleep pending; do
        fewer "$what, sum of all samples" "$(sum yartek $what)" "$(sum freertos $what)"
    done
    fewer "flash" "$(bytes yartek flash)" "$(bytes freertos flash)"
fi
exit $status
