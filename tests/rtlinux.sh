#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# rtlinux.sh [SOURCES]: builds and runs the RTLinux programs that SOURCES/programs.txt lists, with
# libasmp_rt as `make install-rt` installs it, and prints a table. Without SOURCES it is skipped.
#
# Problem:  whether a source for RTLinux builds and does what it says is known for the day on which
#           a person tried it.
# Approach: a list has a block for each program: what to compile, what to run beside it, what must
#           be printed. The programs are not changed. All that is made lies in a temporary
#           directory, channels too. docs/rtlinux.md describes the list.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
passed=0 failed=0 skipped=0
finish() {
    local line="rtlinux: $passed passed, $failed failed, $skipped skipped"
    echo "$line"
    [ -z "${ASMP_COUNTS:-}" ] || echo "$line" >>"$ASMP_COUNTS"
    [ "$failed" -eq 0 ]
    exit
}
if [ -z "${1:-}" ]; then
    echo "skipped: no sources: make rtlinux SOURCES=DIRECTORY (docs/rtlinux.md)"
    skipped=1
    finish
fi
sources=$(readlink -f "$1")
list=$sources/programs.txt
[ -r "$list" ] || { echo "rtlinux.sh: $list cannot be read" >&2; exit 2; }

work=$(mktemp -d)
started=()
# Ends what was started for one program: each began a process group of its own.
stop() {
    local pid
    for pid in "${started[@]}"; do
        kill -KILL -- "-$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    started=()
}
trap 'stop; rm -rf "$work"' EXIT

# A prefix of somebody who has installed it already.
prefix=${ASMP_PREFIX:-$work/usr}
if [ -z "${ASMP_PREFIX:-}" ] &&
    ! make -s -C "$here/.." install-rt PREFIX="$prefix" >"$work/install.log" 2>&1; then
    cat "$work/install.log" >&2
    exit 1
fi
headers=(-I"$prefix/include/rtlinux" -I"$prefix/include")
export LD_LIBRARY_PATH=$prefix/lib PATH=$work/bin:$prefix/bin:$PATH ASMP_CHANNELS=$work/channels
export FILES=$work/files
mkdir "$work/bin"
may_be_real_time() { [ "$(id -u)" -eq 0 ] || [[ $(ulimit -r) =~ ^(unlimited|99)$ ]]; }

declare -A block
row() { printf '%-28s %-7s %-7s %s\n' "$@"; }

# Says why, under the row.
fail() {
    failed=$((failed + 1))
    row "${block[program]}" "$1" "$2" "${block[expects]:-}"
    sed 's/^/    /' "$work/said" | tail -n 20
}

builds() {
    local program=$work/bin/${block[program]} file files=() flags=()
    read -ra flags <<<"${block[flags]:-}"
    for file in ${block[sources]:-}; do files+=("$sources/$file"); done
    [ "${block[main]:-}" = own ] || files+=("$prefix/include/rtlinux/rtl_main.c")
    cc "${flags[@]}" "${headers[@]}" "${files[@]}" -pthread -L"$prefix/lib" -lasmp_rt -lm \
        -o "$program" >"$work/said" 2>&1
}

# Runs it until what is expected was said, at most `seconds`.
runs() {
    local arguments=() number way end pid status
    end=$((SECONDS + ${block[seconds]:-20}))
    rm -rf "$ASMP_CHANNELS" "$FILES"
    mkdir -m 700 "$ASMP_CHANNELS" "$FILES"
    : >"$work/said"
    [ "${block[priorities]:-}" = yes ] || [ "${block[main]:-}" = own ] || arguments=(-n)
    (cd "$sources" && exec setsid "${block[program]}" "${arguments[@]}") >>"$work/said" 2>&1 &
    pid=$!
    started+=("$pid")
    while read -r number way; do
        [ -n "$number" ] || continue
        setsid asmp-rtf --pipe "$number" "$way" "$FILES" >>"$work/said" 2>&1 &
        started+=("$!")
        until [ -p "$FILES/rtf$number" ]; do
            [ "$SECONDS" -lt "$end" ] || return 1
            sleep 0.05
        done
    done < <(tr ',' '\n' <<<"${block[fifos]:-}")
    if [ -n "${block[peer]:-}" ]; then
        (cd "$sources" && exec setsid bash -c "${block[peer]}") >>"$work/said" 2>&1 &
        started+=("$!")
    fi
    until grep -Eq -- "${block[expects]}" "$work/said"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.05
    done
    # What rmmod was.
    kill -TERM "$pid" 2>/dev/null
    while kill -0 "$pid" 2>/dev/null; do
        [ "$SECONDS" -lt "$end" ] || { echo "it does not end" >>"$work/said"; return 1; }
        sleep 0.05
    done
    wait "$pid"
    status=$?
    [ "${block[main]:-}" != own ] || return 0
    case $status in
    # A refused name ends the program by SIGABRT, and it has said what is expected.
    0 | 134) return 0 ;;
    esac
    echo "it ends with status $status" >>"$work/said"
    return 1
}

try() {
    local name=${block[program]:-}
    [ -n "$name" ] || return 0
    if ! builds; then
        [ "${block[builds]:-yes}" = no ] || { fail no -; return; }
        row "$name" no - "does not build, as listed"
        passed=$((passed + 1))
    elif [ "${block[builds]:-yes}" = no ]; then
        echo "it builds, and the list says that it does not" >"$work/said"
        fail yes -
    elif [ -z "${block[expects]:-}" ]; then
        row "$name" yes - "a part of another"
        passed=$((passed + 1))
    elif [ "${block[priorities]:-}" = yes ] && ! may_be_real_time; then
        row "$name" yes - "skipped: no permission for real-time priorities"
        skipped=$((skipped + 1))
    elif runs; then
        stop
        row "$name" yes yes "${block[expects]}"
        passed=$((passed + 1))
    else
        stop
        fail yes no
    fi
}

row program builds runs expected
while IFS= read -r line || [ -n "$line" ]; do
    case $line in
    '#'*) ;;
    *[![:space:]]*)
        key=${line%%:*} value=${line#*:}
        case $key in
        program | sources | flags | main | priorities | fifos) ;;
        peer | seconds | expects | builds) ;;
        *) echo "rtlinux.sh: $list: unknown key: $line" >&2; exit 2 ;;
        esac
        block[$key]=${value# }
        ;;
    *) try; block=() ;;
    esac
done <"$list"
try
finish
