#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# accel.sh KERNEL KERNEL_DIR: prints the accelerator that this machine's guests with that kernel
# get, `kvm` or `tcg`.
#
# Problem:  /dev/kvm may be there and not able to run a guest: on some hosts it starts firmware and
#           then stops inside the kernel's decompressor, or QEMU ends when it sets the virtual CPU's
#           registers.
# Approach: boot the lab's kernel under KVM without a root disk, until it panics for want of one; a
#           kernel that comes so far works. The answer is kept until this machine boots again or
#           QEMU or the kernel changes. ASMP_ACCEL=tcg or kvm answers without asking.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=lib.sh
. "$here/lib.sh"
architecture "$1"
kernel_dir=$2
probe_seconds=20

# Another architecture's programs are emulated, whatever was asked for.
if [ "$ARCH" != "$(own_architecture)" ]; then
    echo tcg
    exit
fi
case ${ASMP_ACCEL:-} in
tcg | kvm) echo "$ASMP_ACCEL"; exit ;;
'') ;;
*) die "ASMP_ACCEL is tcg or kvm, not $ASMP_ACCEL" ;;
esac
if [ ! -r /dev/kvm ] || [ ! -w /dev/kvm ]; then
    echo tcg
    exit
fi

# Prints why KVM does not do, or nothing.
probe() {
    local dir qemu deadline panicked='Kernel panic - not syncing: VFS'
    dir=$(mktemp -d)
    # shellcheck disable=SC2064 # the directory of now
    trap "rm -rf '$dir'" EXIT
    : >"$dir/console"
    "$QEMU" -nodefaults -no-user-config -no-reboot -display none \
        "${MACHINE[@]}" -m 512M -smp 4 -accel kvm \
        -kernel "$kernel_dir/vmlinuz" \
        -append "$BOOT $BOOT_CLOCK panic=-1" \
        -chardev "file,id=console,path=$dir/console" "${CONSOLE[@]}" \
        </dev/null >"$dir/qemu.log" 2>&1 &
    qemu=$!
    deadline=$((SECONDS + probe_seconds))
    while kill -0 "$qemu" 2>/dev/null && [ "$SECONDS" -lt "$deadline" ]; do
        # QEMU does not end when KVM gives up, it pauses.
        if grep -q -e "$panicked" -e 'KVM internal error' "$dir/console" "$dir/qemu.log"; then
            break
        fi
        sleep 0.1
    done
    kill -KILL "$qemu" 2>/dev/null || true
    wait "$qemu" 2>/dev/null || true
    grep -q -e "$panicked" "$dir/console" ||
        grep -m1 -e 'error' "$dir/qemu.log" || echo "the guest did not boot in $probe_seconds s"
}

key=$(cat /proc/sys/kernel/random/boot_id "$0" <("$QEMU" --version) \
    "$kernel_dir/release" | sha256sum | cut -c1-12)
# One file for each kernel, replaced whole: guests of two kernels may start at once.
kept=$CACHE/accel-$1

# Prints what is kept, if it was found by this key.
kept_answer() {
    local answer_key='' answer=''
    [ ! -e "$kept" ] || read -r answer_key answer <"$kept"
    [ "$answer_key" != "$key" ] || echo "$answer"
}

answer=$(kept_answer)
if [ -z "$answer" ]; then
    locked accel
    answer=$(kept_answer)
fi
if [ -z "$answer" ]; then
    why=$(probe)
    if [ -z "$why" ]; then
        say "/dev/kvm runs guests"
        answer=kvm
    else
        say "/dev/kvm is there and runs no guest ($why): emulation"
        answer=tcg
    fi
    echo "$key $answer" >"$kept.new"
    mv "$kept.new" "$kept"
fi
echo "$answer"
