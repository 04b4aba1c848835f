"""Help and listings come at once, because they load nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aiperf.cli.main import COMMANDS

HEAVY = (
    "torch",
    "cupy",
    "pandas",
    "scipy",
    "numpy",
    "pyarrow",
    "psutil",
    "pynvml",
    "aiperf.worker",
    "aiperf.workloads",
)


@pytest.mark.parametrize(
    "argv",
    [
        ("--help",),
        pytest.param(("run", "--help"), marks=pytest.mark.long),
        ("list",),
        pytest.param(("show", "same-vs-same"), marks=pytest.mark.long),
    ],
    ids=" ".join,
)
def test_no_heavy_library_is_loaded(user, argv) -> None:
    code = (
        f"import sys; sys.argv = ['aiperf', *{argv!r}]; from aiperf.cli.main import entry; code = entry(); "
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=user.environment())
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    assert len(done.stdout) > 100


def test_help_names_every_command_and_the_exit_codes(here) -> None:
    told = here("--help")
    assert told.code == 0
    for word in (*COMMANDS, "77 everything skipped"):
        assert word in " ".join(told.out.split())


def test_every_command_has_help(here) -> None:
    for name in COMMANDS:
        told = here(name, "--help")
        assert told.code == 0
        assert name in told.out
