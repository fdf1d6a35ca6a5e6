#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# in-guest.sh SECONDS PART...: the checks of artis.sh, in a guest of 4 CPUs (policy: any number),
# all but CPU 0 in nohz_full=. /share holds asmp-artis, calls, load and gates. Prints a line for
# each figure, with its bar, and exits with 1 if one is missed.
# PARTS: interface, kills, changes, turns, bound, stalls, hotplug, strays, renices, returns, crowd,
# gates, guarantee, policy.
set -u
seconds=$1
shift
artis=/share/asmp-artis load=/share/load calls=/share/calls
bpf=/sys/fs/bpf/asmp
state=/sys/kernel/sched_ext/state
missed=0

# bar WHAT VALUE OPERATOR BOUND: a figure, and whether it is good.
bar() {
    local verdict=ok
    if ! awk -v a="$2" -v b="$4" "BEGIN { exit !(a ~ /^-?[0-9.e+-]+\$/ && a + 0 $3 b + 0) }"; then
        verdict=MISSED
        missed=$((missed + 1))
    fi
    printf '%-68s %12s  %2s %-10s %s\n' "$1" "$2" "$3" "$4" "$verdict"
}

# same WHAT VALUE EXPECTED: two texts.
same() {
    local verdict=ok
    if [ "$2" != "$3" ]; then
        verdict="MISSED: it is '$2'"
        missed=$((missed + 1))
    fi
    printf '%-68s %s\n' "$1: '$3'" "$verdict"
}

figure() { printf '%-68s %12s\n' "$1" "$2"; }
cpus() { cat $bpf/cpus 2>/dev/null; }
# A name that there is not would pass for 0.
stat_of() {
    awk -v name="$1" '$1 == name { print $2; found = 1 } END { if (!found) print "none" }' \
        $bpf/stats
}

# together SECONDS TURNS KIND...: one process of each at the same time. Prints how many turns those
# of the first kind got.
together() {
    local for_seconds=$1 turns=$2 kind first=$3
    shift 2
    for kind; do $load "$kind" "$for_seconds" "$turns" & done |
        awk -v first="$first" '$1 == first { sum += $2 } END { print sum }'
    wait
}

# The names of what notices entries.
hooks() { readlink $bpf/loaded | cut -d ' ' -s -f 2-; }

interface() {
    local hook
    same 'nothing is there at first' "$(cpus)" ''
    $artis set 2-3
    same 'set 2-3' "$(cpus) $(cat $state)" '2,3 enabled'
    $artis set 2-3
    same 'set 2-3 again' "$(cpus) $(cat $state)" '2,3 enabled'
    $artis set 1,3
    same 'set 1,3 while it runs' "$(cpus) $(cat $state)" '1,3 enabled'
    $artis set 0-3 2>/dev/null
    same 'all CPUs are refused' "$? $(cpus)" '2 1,3'
    $artis set 0 2>/dev/null
    same 'a CPU that is not in nohz_full= is refused' "$? $(cpus)" '3 1,3'
    $artis class $$ rt1:7
    same 'class' "$($artis class $$)" "$$ rt1:7"
    same 'children inherit it' "$(sh -c "$artis class \$\$" | cut -d ' ' -f 2)" 'rt1:7'
    $artis class $$ linux
    same 'class linux' "$($artis class $$)" "$$ linux"
    $load rt0 5 2 &
    until [ "$(awk '{ print $41 }' /proc/$!/stat)" = 1 ]; do sleep 0.1; done
    same 'a real-time task has no class' "$($artis class $!)" "$! rt0"
    $artis class $! rt1 2>/dev/null
    same 'none can be set for it' "$?" 1
    $artis class $$ rt1:100 2>/dev/null
    same 'a class that there is not' "$?" 2
    $artis class 99999999 2>/dev/null
    same 'a process that there is not' "$?" 1
    same 'stats are lines of a name and a number' "$(grep -vcE '^[a-z0-9_]+ [0-9]+$' $bpf/stats)" 0
    # The kernel ends a scheduler at SysRq S.
    echo S >/proc/sysrq-trigger
    sleep 1
    same 'ended by the kernel: cpus' "$(cpus) $(cat $state)" ' disabled'
    same 'ended by the kernel: stats' "$(tail -n 1 $bpf/stats)" \
        'ended disabled by sysrq-S'
    $artis set 2
    same 'set 2 after that' "$(cpus) $(cat $state)" '2 enabled'
    $artis set ''
    same 'set without CPUs' "$(cpus) $(cat $state) $(find $bpf 2>/dev/null)" ' disabled '
    $artis set ''
    same 'set without CPUs again' "$?" 0
    $artis set 2
    $artis set 2-3 --observe 2>/tmp/said
    same '--observe while it is loaded' "$? $(wc -l </tmp/said) $(cpus)" '1 1 2'
    for hook in $(hooks); do
        rm "$bpf/$hook"
        $artis set 2 2>/tmp/said
        same "set without $hook" "$? $(wc -l </tmp/said) $(cpus) $(hooked && echo whole)" \
            '0 1 2 whole'
    done
    bar 'hooks' "$(hooks | wc -w)" '>=' 16
    rm $bpf/loaded
    ln -s '0.0.0 user_exit' $bpf/loaded
    $artis set 3 2>/tmp/said
    same 'set after another build' "$? $(wc -l </tmp/said) $(cpus)" '0 1 3'
    $artis set ''
    umount /sys/fs/bpf
    $artis set 2
    same 'it mounts bpf' "$(cpus)" 2
    $artis set ''
}

