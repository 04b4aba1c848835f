# install: a virtual environment with everything that demo, test and check need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RESULTS ?= results

.PHONY: install demo test test-long test-library test-cheaters test-kernels test-gpu test-slurm test-browser check bench docs clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/aiperf run --suite demo --no-peaks --results $(RESULTS)

# What judges processes by the clock is marked and has the machine to itself; the rest shares it.
ALONE = $(shell grep -rl --include='test_*.py' mark.alone tests)
# One more than there are cores: tests also wait. The run fails if one of these processes dies: pytest would start another
# with the same file, and again if that dies too.
JOBS := $(shell echo $$(($$(nproc) + 1)))

# Files of which make test runs nothing beside them need not be collected, in each process: some import compilers.
ELSEWHERE = $(shell grep -rlE --include='test_*.py' '^pytestmark = .*mark\.(long|alone)' tests)

test: install
	$(BIN)/python -m pytest $(addprefix --ignore=,$(ELSEWHERE)) -n $(JOBS) --max-worker-restart 0 --dist loadfile --no-loadscope-reorder -m "not long and not alone" --durations 12
	$(BIN)/python -m pytest -m "alone and not long" $(ALONE)

# What takes more than a second or two each: whole runs and programs, gangs of ranks, simulations of statistics, the
# verdicts of all but the small shipped reference runs, other people's compilers, engines, clients and profilers, and
# combinations of which make test tries each value.
test-long: install
	$(BIN)/python -m pytest -n $(JOBS) --max-worker-restart 0 --dist loadfile -m long

# Whether the check of every scenario that needs no GPU notices broken sides; takes minutes.
test-library: install
	$(BIN)/python -m tests.library_check

# Every cheat of tests/cheaters and its honest twin; takes half an hour. ARGS="--only watched --seeds 3", "--gpus 1" ...
test-cheaters: install
	$(BIN)/python -m tests.cheaters $(ARGS)

# Every kernel with every set of defines for sm_80, sm_90 and sm_100; needs nvcc, and takes about two minutes.
test-kernels: install
	@command -v nvcc >/dev/null || { echo "nvcc is not on PATH: install the CUDA toolkit." >&2; exit 2; }
	AIPERF_EVERY_KERNEL=1 $(BIN)/python -m pytest tests/workloads/test_workloads_cuda_sources.py

# A real Slurm of two nodes on this machine; needs slurm-wlm, munge and the superuser's rights, and takes minutes.
test-slurm: install
	$(BIN)/python -m pytest tests/slurm --timeout=330

test-gpu: install
	$(BIN)/python -m pytest tests/gpu

# Needs Debian's chromium and chromium-driver (or CHROMIUM and CHROMEDRIVER naming others).
test-browser: install
	$(BIN)/python -m pytest tests/browser

check: install
	$(BIN)/ruff format --check aiperf tests docs
	$(BIN)/ruff check aiperf tests docs
	$(BIN)/mypy
	$(BIN)/mypy tests/gpu

bench: install
	$(BIN)/python -m tests.bench

# The documentation as site/index.html, and the man page; needs no network, and a warning is an error.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m docs.generate.manual site/aiperf.1

clean:
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find aiperf tests -name __pycache__ -type d -prune -exec rm -rf {} +
