from __future__ import annotations

from dataclasses import replace

from factory_of_profiles import made

from aiperf.records.profiled import Artefact, Mechanism, Profile, SideProfile
from aiperf.report.profile_suite import suite_lines, trouble_lines

CPU = Profile(
    "copy[n=1]",
    artefacts=(Artefact("torch", "before", "read"), Artefact("perf", "after", "failed", "perf went away")),
    sides=(SideProfile("before", "torch", 2, wall_s=4e-3), SideProfile("after", "torch", 4, wall_s=4e-3)),
    mechanism=(Mechanism("calls", "down", "moved"),),
)


def lines(*profiles: Profile, width: int = 120) -> list[str]:
    return [line.text for line in suite_lines(profiles, width=width)]


def row(told: list[str], case: str) -> str:
    return next(line for line in told if case in line)


def test_each_case_is_a_row_with_its_tools_the_class_of_each_side_and_its_claims() -> None:
    told = lines(made(), CPU)
    first = row(told, "launches-vs-graph")
    assert [cell.strip() for cell in first.strip().split("  ") if cell][1:4] == [
        "nsys, ncu", "2.00 ms → 400 µs", "launch → gpu",
    ]  # fmt: skip
    assert first.endswith("1 of 3 as claimed")
    below = [line.strip() for line in told[told.index(first) + 1 :]]
    assert below[:2] == ["kernels: did not move", "tensor_pipe: not readable here"]
    # Per iteration: 4 ms over two and over four.
    assert row(told, "copy[n=1]").split()[1:6] == ["torch", "2.00", "ms", "→", "1.00"]
    assert row(told, "copy[n=1]").endswith("as claimed")
    assert "profiled times are not timings" in told[0]


def test_several_claims_that_all_hold_are_counted() -> None:
    both = replace(CPU, mechanism=(*CPU.mechanism, Mechanism("files", "down", "moved")))
    assert row(lines(both, CPU), "copy[n=1]").endswith("2 of 2 as claimed")


def test_a_claim_that_concerns_neither_side_is_not_counted() -> None:
    idle = Mechanism("h2d_bandwidth", "up", "not_readable", tool="nsys")
    told = lines(replace(CPU, mechanism=(*CPU.mechanism, idle)), made())
    assert row(told, "copy[n=1]").endswith("  as claimed")
    assert not any("h2d_bandwidth" in line for line in told)


def test_what_failed_stands_under_its_case_with_the_reason() -> None:
    told = lines(made(), CPU)
    assert told[told.index(row(told, "copy[n=1]")) + 1].strip() == "perf over after failed: perf went away"


def test_a_case_of_which_nothing_was_read_has_dashes_and_no_zero() -> None:
    told = row(lines(made(), Profile("none", artefacts=(Artefact("nsys", "", "skipped", "not here"),))), "none")
    assert told.split()[1:] == ["none", "–", "–", "–"]


def test_one_case_is_no_suite() -> None:
    assert lines(made()) == []


def test_a_narrow_terminal_keeps_the_case_and_its_claims() -> None:
    told = lines(made(), CPU, width=60)
    assert all(len(line) <= 60 for line in told)
    assert row(told, "copy[n=1]").endswith("as claimed")


def test_what_tools_did_not_tell_is_one_line_a_reason_with_its_cases() -> None:
    absent = Artefact("nsys", "", "skipped", "not here")
    empty = Artefact("ncu", "after", "empty", "no kernel\x1b[31m")
    first, second, third = (replace(CPU, case=f"c[{n}]", artefacts=(absent,)) for n in range(3))
    read = replace(CPU, case="read", artefacts=(Artefact("torch", "before", "read"),))
    assert trouble_lines([first, replace(second, artefacts=(absent, absent, empty)), third]) == [
        "all 3 cases profiled: nsys skipped: not here",
        "c[1]: ncu over after empty: no kernel",
    ]
    assert trouble_lines([first, second, read]) == ["c[0] and 1 more: nsys skipped: not here"]
    assert trouble_lines([first]) == ["c[0]: nsys skipped: not here"]
    assert trouble_lines([read]) == []