# All that notices entries, and the scheduler.
hooked() {
    local hook
    [ -e $bpf/scheduler ] && [ -n "$(hooks)" ] || return 1
    for hook in $(hooks); do
        [ -e "$bpf/$hook" ] || return 1
    done
}

# What a killed one leaves is the old set or the new one, and never CPUs without hooks.
kills() {
    local try wrong=0 seen old=$1 new
    for try in $(seq 100); do
        new=$([ $((try % 3)) = 0 ] || echo $((1 + try % 3)))
        $artis set "$new" 2>/dev/null &
        # A whole load takes about half a second here.
        sleep "0.$(printf %03d $((RANDOM % 800)))"
        kill -KILL $! 2>/dev/null
        wait $! 2>/dev/null
        # Without its link the kernel takes a while to end it.
        for _ in $(seq 50); do
            seen=$(cpus)
            [ -n "$seen" ] || [ "$(cat $state)" != disabled ] || break
            [ -z "$seen" ] || break
            sleep 0.1
        done
        if [ -n "$seen" ] && ! hooked; then
            sleep 1
            [ -z "$(cpus)" ] || { wrong=$((wrong + 1)); echo "try $try: '$seen' without hooks"; }
        fi
        seen=$(cpus)
        case $seen in
        "$old" | "$new") ;;
        # From one set to another nothing is unloaded.
        '') [ -z "$old" ] || [ -z "$new" ] || wrong=$((wrong + 1)) ;;
        *) wrong=$((wrong + 1)); echo "try $try: '$seen' is neither '$old' nor '$new'" ;;
        esac
        old=$(cpus)
        if [ $((try % 10)) = 0 ]; then
            $artis set 2-3 || wrong=$((wrong + 1))
            [ "$(cpus) $(cat $state)" = '2,3 enabled' ] || wrong=$((wrong + 1))
            old=2,3
        fi
    done
    bar 'wrong states in 100 kills of the loader' $wrong == 0
    $artis set ''
    same 'set without CPUs after that' "$(cpus) $(cat $state) $(find $bpf 2>/dev/null)" ' disabled '
}

# Under load; each guest must end in time.
changes() {
    local try wrong=0 sets=(2 2-3 3 1-3 1 '1,3')
    $artis set 2-3 --observe
    timeout $((seconds + 60)) $calls 4 "$seconds" 50000 >/tmp/calls & guests=$!
    for try in $(seq 100); do
        $artis set "${sets[try % 6]}" || wrong=$((wrong + 1))
    done
    same 'the last of 100 changes under load' "$(cpus) $(cat $state)" '1 enabled'
    bar 'changes refused' $wrong == 0
    wait $guests
    bar 'exit status of the guests' $? == 0
    # A call that was in progress as its CPU became a real-time one.
    bar 'calls seen on a CPU that was a real-time one by then' \
        "$(stat_of escaped_calls_other)" '<=' 10
    $artis set ''
}

