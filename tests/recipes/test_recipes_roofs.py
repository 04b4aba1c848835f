"""The recipe of measuring roofs, with pairs made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recipes_made import HOST, Bench, failing, make_pair

from aiperf.errors import AiperfError
from aiperf.host.peaks import load_peaks
from aiperf.records import Sample, SideRun
from aiperf.roofs import ceilings, measure_roofs


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("AIPERF_STATE", str(tmp_path))


def reads(seconds: float, amount: float = 1e6, **run):
    """A pair of a roof's own side whose every iteration takes so long."""

    def step(index, order, seed):
        samples = tuple(Sample("peak", r, 0, 1, seconds) for r in range(20))
        side = SideRun("peak", (1,), None, 0.0, 0, work={"roofs": {"page_cache_read": amount}}, **run)
        return replace(make_pair(index, ("before", "after"), seed), order=tuple(order), samples=samples, runs=(side,))

    return step


def measure(script, *names):
    notes: list[str] = []
    bench = Bench(script)
    outcomes = measure_roofs(names or ["page_cache_read"], stand=bench, host=HOST, host_id="h", note=notes.append)
    return outcomes, notes, bench


def test_a_measured_roof_is_kept_for_the_host_and_told_once() -> None:
    outcomes, notes, bench = measure([reads(1e-3)])
    assert [(o.roof.name, o.fresh, o.problem) for o in outcomes] == [("page_cache_read", True, "")]
    assert load_peaks("h")["page_cache_read"].value == pytest.approx(1e9)
    assert ceilings("h")["page_cache_read"].value == pytest.approx(1e9)
    assert len(notes) == 1
    assert "page_cache_read" in notes[0]
    assert {order for _, _, order, _ in bench.calls} == {("peak",)}


def test_the_better_of_old_and_new_is_kept() -> None:
    measure([reads(1e-3)])
    measure([reads(2e-3)])
    assert load_peaks("h")["page_cache_read"].value == pytest.approx(1e9)
    measure([reads(0.5e-3)])
    assert load_peaks("h")["page_cache_read"].value == pytest.approx(2e9)


def test_a_roof_that_this_host_cannot_have_says_why_and_starts_nothing() -> None:
    outcomes, notes, bench = measure([reads(1e-3)], "h2d")
    assert outcomes[0].peak is None
    assert "GPU" in outcomes[0].problem
    assert (notes, bench.calls) == ([], [])


def test_a_roof_whose_every_way_fails_says_why_and_keeps_nothing() -> None:
    outcomes, _, _ = measure([failing("no such file")])
    assert (outcomes[0].peak, outcomes[0].problem) == (None, "no such file")
    assert load_peaks("h") == {}


def test_peaks_that_cannot_be_kept_are_an_error_that_says_so(monkeypatch) -> None:
    monkeypatch.setenv("AIPERF_STATE", "/proc/nowhere")
    with pytest.raises(AiperfError, match="cannot be kept"):
        measure([reads(1e-3)])
