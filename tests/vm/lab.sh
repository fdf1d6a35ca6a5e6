#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# lab.sh [OPTIONS] [-- COMMAND ARGS...]: runs COMMAND as root in a fresh guest.
#
# Problem:  asmp changes how a whole machine runs; only a machine of its own,
#           thrown away afterwards, can test it, and the test must look like a
#           local command: its output, its exit status, nothing left behind.
# Approach: one QEMU guest a run (KVM where it works, else pure emulation: accel.sh),
#           booted with -kernel from cached files whose changes are thrown away. The lab's guest
#           files and the command travel in a second initramfs archive; output, exit
#           status and results come back over virtio-serial ports. Only a boot
#           that never got ready is tried again, a command never is. Each byte
#           that the command writes to port 5 stops the whole machine for 0.3 s.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=lib.sh
. "$here/lib.sh"

usage() {
    cat <<'END'
usage: lab.sh [OPTIONS] [-- COMMAND ARGS...]     (no COMMAND: a shell)
  --kernel NAME         sid-rt (default), sid, backports-rt, trixie-rt, trixie;
                        NAME@arm64: Debian's kernel and programs for that, emulated
  --init bare|systemd   what PID 1 is (default bare)
  --cpus N              default 4
  --smt                 two threads a core
  --mem SIZE            default 2G
  --append 'PARAMS'     kernel boot parameters
  --share DIR           a copy of DIR at /share in the guest
  --out DIR             what the command leaves in /out is copied to DIR
  --etc DIR             what is in DIR is laid over the guest's /etc before PID 1 starts
  --device NAME         one more QEMU device (edu)
  --plugin FILE,ARGS    a plugin of QEMU's emulation
  --timeout S           ends the guest S seconds after ready: 124 (default 600)
  --tcg                 emulation also where KVM works
  --watch-clock         without tsc=reliable: the kernel watches its clock as on other machines
  --icount              deterministic time, one emulating thread (emulation)
  --console FILE        keep the kernel's console here
  --verbose             say how long the boot took and where the console is
exits with COMMAND's status; 123: the emulator's Oops: int3; 124: timed out; 125: the lab failed
END
}

fail() { say "$*"; exit 125; }

kernel=sid-rt init=bare cpus=4 smt='' mem=2G append='' share='' out='' etc='' device='' timeout=600
plugin='' accel='' icount='' watch='' console='' verbose='' command=()
boot_tries=3 boot_seconds=120 stopped=0

options() {
    while [ $# -gt 0 ]; do
        case $1 in
        --smt) smt=yes ;;
        --tcg) accel=tcg ;;
        --icount) icount=yes accel=tcg ;;
        --watch-clock) watch=yes ;;
        --verbose) verbose=yes ;;
        --help) usage; exit ;;
        --) shift; command=("$@"); break ;;
        --kernel | --init | --cpus | --mem | --append | --share | --out | --etc | --device | \
            --plugin | --timeout | --console)
            [ $# -gt 1 ] || fail "$1 needs a value"
            printf -v "${1#--}" '%s' "$2"
            shift
            ;;
        *) usage >&2; exit 125 ;;
        esac
        shift
    done
    [ ${#command[@]} -gt 0 ] || [ -t 0 ] || fail "no command, and no terminal for a shell"
    [ -z "$share" ] || [ -d "$share" ] || fail "no directory $share to share"
    architecture "$kernel"
    case $init in bare | systemd) ;; *) fail "--init is bare or systemd" ;; esac
}

# --- the files of one run -----------------------------------------------------