# race COUNT CPU FIRST LAST: COUNT processes of each command, which never end, on CPU. Prints how
# much time the first get for that of the last, once all run. CPU 1 is for those who measure: beside
# RT1 that compute they wait about a second for each turn.
race() {
    local ones=() others=() _
    for _ in $(seq "$1"); do
        taskset -c "$2" sh -c "exec $3" >/dev/null & ones+=($!)
        taskset -c "$2" sh -c "exec $4" >/dev/null & others+=($!)
    done
    sleep 3
    local one_before other_before
    one_before=$(ticks "${ones[@]}") other_before=$(ticks "${others[@]}")
    sleep 6
    awk -v a="$(($(ticks "${ones[@]}") - one_before))" \
        -v b="$(($(ticks "${others[@]}") - other_before))" 'BEGIN { print a / (b > 0 ? b : 1) }'
    kill "${ones[@]}" "${others[@]}"
    wait "${ones[@]}" "${others[@]}"
}

# ticks PID...: of time in user mode, together.
ticks() {
    local pid
    for pid; do cat "/proc/$pid/stat"; done | awk '{ sum += $14 } END { print sum + 0 }'
}

# ms of the kernel's threads for work that interrupts leave. PREEMPT_RT alone has them.
irq_work_ms() {
    cat /proc/[0-9]*/stat 2>/dev/null |
        awk '$2 ~ /^\(irq_work/ { ticks += $14 + $15 } END { print ticks * 10 }'
}

# Weights and classes count. Each task gets a turn, though others compute without end: RT1, and
# tasks that are bound to some CPUs. The kernel ends a scheduler that lets one wait for 20 s.
# Turns of two tasks of nice -10, for those of two of nice 0, on CPU 1.
beside_nice_19() {
    taskset -c 0 nice -n 19 $load spin 15 100000 >/dev/null &
    for nice in -10 -10 0 0; do
        taskset -c 1 nice -n $nice $load spin 15 100000 | sed "s/^/$nice /" &
    done | awk '{ turns[$1] += $3 } END { print turns[-10] / (turns[0] + 1) }'
    wait
}

turns() {
    local cpu threads
    $artis set 2-3
    threads=$(irq_work_ms)
    # One that runs gives way at the end of its slice to the first that waits: there are more of
    # each kind than CPUs.
    bar 'time of nice 0 for that of nice 10' \
        "$(race 4 0 "$load spin 100 100000" "nice $load spin 100 100000")" '>=' 4
    # Of two, each waits for the other alone. By their weights: 3.1 and 9.3.
    for cpu in 0 3; do
        bar "one of nice 0 beside one of nice 5 on CPU $cpu" \
            "$(race 1 $cpu "$load spin 100 100000" "nice -n 5 $load spin 100 100000")" '>=' 2
        bar "one of nice -10 beside one of nice 0 on CPU $cpu" \
            "$(race 1 $cpu "nice -n -10 $load spin 100 100000" "$load spin 100 100000")" '>=' 5
    done
    # The processes that `race` starts end beside it: each held these threads up once.
    bar 'time of threads irq_work meanwhile, ms' "$(($(irq_work_ms) - threads))" '<=' 1000
    bar 'turns of nice -10 for those of nice 0, as nice 19 computes on another CPU' \
        "$(beside_nice_19)" '>=' 4
    bar 'time of RT1 for that of Linux' \
        "$(race 4 0 "sh -c '$artis class \$\$ rt1:20; exec $load spin 100 100000'" \
            "$load spin 100 100000")" '>=' 4
    for _ in 1 2 3 4 5; do
        sh -c "$artis class \$\$ rt1:20; exec $load spin 27 100000" &
    done >/tmp/first
    for list in 0 0 1 1 2 2 0-1 2-3 2-3 2-3; do
        taskset -c $list $load spin 27 100000 &
    done | sort -n -k 2 >/tmp/turns
    wait
    same 'the scheduler after 27 s of bound tasks and of RT1' "$(cpus) $(cat $state)" '2,3 enabled'
    bar 'turns a second of the one of ten Linux tasks that got least' \
        "$(awk 'NR == 1 { print $2 }' /tmp/turns)" '>' 0
    $artis set ''
}

