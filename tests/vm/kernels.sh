#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# kernels.sh [--update] NAME[@ARCH]: prints the directory of one of the lab's kernels,
# fetching it first if need be. It holds `release` (what uname -r says),
# `vmlinuz`, `config`, `initramfs.cpio` and `modules.ext4` (the guest's
# /lib/modules).
#
# Problem:  asmp must work on the kernels people have: Debian's, unmodified, of
#           three suites, whose package names carry a version that changes.
# Approach: the suite's metapackage names the current version; it is looked up
#           once and kept until --update asks for the newest. Up to 6.12 one
#           linux-image package holds everything; from 7.x on it is split into
#           linux-binary, linux-modules and linux-base. The initramfs is busybox
#           and the few modules that bring the root disk up; lab.sh adds /init.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=lib.sh
. "$here/lib.sh"

# What is a module in Debian's kernels and needed for the disks, the NIC and entropy.
boot_modules=(virtio_pci virtio_console virtio_blk ext4 virtio_net virtio_rng)

update=
[ "${1:-}" != --update ] || { update=yes; shift; }
name=${1:-}
architecture "$name"
case $KERNEL_NAME in
trixie-rt)    suite=trixie           metapackage=linux-image-rt-$ARCH ;;
trixie)       suite=trixie           metapackage=linux-image-$ARCH ;;
backports-rt) suite=trixie-backports metapackage=linux-image-rt-$ARCH ;;
sid-rt)       suite=sid              metapackage=linux-image-rt-$ARCH ;;
sid)          suite=sid              metapackage=linux-image-$ARCH ;;
*) die "usage: kernels.sh [--update] trixie-rt|trixie|backports-rt|sid-rt|sid[@arm64]" ;;
esac

# A changed recipe makes a new directory.
recipe=$(sha256sum <"$0" | cut -c1-8)
current=$CACHE/kernels/$name-$recipe

current_release() {
    apt-cache "${APT[@]}" depends "$metapackage" |
        sed -n 's/^ *Depends: linux-image-\([0-9].*\)$/\1/p'
}

packages_of() {
    if apt-cache "${APT[@]}" show "linux-modules-$1" >/dev/null 2>&1; then
        printf 'linux-%s-'"$1"'\n' binary modules base
    else
        echo "linux-image-$1"
    fi
}

# unpack RELEASE DIR: the kernel's packages and busybox, unpacked to DIR/root. An index older
# than the mirror gives a 404: then it is fetched anew, once.
unpack() {
    local release=$1 dir=$2 packages deb
    mapfile -t packages < <(packages_of "$release")
    mkdir -p "$dir/debs" "$dir/root"
    fetch "$dir/debs" "${packages[@]}"
    # A suite of backports has only what is newer there.
    private_apt "$ARCH" "${suite%-backports}"
    fetch "$dir/debs" busybox-static
    for deb in "$dir"/debs/*.deb; do dpkg-deb -x "$deb" "$dir/root"; done
    rm -r "$dir/debs"
    # Older packages keep the modules in /lib.
    if [ -d "$dir/root/lib/modules" ]; then
        mkdir -p "$dir/root/usr/lib"
        mv "$dir/root/lib/modules" "$dir/root/usr/lib/"
    fi
    depmod -b "$dir/root/usr" "$release"
}

fetch() { download "$@" || { refresh_apt && download "$@"; }; }

download() {
    local dir=$1
    shift
    (cd "$dir" && apt-get "${APT[@]}" download "$@") >&2
}

# first_of DESTINATION FILE...: moves the first FILE there is.
first_of() {
    local destination=$1 file
    shift
    for file; do [ ! -e "$file" ] || { mv "$file" "$destination" && return; }; done
    die "none of $* is there"
}

# initramfs ROOT RELEASE FILE: busybox, and the boot modules, unpacked and
# numbered in the order in which they must be inserted.
initramfs() {
    local root=$1 release=$2 file=$3 tree=$1.initramfs paths module number=10
    mkdir -p "$tree"/{bin,dev,proc,new,modules}
    first_of "$tree/bin/busybox" "$root/usr/bin/busybox" "$root/bin/busybox"
    mapfile -t paths < <(modprobe -a -d "$root/usr" -S "$release" \
        --show-depends "${boot_modules[@]}" |
        awk '$1 == "insmod" && !seen[$2]++ { print $2 }')
    for module in "${paths[@]}"; do
        xzcat -f "$module" >"$tree/modules/$number-$(basename "${module%.xz}")"
        number=$((number + 1))
    done
    (cd "$tree" && find . -print0 | sort -z | cpio -0 -o -H newc --quiet -R 0:0) >"$file"
    rm -r "$tree"
}

build() {
    local release=$1 dir=$2 tmp=$2.new root=$2.new/root size_kb
    say "fetching $name: Linux $release"
    rm -rf "$tmp" && mkdir -p "$tmp"
    unpack "$release" "$tmp"
    first_of "$tmp/vmlinuz" "$root/boot/vmlinuz-$release" "$root/usr/lib/modules/$release/vmlinuz"
    first_of "$tmp/config" "$root/boot/config-$release" "$root/usr/lib/modules/$release/config"
    initramfs "$root" "$release" "$tmp/initramfs.cpio"
    size_kb=$(du -sk "$root/usr/lib/modules" | cut -f1)
    mke2fs -q -t ext4 -O ^has_journal -m 0 -E root_owner=0:0 -d "$root/usr/lib/modules" \
        "$tmp/modules.ext4" "$((size_kb * 11 / 10 + 8192))k" 2>/dev/null >&2
    echo "$release" >"$tmp/release"
    rm -r "$root"
    mv "$tmp" "$dir"
}

known() { [ -z "$update" ] && [ -e "$current/release" ]; }

if ! known; then
    locked kernels
    if ! known; then
        private_apt "$ARCH" "$suite"
        [ -z "$update" ] || refresh_apt
        release=$(current_release)
        [ -n "$release" ] || die "$suite has no $metapackage"
        dir=$CACHE/kernels/$release-$recipe
        [ -e "$dir/release" ] || build "$release" "$dir"
        ln -sfn "$(basename "$dir")" "$current"
    fi
fi
readlink -f "$current"
