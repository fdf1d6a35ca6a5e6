# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
# Our figures beside those of cyclictest and rtla; sourced by the other bench-*-in-guest.sh.

asmp=/share/asmp

# A figure of the only run below a directory: `figure DIR KEY INSTANTS`, in us; of samples alone, as
# other tools count. missed: how many of 100 instants; another tool tells only how many it sampled,
# of so many.
figure() { $asmp measure report "$1" --json | python3 -c "
import json, sys
row = json.load(sys.stdin)['rows'][-1]
alone, all = row.get('samples_alone') or row['summary'], row['summary']
figures = {one['name']: one['ns'] / 1e3 for one in alone['percentiles']}
sampled = all['instants'] if row['source'] != 'import' else $3
figures['missed'] = 100 * (1 - all['samples'] / max(sampled, all['samples']))
print(round(figures['$2'], 2))"; }

# The middle of its arguments.
middle() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

# beside LOAD ROUNDS SECONDS KEYS...: these figures of ours, of cyclictest and of rtla, in the same
# partition and in turn.
beside() {
    local load=$1 rounds=$2 seconds=$3 instants=$(($3 * 500)) round tool key dir all
    shift 3
    for round in $(seq "$rounds"); do
        for tool in nanosleep timerlat; do
            $asmp measure latency --kinds partition --source "$tool" --no-trace \
                --for "${seconds}s" --period 2ms -o "$load-$tool-$round" -q >/dev/null
        done
        $asmp run --cpus 3 -- cyclictest -q -m -p 80 -t 1 -a 3 -i 2000 -D "$seconds" -h 200000 \
            >"$load-cyclictest.txt"
        $asmp measure import "$load-cyclictest.txt" --from cyclictest -o "$load-cyclictest-$round" \
            --kernel "$(uname -r)" --kind partition >/dev/null
        $asmp run --cpus 3 -- rtla timerlat hist -c 3 -u -P f:80 -p 2000 -E 200000 \
            -d "${seconds}s" >"$load-rtla.txt"
        $asmp measure import "$load-rtla.txt" --from rtla -o "$load-rtla-$round" \
            --kernel "$(uname -r)" --kind partition >/dev/null
    done
    for key in "$@"; do
        for tool in nanosleep cyclictest timerlat rtla; do
            all=()
            for round in $(seq "$rounds"); do
                dir=$load-$tool-$round
                [ "$tool" != rtla ] || dir=$load-rtla-$round/Usr-003
                all+=("$(figure "$dir" "$key" "$instants")")
            done
            echo "$key, $tool: median $(middle "${all[@]}") of (${all[*]})"
        done
    done
}