# A task that may use one real-time CPU alone has turns beside a guest that computes there without
# end, also while no system CPU has a guest, whose tick would see to it.
bound() {
    local longest
    $artis set 2-3
    taskset -c 3 $load gaps 20 10000 >/tmp/gaps &
    # The guests end one by one: the last is on CPU 3 or on CPU 0.
    for n in 3 5 7 9 11 13 15 17 19; do
        taskset -c 0,3 $load spin $n 100000 >/dev/null &
    done
    wait
    longest=$(cat /tmp/gaps)
    bar 'longest time that a bound task had no turn beside guests, s' "$longest" '<' 2
    same 'the scheduler after that' "$(cpus) $(cat $state)" '2,3 enabled'
    # The system CPUs have no guest then.
    taskset -c 3 $load gaps 12 10000 >/tmp/gaps &
    for n in 2 4 6; do
        taskset -c 2,3 $load spin $n 100000 >/dev/null &
        taskset -c 0,3 $load spin $n 100000 >/dev/null &
    done
    taskset -c 0,3 $load spin 12 100000 >/dev/null &
    wait
    bar 'the same, as the system CPUs become idle, s' "$(cat /tmp/gaps)" '<' 2
    $artis set ''
}

# Tasks that wait for one real-time CPU delay no task that may run elsewhere. The sleeper starts
# before them: if they delay it, its start would be late, too.
stalls() {
    local alone
    $artis set 2-3
    for _ in 1 2 3 4 5 6; do $load spin 9 100000 >/dev/null & done
    alone=$($load late 9 5000)
    wait
    figure 'longest delay of a sleeper beside six tasks that compute, s' "$alone"
    $load late 20 5000 >/tmp/late &
    sleep 1
    for _ in 1 2 3 4 5 6; do $load spin 17 100000 >/dev/null & done
    for _ in $(seq 100); do taskset -c 2 $load spin 12 100000 >/dev/null & done
    wait
    bar 'the same as 100 tasks wait for CPU 2, s' "$(cat /tmp/late)" '<' \
        "$(awk "BEGIN { print 2 * $alone + 0.2 }")"
    same 'the scheduler after that' "$(cpus) $(cat $state)" '2,3 enabled'
    $artis set ''
}

hotplug() {
    local try wrong=0
    $artis set 2-3
    timeout $((seconds + 60)) $calls 4 "$seconds" 50000 >/tmp/calls & guests=$!
    for try in $(seq 10); do
        echo 0 >/sys/devices/system/cpu/cpu3/online || wrong=$((wrong + 1))
        sleep 0.3
        echo 1 >/sys/devices/system/cpu/cpu3/online || wrong=$((wrong + 1))
        sleep 0.3
    done
    same 'after 10 times CPU 3 off and on' "$(cpus) $(cat $state)" '2,3 enabled'
    bar 'refused' $wrong == 0
    wait $guests
    bar 'exit status of the guests' $? == 0
    $artis set ''
}

# The last system CPU of the affinity of tasks goes offline, or becomes a real-time one: they get
# turns all the same. The kernel ends a scheduler whose task waits for 20 s.
strays() {
    local change
    for change in 'echo 0 >/sys/devices/system/cpu/cpu1/online' "$artis set 1-3"; do
        $artis set 2-3
        for _ in 1 2 3 4 5 6; do
            taskset -c 1-2 $load calls 8 20000 &
        done | sort -n -k 2 >/tmp/turns &
        sleep 3
        eval "$change"
        wait
        same "the scheduler after tasks without a system CPU ($change)" "$(cat $state)" enabled
        bar 'turns a second of the one of these six that got least' \
            "$(awk 'NR == 1 { print $2 }' /tmp/turns)" '>' 0
        echo 1 >/sys/devices/system/cpu/cpu1/online
        $artis set ''
    done
}

# Nice values change while guests run: nothing keeps them in the kernel on a real-time CPU.
renices() {
    local began escapes
    $artis set 2-3 --eager || exit 1
    $load disturbed "$seconds" 3000
    began=$(stat_of calls_from_rt) escapes=$(stat_of escaped_calls_other)
    bar 'system calls that began on a real-time CPU meanwhile' "$began" '>=' 200
    bar 'escaped calls' "$escapes" == 0
    figure 'longest in the kernel on a real-time CPU, ns' "$(stat_of longest_kernel_ns)"
    $artis set ''
}

