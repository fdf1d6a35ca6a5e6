# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compares asmp with its peers in one boot of a guest: in-guest.py OUT.json ROW...

Problem:  each tool's own counter and own idea of a restored machine favour that tool.
Approach: for each row the same task, the same load, one counter that knows no tool
          (/proc/interrupts, a trace instance of the CPU, /proc/PID/stat), and one snapshot of the
          machine before and after. Between rows everything that differs is written back.
"""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

CPU = 3
WINDOW_S = 10
SETTLE_S = 2
REPETITIONS = 3
# Parts of the usual time of a set-up.
KILLED_AT = (0.3, 0.6, 0.9)
SHARE = Path("/share")
TRACE = Path("/sys/kernel/tracing/instances/peers")
STALLS = Path("/sys/kernel/rcu_stall_count")
RT_RUNTIME = Path("/proc/sys/kernel/sched_rt_runtime_us")
ORDER = ["nothing", "taskset", "systemd", "vfio-isolate", "tuned", "script", "asmp"]
PF_KTHREAD = 0x00200000
LOAD = (
    "stress-ng --quiet --cpu 4 --hdd 1 --hdd-bytes 8M --temp-path /tmp"
    " --timer 1 --timer-freq 500 --switch 1 --udp 1"
)
# Interrupts that another CPU sends, and irq work.
IPIS = ("RES", "CAL", "TLB", "IWI")


def say(*words):
    print(f"{time.monotonic():7.1f}", *words, flush=True)


def on_all_cpus():
    """What is started here has all CPUs, as from any shell."""
    os.sched_setaffinity(0, range(os.cpu_count()))


def shell(text, check=True):
    done = subprocess.run(
        ["bash", "-euc", text],
        preexec_fn=on_all_cpus,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
    )
    if done.returncode and check:
        raise RuntimeError(f"{text}: exit status {done.returncode}: {done.stdout}")
    return done.stdout.strip()


def of_row(row, step):
    return f". {SHARE}/{row}.sh; {step}"


def has(row, step):
    return f"\n{step}()" in (SHARE / f"{row}.sh").read_text()


def user_lines(row):
    """Lines within the functions set_up, start and undo, and those of a script that they call."""
    text = (SHARE / f"{row}.sh").read_text()
    inside = re.findall(r"^(?:set_up|start|undo)\(\) \{(.*?)\}$", text, re.M | re.S)
    lines = [line.strip() for body in inside for line in body.splitlines()]
    if row == "script":
        lines += [line.strip() for line in (SHARE / "isolate.sh").read_text().splitlines()]
    return sum(line not in ("", ":;") and not line.startswith("#") for line in lines)


class Machine:
    """The snapshots of the tests' own runner, which knows no setting of any tool."""

    def __init__(self):
        self.server = subprocess.Popen(
            [SHARE / "guest-tests", "snapshots"],
            preexec_fn=on_all_cpus,
            env={**os.environ, "ASMP_GUEST": "sid-rt:systemd"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        say("snapshots:", *self.answer()[-1:])

    def answer(self):
        lines = []
        while (line := self.server.stdout.readline().rstrip("\n")) != ".":
            if not line and self.server.poll() is not None:
                raise RuntimeError("the snapshot program died")
            lines.append(line)
        return lines

    def ask(self, word):
        print(word, file=self.server.stdin, flush=True)
        return self.answer()

    def take(self):
        self.runtime = RT_RUNTIME.read_text().strip()
        self.ask("take")

    def differences(self):
        """A new directory is one difference, whatever is in it."""
        return without_contents(self.all_differences())

    def all_differences(self):
        # The kernel counts stalls: that is no setting, and has a figure of its own.
        found = [line for line in self.ask("compare") if not line.startswith(str(STALLS))]
        runtime = RT_RUNTIME.read_text().strip()
        if runtime != self.runtime:
            found.append(f'{RT_RUNTIME}: "{self.runtime}" -> "{runtime}"')
        return found

    def put_back(self):
        """Writes back what differs, whatever made it. What cannot be is the next row's start."""
        # What is in a directory goes before it.
        for line in reversed(self.all_differences()):
            try:
                put_back(line)
            except OSError as error:
                say("  not put back:", line, error)
        self.take()


def without_contents(lines):
    new = [line[4:].partition(": ")[0] for line in lines if re.match("dir .*: absent -> ", line)]

    def is_inside(line):
        path = re.sub("^(dir|xattr) ", "", line.partition(": ")[0])
        return any(path.startswith((f"{top}/", f"{top} ")) for top in new)

    return [line for line in lines if not is_inside(line)]


def put_back(line):
    name, _, values = line.partition(": ")
    old, _, new = values.rpartition(" -> ")
    if name.startswith("dir ") and old == "absent":
        # One of cgroups has files that go with it.
        shutil.rmtree(name[4:]) if name.startswith("dir /run/") else os.rmdir(name[4:])
    elif name.startswith("task "):
        task, what = re.match(r"task (\d+) \(.*\) (\w+)$", name).groups()
        if what == "cpus":
            shell(f"taskset -pc {json.loads(old)} {task}", check=False)
        elif what == "nice":
            shell(f"renice -n {json.loads(old)} -p {task}", check=False)
    elif name.startswith("/") and old != "absent" and new != "absent":
        Path(name).write_text(json.loads(old) + "\n")


# --- the neutral counter -------------------------------------------------------------------------


def interrupts():
    lines = Path("/proc/interrupts").read_text().splitlines()
    column = lines[0].split().index(f"CPU{CPU}") + 1
    count = {"ticks": 0, "device_irqs": 0, "ipis": 0}
    for line in lines[1:]:
        words = line.split()
        label = words[0].rstrip(":")
        if len(words) <= column or not words[column].isdigit():
            continue
        kind = (
            "ticks"
            if label == "LOC"
            else "ipis" if label in IPIS else "device_irqs" if label.isdigit() else None
        )
        if kind:
            count[kind] += int(words[column])
    return count


def kernel_threads():
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                flags = (entry / "stat").read_text().rpartition(")")[2].split()[6]
            except OSError:
                continue
            if int(flags) & PF_KTHREAD:
                found.add(int(entry.name))
    return found


def fields(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def faults(pid):
    return int(fields(pid)[7]) + int(fields(pid)[9])


def open_trace():
    TRACE.mkdir(exist_ok=True)
    (TRACE / "tracing_on").write_text("0")
    (TRACE / "tracing_cpumask").write_text(f"{1 << CPU:x}")
    (TRACE / "buffer_size_kb").write_text("16384")
    (TRACE / "events/sched/sched_switch/enable").write_text("1")


def window(pid, beside=None):
    """Counts of the CPU in a window; `beside` runs meanwhile and gives its output.

    The trace is neither emptied nor read here: both wait for a grace period of RCU, which a busy
    FIFO task can hold up for as long as it runs.
    """
    threads = kernel_threads()
    (TRACE / "tracing_on").write_text("1")
    started = time.monotonic()
    before, faulted = interrupts(), faults(pid)
    other = beside and shell(beside)
    time.sleep(max(0, WINDOW_S - (time.monotonic() - started)))
    after, faulted = interrupts(), faults(pid) - faulted
    (TRACE / "tracing_on").write_text("0")
    count = {"seconds": round(time.monotonic() - started, 2)}
    count.update({kind: after[kind] - before[kind] for kind in before})
    count.update(foreign_switches=0, kernel_switches=0, own_switches=0, page_faults=faulted)
    count["on_cpu"] = int(fields(pid)[36])
    return count, threads | kernel_threads(), other


def switches(count, threads, pid):
    """Adds what the trace of a window says, and empties the trace."""
    text = (TRACE / f"per_cpu/cpu{CPU}/trace").read_text()
    for next_pid in re.findall(r"next_pid=(\d+)", text):
        if int(next_pid) in threads:
            count["kernel_switches"] += 1
        elif int(next_pid) != 0:
            count["own_switches" if int(next_pid) == pid else "foreign_switches"] += 1
    lost = re.search(r"overrun: (\d+)", (TRACE / f"per_cpu/cpu{CPU}/stats").read_text())
    count["lost_events"] = int(lost.group(1))
    (TRACE / "trace").write_text("")


# --- the rows ------------------------------------------------------------------------------------


def busy_pid():
    for _ in range(300):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if (entry / "cmdline").read_bytes() == b"/share/busy\0":
                        return int(entry.name)
                except OSError:
                    pass
        time.sleep(0.1)
    raise RuntimeError("the task did not start")


def timed(row, step):
    started = time.monotonic()
    shell(of_row(row, step))
    return round(time.monotonic() - started, 3)


def frozen(is_frozen):
    """The load's tasks exist while a tool works, and must be dealt with; they run in the window."""
    group = Path("/sys/fs/cgroup/system.slice/peers-load.service")
    (group / "cgroup.freeze").write_text("1" if is_frozen else "0")


def one_count(row, result, beside=None):
    set_up_s = timed(row, "set_up")
    task = subprocess.Popen(
        ["bash", "-euc", of_row(row, "start")],
        preexec_fn=on_all_cpus,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    pid = busy_pid()
    frozen(False)
    time.sleep(SETTLE_S)
    count, threads, other = window(pid, beside)
    frozen(True)
    os.kill(pid, signal.SIGTERM)
    task.wait(timeout=60)
    switches(count, threads, pid)
    time.sleep(0.5)
    undo_s = timed(row, "undo")
    if not beside:
        result["counts"].append(count)
        result["set_up_s"].append(set_up_s)
        result["undo_s"].append(undo_s)
    say(" ", row, set_up_s, undo_s, json.dumps(count))
    return count, other


def counted(row, result):
    """The task under load, three times; and once beside `asmp noise` where nothing is shielded."""
    shell(f"systemd-run --quiet --collect --unit=peers-load {LOAD}")
    time.sleep(2)
    frozen(True)
    for _ in range(REPETITIONS):
        one_count(row, result)
    if row == "nothing":
        beside = f"asmp noise --cpus {CPU} -t {WINDOW_S}s --json"
        count, noise = one_count(row, result, beside)
        result["noise"] = {"neutral": count, "asmp": json.loads(noise)}
    frozen(False)
    shell("systemctl stop peers-load", check=False)


def killed(row, machine, after_s):
    """`kill -9` of the set-up and all its processes; then the tool's own way back."""
    setting_up = subprocess.Popen(
        ["bash", "-euc", of_row(row, "set_up")],
        preexec_fn=on_all_cpus,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(after_s)
    alive = setting_up.poll() is None
    os.killpg(setting_up.pid, signal.SIGKILL) if alive else None
    setting_up.wait()
    if has(row, "also_kill"):
        shell(of_row(row, "also_kill"), check=False)
    left = machine.differences()
    step = "undo_after_kill" if has(row, "undo_after_kill") else "undo"
    said = shell(of_row(row, step) + " && echo done", check=False)
    after = machine.differences()
    worked = said.endswith("done")
    say(f"  killed after {after_s:.2f} s: {len(left)} left, after the undo {len(after)}")
    if after:
        machine.put_back()
    return {
        "after_s": round(after_s, 2),
        "was_alive": alive,
        "left": left,
        "undo_worked": worked,
        "undo_said": said[-300:],
        "left_after_undo": after,
    }


def one_row(row, machine):
    say(row)
    result = {"row": row, "lines": user_lines(row), "set_up_s": [], "undo_s": [], "counts": []}
    result["kills"] = []
    try:
        stalls = int(STALLS.read_text()) if STALLS.exists() else 0
        counted(row, result)
        result["rcu_stalls"] = int(STALLS.read_text()) - stalls if STALLS.exists() else 0
        result["left"] = machine.differences()
        say("  left behind", len(result["left"]))
        if result["left"]:
            machine.put_back()
        if row not in ("nothing", "taskset"):
            median = statistics.median(result["set_up_s"])
            result["kills"] = [killed(row, machine, median * part) for part in KILLED_AT]
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        result["error"] = str(error)
        say("  ERROR", error)
        shell("pkill -x busy; systemctl stop peers-load", check=False)
        shell(of_row(row, "undo"), check=False)
        machine.put_back()
    return result


def main():
    out, rows = sys.argv[1], sys.argv[2:]
    # Ahead of the load, on another CPU than the one that counts; what it starts is ordinary.
    os.sched_setaffinity(0, {0})
    first = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
    os.sched_setscheduler(0, first, os.sched_param(1))
    os.environ["PATH"] = f"{SHARE}:{os.environ['PATH']}"
    os.environ["PYTHONPATH"] = str(SHARE / "python")
    # A slice with CPUs keeps systemd's cpuset controller on all the time: switching it patches the
    # kernel's code, and the emulator dies of that now and then.
    Path("/run/systemd/system/held.slice").write_text("[Slice]\nAllowedCPUs=0-3\n")
    shell("systemctl daemon-reload && systemctl start held.slice user.slice machine.slice rt.slice")
    open_trace()
    facts = {
        "kernel": os.uname().release,
        "boot": Path("/proc/cmdline").read_text().strip(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load": LOAD,
        "versions": {
            "systemd": shell("systemctl --version").split()[1],
            "util-linux": shell("taskset --version").split()[-1],
            "tuned": shell("dpkg-query -W -f '${Version}' tuned"),
            "vfio-isolate": (SHARE / "vfio-isolate.version").read_text().strip(),
            "asmp": shell("asmp --version").split()[-1],
        },
        "asmp_build": (SHARE / "asmp.build").read_text().strip(),
    }
    say(json.dumps(facts))
    machine = Machine()
    machine.take()
    facts["rows"] = []
    for row in rows:
        facts["rows"].append(one_row(row, machine))
        say("figures", json.dumps(facts["rows"][-1]))
        # In the order of the tables.
        facts["rows"].sort(key=lambda result: ORDER.index(result["row"]))
        facts["up_s"] = round(time.monotonic())
        Path(out).write_text(json.dumps(facts, indent=1) + "\n")


main()
