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
locked() {
    local fd
    exec {fd}>"$CACHE/$1.lock"
    flock -n "$fd" || { say "waiting for another run to finish building $1"; flock "$fd"; }
}

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

# private_apt SUITE [SUITE...]: a private apt directory knowing exactly those
# suites, indexes no older than an hour; sets APT, the options that select it.
# On a fresh suite list, or after `refresh_apt`, the indexes are fetched anew.
private_apt() {
    local dir key option='' mirror suite
    dir=$CACHE/apt/$(IFS=+; echo "$*")
    APT_DIR=$dir
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
        -o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir/cache"
        -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
    if [ -z "$(find "$dir/fresh" -mmin -60 2>/dev/null)" ]; then refresh_apt; fi
}

refresh_apt() {
    apt-get "${APT[@]}" update >&2
    touch "$APT_DIR/fresh"
}