# What the kernel does though no call and no page fault was the entry: core dumps, timers of CPU
# time, and signals for instructions that the processor refuses.
returns() {
    local kind
    $artis set 2-3 --eager || exit 1
    echo /tmp/core >/proc/sys/kernel/core_pattern
    for kind in timers timers dumps dumps spin spin exceptions exceptions; do
        $load $kind "$seconds" 5000 &
    done
    wait
    bar 'timers and pages of core dumps' "$(stat_of observed_work)" '>=' 10000
    bar 'of these on a real-time CPU' "$(stat_of escaped_work)" == 0
    bar 'signals for exceptions' "$(stat_of observed_exceptions)" '>=' 1000
    bar 'of these on a real-time CPU' "$(stat_of escaped_exceptions)" == 0
    bar 'escaped calls' "$(stat_of escaped_calls_other)" == 0
    bar 'guests that began to run on a real-time CPU' "$(stat_of began_on_rt)" '>=' 50
    $artis set ''
}

# A user has 800 tasks that compute on one CPU, and some that are in the kernel all the time. The
# kernel ends a scheduler that lets a task wait for 20 s.
crowd() {
    local longest ran
    $artis set 2-3 || exit 1
    read -r longest ran < <($load crowd 45 800)
    same 'the scheduler beside 806 tasks on a CPU' "$(cat $state) $(cpus)" 'enabled 2,3'
    bar 'tasks of 800 that had a turn' "$ran" == 800
    bar 'longest time that one of these had no turn, s' "$longest" '<' 20
    $artis set ''
}

# Calls that do not look like one as they begin: gates.c.
gates() {
    local gate began ran trace=/sys/kernel/tracing/instances/gates
    $artis set 2-3 --eager || exit 1
    for gate in native int80 rewritten; do
        read -r began ran < <(/share/gates $gate "$seconds")
        bar "calls by $gate that began on a real-time CPU" "$began" '>=' 100
        # The kernel may be in the midst of a move as the set of CPUs is new.
        bar "bodies of these that ran there, of 1,000" \
            "$(awk "BEGIN { print $ran / $began * 1000 }")" '<=' 1
    done
    mkdir $trace
    echo 'id == -1' >$trace/events/raw_syscalls/sys_exit/filter
    echo 1 >$trace/events/raw_syscalls/sys_exit/enable
    read -r began _ < <(/share/gates negative "$seconds")
    echo 0 >$trace/events/raw_syscalls/sys_exit/enable
    bar 'calls with the number -1 that began on a real-time CPU' "$began" '>=' 100
    ran=$(grep -c 'gates-.* \[00[23]\] .*NR -1' $trace/trace)
    bar 'of these, ends that the kernel traced there, of 1,000' \
        "$(awk "BEGIN { print $ran / $began * 1000 }")" '<=' 1
    bar 'ends that it traced anywhere' "$(grep -c 'gates-.*NR -1' $trace/trace)" '>=' 100
    rmdir $trace
    $artis set ''
}

guarantee() {
    local began faults escapes what
    $artis set 2-3 --eager || exit 1
    $load rt0 "$seconds" 2 &
    $load rt0 "$seconds" 3 &
    $calls 4 "$seconds" 100000 | sed 's/^/    /'
    bar 'exit status of the guests' "${PIPESTATUS[0]}" == 0
    wait
    began=$(stat_of calls_from_rt) faults=$(stat_of faults_from_rt)
    bar 'system calls that began on a real-time CPU' "$began" '>=' 1000
    bar 'page faults that began there' "$faults" '>=' 100
    bar 'different system calls among them' "$(stat_of different_calls_from_rt)" '>=' 60
    for what in calls faults; do
        bar "$what that the observers saw, anywhere" "$(stat_of observed_$what)" '>=' 1000
        for cause in bound exiting other; do
            figure "escapes: $what, $cause" "$(stat_of escaped_${what}_$cause)"
        done
    done
    figure 'escapes: calls, sigreturn' "$(stat_of escaped_calls_sigreturn)"
    figure 'escapes: faults, kernel' "$(stat_of escaped_faults_kernel)"
    escapes=$(($(stat_of escaped_calls) - $(stat_of escaped_calls_bound)))
    bar 'escaped calls of guests that may go, of 100,000' \
        "$(awk "BEGIN { print $escapes / ($began + $escapes) * 1e5 }")" '<=' 1
    escapes=$(($(stat_of escaped_faults) - $(stat_of escaped_faults_bound)))
    bar 'escaped faults of guests that may go, of 100,000' \
        "$(awk "BEGIN { print $escapes / ($faults + $escapes) * 1e5 }")" '<=' 1
    bar 'moves of hard tasks' "$(stat_of rt0_moves)" == 0
    figure 'an entry to running on another CPU, median, ns' "$(stat_of move_ns)"
    figure 'longest in the kernel on a real-time CPU, ns' "$(stat_of longest_kernel_ns)"
    grep artis: /sys/kernel/tracing/trace | sed 's/.*artis:/    artis:/' | sort | uniq -c | head
    $artis set ''
}

