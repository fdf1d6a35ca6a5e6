# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
# Shared by the lab's scripts; sourced, never run.
#
# Problem:  the lab needs packages from several Debian suites and files worth
#           keeping between runs, and must change nothing on the host for it.
# Approach: everything kept lives below one cache directory, each piece built
#           under a lock and moved into place whole; each suite gets its own
#           private apt directory, whose mirror is the one the host already uses.

PATH=$PATH:/usr/sbin:/sbin
CACHE=${ASMP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/asmp}
mkdir -p "$CACHE"

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# locked NAME: holds the cache's lock NAME until this process ends. Children
# that outlive the script would hold it too, so builds run in the foreground.
declare -A LOCKS=()
locked() {
    local fd
    # A second descriptor would wait for the first.
    [ -z "${LOCKS[$1]:-}" ] || return 0
    exec {fd}>"$CACHE/$1.lock"
    flock -n "$fd" || { say "waiting for another run that holds $1"; flock "$fd"; }
    LOCKS[$1]=$fd
}

# What differs by the guest's architecture, all of it. `architecture KERNEL` sets these by the name
# of a kernel: `sid-rt` is an amd64 one, `sid-rt@arm64` is not.
#   ARCH        as in Debian's packages; KERNEL_NAME is what remains of the name
#   QEMU, QEMU_PACKAGE, CROSS_PACKAGES
#   MACHINE     QEMU's arguments for machine and CPU; CONSOLE for its serial port, whose chardev is
#               `console`
#   BOOT             the kernel's parameters
#   BOOT_CLOCK       keeps its clock even when a busy host delays the kernel's watchdog
#   BOOT_KVM         one more under KVM, whose own clock would come first
#   TARGET      Rust's, and CROSS, the prefix of C's tools; empty: this machine's own do it
#   BUILD       what cargo builds of the tests' programs; PROGRAMS, those beside asmp and the tests
# shellcheck disable=SC2034 # for those who source this
architecture() {
    KERNEL_NAME=${1%@*} ARCH=${1#"${1%@*}"}
    ARCH=${ARCH#@} ARCH=${ARCH:-amd64}
    case $ARCH in
    amd64)
        # The TSC is one clock for all CPUs here, so the kernel is told to keep it even when a
        # busy host delays its watchdog. KVM's own clock would come first.
        QEMU=qemu-system-x86_64 QEMU_PACKAGE=qemu-system-x86 CROSS_PACKAGES=''
        MACHINE=(-machine "q35,sata=off,smbus=off,i8042=off" -cpu "max,svm=off")
        CONSOLE=(-device "isa-serial,chardev=console")
        BOOT='console=ttyS0' BOOT_CLOCK='tsc=reliable' BOOT_KVM='clocksource=tsc'
        TARGET='' CROSS=''
        # The graph of `make unit`: nothing is built twice.
        BUILD=(--workspace)
        PROGRAMS='asmpd asmp-rtf examples/in_partition examples/create examples/quality_line'
        ;;
    arm64)
        QEMU=qemu-system-aarch64 QEMU_PACKAGE=qemu-system-arm
        CROSS_PACKAGES='gcc-aarch64-linux-gnu libc6-dev-arm64-cross'
        MACHINE=(-machine "virt,gic-version=3" -cpu cortex-a76)
        CONSOLE=(-serial "chardev:console")
        BOOT='console=ttyAMA0' BOOT_CLOCK='' BOOT_KVM=''
        TARGET=aarch64-unknown-linux-gnu CROSS=aarch64-linux-gnu-
        BUILD=(-p asmp --test guest --target "$TARGET"
            --config "target.$TARGET.linker='${CROSS}gcc'")
        PROGRAMS=''
        ;;
    *) die "no architecture $ARCH in the lab: amd64 or arm64" ;;
    esac
}

# The architecture of this machine, as in Debian's packages.
own_architecture() { dpkg --print-architecture; }

# The Debian archive this machine already uses: the address of the first source
# that is not the security archive.
debian_mirror() {
    local mirror
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
        awk '$1 !~ /security/ && $1 ~ /debian\/?$/ { print $1; exit }')
    [ -n "$mirror" ] || die "no Debian archive in this machine's apt sources"
    printf '%s\n' "$mirror"
}

# private_apt ARCH SUITE [SUITE...]: a private apt directory knowing exactly those
# suites of that architecture, indexes no older than an hour; sets APT, the options that select it.
# On a fresh suite list, or after `refresh_apt`, the indexes are fetched anew. The directory is
# locked until this process ends: two guests that begin at once need the same suite.
private_apt() {
    local dir key option='' mirror suite arch=$1
    shift
    dir=$CACHE/apt/$(IFS=+; echo "$*")@$arch
    APT_DIR=$dir
    locked "apt-${dir##*/}"
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    for key in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
        [ -e "$key" ] && option="[signed-by=$key] " && break
    done
    mirror=$(debian_mirror)
    for suite; do
        printf 'deb %s%s %s main\n' "$option" "$mirror" "$suite"
    done >"$dir/sources.list"
    APT=(-qq
        -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=-
        -o APT::Architecture="$arch" -o APT::Architectures="$arch"
        -o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir/cache"
        -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
    if [ -z "$(find "$dir/fresh" -mmin -60 2>/dev/null)" ]; then refresh_apt; fi
}

refresh_apt() {
    apt-get "${APT[@]}" update >&2
    touch "$APT_DIR/fresh"
}

# qemu_major QEMU: the first number of its version; nothing if it is not there.
qemu_major() {
    { "$1" --version 2>/dev/null || true; } |
        sed -n 's/^QEMU emulator version \([0-9]*\).*/\1/p'
}

# install_qemu QEMU PACKAGE: version 10 or newer of it; on bookworm from bookworm-backports.
install_qemu() {
    local codename major
    major=$(qemu_major "$1")
    [ "${major:-0}" -lt 10 ] || return 0
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    say "installing QEMU 10 or newer"
    case $codename in
    bookworm)
        locked apt
        private_apt "$(own_architecture)" bookworm bookworm-updates bookworm-backports
        as_root apt-get "${APT[@]}" install -y --no-install-recommends -t bookworm-backports \
            "$2" >/dev/null
        ;;
    *)
        as_root apt-get -qq update
        as_root apt-get -qq install -y --no-install-recommends "$2" >/dev/null
        ;;
    esac
    major=$(qemu_major "$1")
    [ "${major:-0}" -ge 10 ] ||
        die "QEMU 10 or newer is needed, this machine's sources give '${major:-none}'"
}