# A run's directory, and its lock held as long as anything of the run lives. One
# whose lock is free was left behind by a killed run.
run_directory() {
    local old all lock
    mkdir -p "$CACHE/runs" "$CACHE/logs"
    find "$CACHE/logs" -type f -mtime +2 -delete
    exec {all}>"$CACHE/runs.lock"
    flock "$all"
    for old in "$CACHE"/runs/*/; do
        [ ! -d "$old" ] || ! flock -n "$old" true || rm -rf "$old"
    done
    run=$(mktemp -d "$CACHE/runs/XXXXXX")
    exec {lock}<"$run"
    flock "$lock"
    exec {all}>&-
    console=${console:-$CACHE/logs/$(date +%m%d-%H%M%S)-$kernel-$$.log}
}

# The second initramfs archive: the first-stage init, and /lab with the guest's
# scripts and the job.
job_archive() {
    local rows=24 columns=80 unit
    [ ! -t 0 ] || read -r rows columns < <(stty size)
    mkdir -p "$run/initrd/lab"
    cp "$here/guest/init" "$run/initrd/init"
    cp -r "$here"/guest/{bare,agent,systemd} "$run/initrd/lab/"
    mkdir "$run/initrd/lab/systemd/multi-user.target.wants"
    ln -s ../lab.service "$run/initrd/lab/systemd/multi-user.target.wants/lab.service"
    while read -r unit; do
        ln -s /dev/null "$run/initrd/lab/systemd/$unit"
    done <"$here/guest/masked-units"
    [ -z "$etc" ] || cp -r "$etc" "$run/initrd/lab/etc"
    echo "INIT=$init" >"$run/initrd/lab/init_kind"
    {
        echo "INIT=$init COLLECT=${out:+yes} ROWS=$rows COLUMNS=$columns"
        printf 'COMMAND=('
        [ ${#command[@]} -eq 0 ] || printf ' %q' "${command[@]}"
        printf ' )\n'
    } >"$run/initrd/lab/job"
    chmod -R a+rX "$run/initrd"
    (cd "$run/initrd" && find . -print0 | cpio -0 -o -H newc --quiet -R 0:0) >"$run/job.cpio"
    cat "$kernel_dir/initramfs.cpio" "$run/job.cpio" >"$run/initrd.cpio"
}

share_disk() {
    local size_mb files
    [ -n "$share" ] || return 0
    size_mb=$(du -sm "$share" | cut -f1)
    files=$(du -s --inodes "$share" | cut -f1)
    mke2fs -q -t ext4 -O ^has_journal -m 0 -E root_owner=0:0 -d "$share" -N "$((files + 4096))" \
        "$run/share.ext4" "$((size_mb * 5 / 4 + 64))m" >/dev/null
}

# --- the machine --------------------------------------------------------------

# Sets `args`, QEMU's arguments.
machine() {
    local threads=1 port nr=1 clock=''
    [ -z "$smt" ] || threads=2
    [ -n "$watch" ] || clock=" $BOOT_CLOCK"
    [ "$accel" != kvm ] || clock+=" $BOOT_KVM"
    args=(-nodefaults -no-user-config -no-reboot -display none
        "${MACHINE[@]}" -m "$mem"
        -smp "$cpus,sockets=1,cores=$((cpus / threads)),threads=$threads"
        -kernel "$kernel_dir/vmlinuz" -initrd "$run/initrd.cpio"
        -append "$BOOT$clock loglevel=4 panic=-1 systemd.show_status=0 \
systemd.condition_needs_update=0 $append")
    if [ -n "$icount" ]; then
        args+=(-accel "tcg,thread=single" -icount "shift=4,sleep=off")
    elif [ "$accel" = kvm ]; then
        args+=(-accel kvm)
    else
        args+=(-accel "tcg,thread=multi")
    fi
    [ -z "$plugin" ] || args+=(-plugin "$plugin")
    disk root "$image" snapshot=on
    disk modules "$kernel_dir/modules.ext4" read-only=on
    [ -z "$share" ] || disk share "$run/share.ext4" cache=unsafe
    [ -z "$device" ] || args+=(-device "$device")
    args+=(-netdev "user,id=net,restrict=on")
    args+=(-device "virtio-net-pci,netdev=net,romfile=" -device virtio-rng-pci)
    args+=(-chardev "file,id=console,path=$console" "${CONSOLE[@]}")
    args+=(-device virtio-serial-pci)
    for port in control stdout stderr out stops; do
        args+=(-chardev "file,id=$port,path=$run/$port"
            -device "virtserialport,nr=$nr,chardev=$port")
        nr=$((nr + 1))
    done
    [ ${#command[@]} -gt 0 ] ||
        args+=(-chardev "stdio,id=terminal,signal=off"
            -device "virtconsole,nr=$nr,chardev=terminal")
}

# disk NAME FILE OPTION: one virtio disk, one queue (and managed IRQ) a CPU.
disk() {
    args+=(-drive "if=none,id=$1,format=raw,file=$2,$3")
    args+=(-device "virtio-blk-pci,drive=$1,num-queues=$cpus")
}

# --- one boot -----------------------------------------------------------------

# Starts QEMU and waits until the guest is ready; sets qemu and boot_ms. QEMU
# writes control lines and results to plain files; its two output pipes are read
# by pumps that end with it. It dies with this process, whatever ends that.
boot() {
    local started=${EPOCHREALTIME/./}
    rm -f "$run"/{stdout,stderr}
    : >"$run/control"
    : >"$run/stops"
    stopped=0
    mkfifo "$run/stdout" "$run/stderr"
    pump "$run/stdout" & pumps=($!)
    pump "$run/stderr" >&2 & pumps+=($!)
    TMPDIR=$run setpriv --pdeathsig KILL "$QEMU" "${args[@]}" <&0 2>"$run/qemu.log" &
    qemu=$!
    if ! heard ready "$boot_seconds"; then
        end_guest
        return 1
    fi
    boot_ms=$(((${EPOCHREALTIME/./} - started) / 1000))
}

# pump FIFO: copies it to our output. When no process reads that any more (`lab.sh ... | head`),
# the rest is thrown away: a full port would stop the command for ever.
pump() { { cat || cat >/dev/null; } <"$1" 2>/dev/null; }

alive() { kill -0 "$qemu" 2>/dev/null; }

# heard WORD SECONDS: waits for a control line that begins with WORD and sets
# `line` to it. The guest may end right after its last word, so the file is
# looked at once more when it is gone.
heard() {
    local deadline=$((SECONDS + $2)) gone=
    while [ -z "$gone" ] && [ "$SECONDS" -lt "$deadline" ]; do
        alive || gone=yes
        [ -e "$run/control" ] || return 1
        while read -r line; do [[ $line != "$1"* ]] || return 0; done <"$run/control"
        stop_machine
        sleep 0.1
    done
    return 1
}

# Stops the whole machine for 0.3 s as often as the guest has asked for it, a byte each. Its clock
# goes on, as in a system-management interrupt.
stop_machine() {
    local asked=''
    read -r asked <"$run/stops" || true
    while [ "$stopped" -lt "${#asked}" ] && alive; do
        kill -STOP "$qemu"
        sleep 0.3
        kill -CONT "$qemu"
        stopped=$((stopped + 1))
    done
}

# Ends QEMU and waits until its output is out. A pump whose pipe QEMU never
# opened still waits for a writer: opening it here lets it go.
end_guest() {
    [ -n "$qemu" ] || return 0
    kill -KILL "$qemu" 2>/dev/null || true
    : <>"$run/stdout" <>"$run/stderr"
    wait "$qemu" "${pumps[@]}" 2>/dev/null || true
    qemu=
}

# report WORDS: says them, with the last that is known of the guest.
report() {
    say "$1; kernel console: $console"
    tail -q -n 5 "$console" "$run/qemu.log" 2>/dev/null | tr -d '\r' |
        sed '/^$/d; s/^/    /' >&2 || true
}

# --- the story ----------------------------------------------------------------

# One function, so that bash has read all of it before the guest runs.
main() {
    local try=1
    options "$@"
    qemu='' run=''
    trap 'end_guest; rm -rf "$run"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    run_directory

    "$here/setup.sh" "$ARCH" || fail "setup.sh failed"
    kernel_dir=$("$here/kernels.sh" "$kernel") || fail "no kernel $kernel"
    image=$("$here/image.sh" "$kernel") || fail "no root image"
    accel=${accel:-$("$here/accel.sh" "$kernel" "$kernel_dir")} || fail "no accelerator"
    job_archive
    share_disk
    machine

    while ! boot; do
        report "boot $try of $boot_tries never got ready"
        [ "$try" -lt "$boot_tries" ] || exit 125
        mv "$console" "$console.try$try" 2>/dev/null || true
        try=$((try + 1))
    done
    echo "$(date +%FT%T) $kernel $init $accel ready after $boot_ms ms, try $try" \
        >>"$CACHE/boots.log"
    [ -z "$verbose" ] || say "ready after $boot_ms ms, try $try, $accel; kernel console: $console"

    if heard exit "$timeout"; then
        end_guest
    elif alive; then
        end_guest
        report "not done after $timeout s, guest ended"
        exit 124
    else
        end_guest
        report "the guest died while the command ran"
        # A breakpoint of a code patch that the emulator has kept: nothing that ran there did that.
        ! grep -q 'Oops: int3' "$console" || exit 123
        exit 125
    fi
    if [ -n "$out" ]; then
        mkdir -p "$out"
        tar -x --no-same-owner -C "$out" -f "$run/out" || fail "the results did not arrive whole"
    fi
    exit "${line#exit }"
}

main "$@"