# The time that the CPUs $rt_first to the last have idled, in hundredths of a second.
idle() {
    awk -v first="$rt_first" '/^cpu[0-9]/ && substr($1, 4) >= first { idle += $5 + $6 }
        END { print idle }' /proc/stat
}

# Prints how much of 2 s, as they all run, the real-time CPUs idle, of 100.
idle_meanwhile() {
    local before
    sleep 0.6
    before=$(idle)
    sleep 2
    echo $((($(idle) - before) / 2 / (cpus - rt_first)))
}

# ratio WHAT BAR KIND...: what those of the first KIND get with the scheduler, of what they get
# without, in the same boot, in turns. Sets idled to the idle time of the last turn.
ratio() {
    local what=$1 least=$2 first=$3 with=0 without=0
    shift 2
    for _ in 1 2 3; do
        without=$((without + $(together 3 100000 "$@")))
        $artis set "$rt"
        idle_meanwhile >/tmp/idle &
        with=$((with + $(together 3 100000 "$@")))
        wait
        move_ns=$(stat_of move_ns)
        $artis set ''
    done
    idled=$(cat /tmp/idle)
    if [ "$first" = calls ] && [ $# -gt 1 ] && [ "$move_ns" -gt 25000 ]; then
        # A tenth of the 250,000 between two calls. An emulated move takes as long as these.
        figure "$what: turns, of 100 without" "$((100 * with / without))"
        echo "    skipped: the bar (>= $least): a move takes $move_ns ns here"
    else
        bar "$what: turns, of 100 without" "$((100 * with / without))" '>=' "$least"
    fi
    figure '    real-time CPUs idle meanwhile, of 100' "$idled"
    figure '    a move, median, ns' "$move_ns"
}

# As many as CPUs of each kind. On all of them, and half of them real-time CPUs.
policy() {
    local n rt rt_first idled move_ns cpus
    cpus=$(nproc)
    rt_first=$((cpus / 2)) rt=$((cpus / 2))-$((cpus - 1))
    n=$(seq "$cpus")
    # shellcheck disable=SC2086 # words
    {
        ratio "$cpus that compute" 90 ${n//[0-9]/spin}
        bar 'real-time CPUs idle meanwhile, of 100' "$idled" '<' 3
        ratio '1 with 4 calls a millisecond' 80 calls
        ratio "$cpus with 4 calls a millisecond" 80 ${n//[0-9]/calls}
        ratio "these and $cpus that compute" 80 ${n//[0-9]/calls} ${n//[0-9]/spin}
        bar 'real-time CPUs idle meanwhile, of 100' "$idled" '<' 3
    }
}

mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf
for cpu in $(seq $(($(nproc) - 1))); do
    for server in fair ext; do
        echo 0 >/sys/kernel/debug/sched/"${server}_server/cpu$cpu/runtime"
    done
done 2>/dev/null
$artis set 1 && $artis set '' || exit 1
for part; do
    echo "== $part"
    $part ''
done
complaints='BUG:|WARNING:|stall|hung task|soft lockup|sched_ext: .*error'
same 'what the kernel complains of' "$(dmesg | grep -E "$complaints" | head -n 3)" ''
[ $missed = 0 ] || { echo "$missed bars missed"; exit 1; }
