# Each target sets up what it needs; .ci/run calls lint and test.
.PHONY: demo test unit vm lint lab bench bench-analysis setup

setup:
	tests/vm/setup.sh

demo: setup
	tests/vm/demo.sh

test: unit vm

unit: setup
	cargo test --quiet

vm: setup
	tests/vm/test.sh $(GUESTS)

# The figures of docs/measurements/latency.md, about ten minutes.
bench: setup
	tests/vm/bench.sh

# The figures of docs/measurements/analysis.md, some minutes; no guest.
bench-analysis:
	cargo run --release -p asmp-analysis --example bench

lint: setup
	cargo fmt --check
	cargo clippy --quiet --all-targets -- -D warnings
	shellcheck -x -P SCRIPTDIR tests/vm/*.sh tests/vm/guest/agent tests/vm/guest/bare tests/vm/guest/init .ci/run

# A guest for yourself: make lab KERNEL=sid-rt CPUS=4 CMD='uname -a'; no CMD gives a shell.
KERNEL ?= sid-rt
CPUS ?= 4
lab: setup
	tests/vm/lab.sh --kernel $(KERNEL) --cpus $(CPUS) --append 'nohz_full=1-3 rcu_nocbs=1-3' $(if $(CMD),-- $(CMD))
