"""Prices are a user's: read strictly, with where they come from and when, and never made up."""

from __future__ import annotations

import pytest

from aiperf.errors import UserError
from aiperf.plan.costs import Prices, load_prices

WHOLE = "currency: EUR\nsource: our invoice\ndate: 2026-03-01\ngpu_hour: 2\nhost_hour: 0.5\nkwh: 0.25\n"


@pytest.fixture
def load(tmp_path):
    def _load(text: str | bytes) -> Prices:
        path = tmp_path / "mine.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_prices(str(path))

    return _load


def test_a_whole_file_is_read(load, tmp_path) -> None:
    path = str(tmp_path / "mine.yaml")
    assert load(WHOLE) == Prices(path, "EUR", "our invoice", "2026-03-01", 2.0, 0.5, 0.25)
    assert load(WHOLE.replace("2026-03-01", '"2026-03-01"')).date == "2026-03-01"


def test_a_price_that_is_not_stated_is_not_zero(load) -> None:
    found = load("currency: USD\nsource: s\ndate: 2026-01-01\ngpu_hour: 0\n")
    assert (found.gpu_hour, found.host_hour, found.kwh) == (0.0, None, None)


def test_the_shipped_example_says_that_it_is_one() -> None:
    found = load_prices("example")
    assert "example" in found.source
    assert "not anybody's price" in found.source
    assert found.kwh is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("source: our invoice\n", ""), "source is missing"),
        (("our invoice", "' '"), "source is missing"),
        (("our invoice", '"two\\nlines"'), "source is missing"),
        (("EUR", "7"), "currency is missing"),
        (("EUR", "Europeans"), "too long"),
        (("2026-03-01", "soon"), "date is missing or not a date"),
        (("2026-03-01", "2026-03-01 12:00:00"), "not a date"),
        (("2026-03-01", "2026-13-01"), "not a date"),
        (("gpu_hour: 2", "gpu_hour: two"), 'gpu_hour: "two" is not a number'),
        (("gpu_hour: 2", "gpu_hour: -1"), "gpu_hour"),
        (("gpu_hour: 2", "gpu_hour: .nan"), "gpu_hour"),
        (("gpu_hour: 2", "gpu_hour: .inf"), "gpu_hour"),
        (("gpu_hour: 2", "gpu_hour: true"), "gpu_hour"),
        (("gpu_hour: 2", "gpu_hour: 1" + "0" * 30), "gpu_hour"),
        (("gpu_hour: 2", "gpu_hour: 2\ngpu_hour: 3"), "appears twice"),
        (("gpu_hour: 2", "gpu_hour: &a 2"), "anchor"),
        (("kwh: 0.25", "power: 0.25"), '"power" is not a price'),
        (("gpu_hour: 2\nhost_hour: 0.5\nkwh: 0.25\n", ""), "has no price"),
    ],
)
def test_each_mistake_is_named(load, change, told) -> None:
    with pytest.raises(UserError) as caught:
        load(WHOLE.replace(*change))
    assert told in " ".join(f.what for f in caught.value.faults)


@pytest.mark.parametrize("text", ["- 1\n", "", "a: [", b"\xff\xfe"])
def test_a_file_that_is_no_mapping_is_told_without_a_traceback(load, text) -> None:
    with pytest.raises(UserError):
        load(text)


def test_all_mistakes_are_told_at_once(load) -> None:
    with pytest.raises(UserError) as caught:
        load("gpu_hour: no\nwatt: 1\n")
    assert len(caught.value.faults) == 5


def test_prices_that_are_not_there_are_told_with_those_that_show_the_form() -> None:
    with pytest.raises(UserError) as caught:
        load_prices("cheap")
    assert 'price file "cheap" not found' in caught.value.faults[0].what
    assert "example" in caught.value.faults[0].hint
