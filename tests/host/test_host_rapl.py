"""RAPL's counters, read from made folders: what is added up, what wraps around, and what may not be read."""

from __future__ import annotations

import os

import pytest

from aiperf.host.rapl import rapl_packages


@pytest.fixture
def zone(tmp_path):
    def make(name: str, kind: str, *, energy="1000000", wraps="5000000", **more: str):
        folder = tmp_path / "sys/class/powercap" / name
        folder.mkdir(parents=True)
        files = {"name": kind, "energy_uj": energy, "max_energy_range_uj": wraps, **more}
        for file, text in files.items():
            (folder / file).write_text(f"{text}\n")
        return folder

    return make


def test_only_whole_packages_count_and_each_begins_at_zero(zone, tmp_path) -> None:
    first = zone("intel-rapl:0", "package-0")
    zone("intel-rapl:0:0", "dram")
    zone("intel-rapl:1", "psys")
    zone("intel-rapl:2", "package-1", energy="7")
    packages, problem = rapl_packages(tmp_path)
    assert ([p.name for p in packages], problem) == (["package-0", "package-1"], "")
    assert packages[0].read() == 0
    (first / "energy_uj").write_text("3500000\n")
    assert packages[0].read() == pytest.approx(2.5)
    assert packages[1].read() == 0


def test_a_counter_that_wraps_around_goes_on_counting(zone, tmp_path) -> None:
    folder = zone("intel-rapl:0", "package-0", energy="4900000")
    ((package,), _) = rapl_packages(tmp_path)
    package.read()
    found = []
    for raw in (100000, 4000000, 100000):
        (folder / "energy_uj").write_text(str(raw))
        found.append(package.read())
    assert found == pytest.approx([0.2, 4.1, 5.2])


def test_the_largest_limit_of_a_package_is_its_limit(zone, tmp_path) -> None:
    limits = {"constraint_0_power_limit_uw": "200000000", "constraint_1_power_limit_uw": "250000000"}
    zone("intel-rapl:0", "package-0", **limits)
    zone("intel-rapl:1", "package-1")
    (first, second), _ = rapl_packages(tmp_path)
    assert (first.limit_watts, second.limit_watts) == (pytest.approx(250), None)


def test_a_counter_for_root_only_says_so_and_hides_the_others(zone, tmp_path, monkeypatch) -> None:
    zone("intel-rapl:0", "package-0")
    closed = zone("intel-rapl:1", "package-1") / "energy_uj"
    closed.chmod(0)
    if os.geteuid() == 0:
        # Root reads any file: the refusal is played.
        read = type(closed).read_text

        def refuse(path, *arguments, **more):
            if path == closed:
                raise PermissionError(13, "Permission denied", str(path))
            return read(path, *arguments, **more)

        monkeypatch.setattr(type(closed), "read_text", refuse)
    packages, problem = rapl_packages(tmp_path)
    assert packages == ()
    assert "can be read only by root" in problem
    assert str(closed) in problem


def test_a_machine_without_counters_says_that(tmp_path, zone) -> None:
    assert rapl_packages(tmp_path)[1].startswith("this machine shows no RAPL package counter")
    zone("intel-rapl:0", "package-0", wraps="")
    assert "where it wraps" in rapl_packages(tmp_path)[1]


@pytest.mark.parametrize(("text", "told"), [("", "does not contain a number"), ("fast", "does not contain a number")])
def test_a_counter_that_holds_no_number_is_told(zone, tmp_path, text, told) -> None:
    zone("intel-rapl:0", "package-0", energy=text)
    assert told in rapl_packages(tmp_path)[1]


def test_a_counter_that_goes_away_answers_with_nothing(zone, tmp_path) -> None:
    folder = zone("intel-rapl:0", "package-0")
    ((package,), _) = rapl_packages(tmp_path)
    (folder / "energy_uj").unlink()
    assert package.read() is None
    assert "is missing" in rapl_packages(tmp_path)[1]
