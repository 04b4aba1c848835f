"""What a profiler's own output comes to, in the words that ncu and nsys print."""

from __future__ import annotations

import pytest

from aiperf.profilers.tool_errors import COUNTERS_LOCKED, COUNTERS_TAKEN, complaint

LOCKED = """\
==PROF== Connected to process 4242 (/usr/bin/python3.11)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target \
device 0. For instructions on enabling permissions and to get more information see \
https://developer.nvidia.com/ERR_NVGPUCTRPERM
==PROF== Disconnected from process 4242
==WARNING== No kernels were profiled.
"""
TAKEN = """\
==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) is \
concurrently collecting profiling data.
==ERROR== Failed to profile "add" in process 7
==ERROR== Failed to profile "add" in process 7
==WARNING== No kernels were profiled.
"""


@pytest.mark.parametrize(
    ("output", "said", "fix"),
    [(LOCKED, "ERR_NVGPUCTRPERM - The user does not have permission", COUNTERS_LOCKED),
     (TAKEN, "Profiling failed because a driver resource was unavailable", COUNTERS_TAKEN)],
)  # fmt: skip
def test_an_error_of_the_tool_is_told_with_what_helps_and_not_the_warning_that_follows_it(
    output: str, said: str, fix: str
):
    told = complaint(output)
    assert told.startswith(said)
    assert told.endswith(fix)
    assert "No kernels were profiled" not in told


def test_an_error_that_is_repeated_is_told_once():
    assert complaint(TAKEN).count("Failed to profile") == 1


def test_output_without_an_error_is_told_by_its_last_line():
    assert complaint("one\n==WARNING== No kernels were profiled.\n\n") == "==WARNING== No kernels were profiled"
    assert complaint(" \n") == "it printed nothing"


def test_a_traceback_of_the_program_is_no_error_of_the_tool():
    assert complaint("ValueError: ERROR: 1\nbye") == "bye"
