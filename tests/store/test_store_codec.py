"""Records survive JSON exactly; what JSON cannot hold becomes null; what does not fit is named."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory_of_stored_records import any_of, make_record
from hypothesis import HealthCheck, assume, given, settings

from aiperf.errors import UserError
from aiperf.records import (
    SCHEMA_VERSION,
    CaseRecord,
    Comparison,
    Result,
    RunRecord,
    SideRun,
    Summary,
    Verdict,
    text_notes,
)
from aiperf.store.codec import (
    CorruptRecord,
    decode_case,
    decode_run,
    dump_json,
    encode_case,
    encode_run,
    from_plain,
    to_plain,
)
from aiperf.store.masking import WITHHELD

QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@QUICK
@given(any_of(RunRecord))
def test_any_run_record_reads_back_equal(record: RunRecord) -> None:
    record = replace(record, schema_version=SCHEMA_VERSION)
    written = encode_run(record)
    assume(WITHHELD not in str(written))
    assert decode_run(written) == record


@pytest.mark.long
@QUICK
@given(any_of(CaseRecord))
def test_any_case_record_reads_back_equal(record: CaseRecord) -> None:
    record = replace(record, schema_version=SCHEMA_VERSION)
    written = encode_case(record)
    assume(WITHHELD not in str(written))
    assert decode_case(written) == record


def test_nan_and_infinity_are_written_as_null_and_read_as_not_a_number() -> None:
    summary = Summary("before", math.inf, 1.0, 1.0, 3, 0, 0.0)
    comparison = Comparison(
        "time",
        "s",
        "lower",
        summary,
        summary,
        3,
        1.0,
        0.9,
        math.inf,
        0.01,
        math.nan,
        0.0,
        -1.0,
        1.0,
        0.1,
        None,
        1.0,
        None,
        None,
        (0.0, -math.inf),
    )
    record = replace(make_record(), results=(Result("after", "before", comparison, Verdict("inconclusive", "x", "y")),))
    data = encode_case(record)
    stored = json.loads(data)["results"][0]["comparison"]
    assert (stored["high"], stored["sd"], stored["log_ratios"]) == (None, None, [0.0, None])
    assert b"NaN" not in data
    assert b"Infinity" not in data
    assert math.isnan(decode_case(data).results[0].comparison.high)


def test_a_newer_schema_version_is_a_mistake_that_says_what_to_do() -> None:
    data = dump_json({**to_plain(make_record()), "schema_version": SCHEMA_VERSION + 1})
    with pytest.raises(UserError) as caught:
        decode_case(data, where="cases/copy.json")
    (fault,) = caught.value.faults
    assert fault.where == "cases/copy.json"
    assert f"schema version {SCHEMA_VERSION + 1}" in fault.what
    assert "Update aiperf" in fault.hint


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "excellent"}, "status is 'excellent', not one of measured"),
        ({"seconds": "long"}, "seconds is 'long', not a number"),
        ({"seconds": True}, "seconds is 'True', not a number"),
        ({"seconds": 10**400}, "seconds is a number too large to be read"),
        ({"pairs": {}}, "pairs is '{}', not a list"),
        ({"case": 3}, "case is '3', not an object"),
        ({"schema_version": None}, "has no schema_version"),
        ({"notes": [1]}, "notes[0] is '1', not an object"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(change: dict[str, Any], said: str) -> None:
    data = dump_json({**to_plain(make_record()), **change})
    with pytest.raises(CorruptRecord) as caught:
        decode_case(data)
    assert said in str(caught.value)


def test_a_missing_field_is_named() -> None:
    plain = to_plain(make_record())
    del plain["case"]["sides"]
    with pytest.raises(CorruptRecord, match="case has no sides"):
        decode_case(dump_json(plain))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_a_json_object_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_case(data)


def test_undecodable_bytes_of_a_worker_survive() -> None:
    text = b"caf\xe9 \\ \x00".decode("utf-8", "surrogateescape")
    record = replace(make_record(), notes=text_notes((text,)))
    assert decode_case(encode_case(record)).notes == text_notes((text,))


def test_facts_that_json_does_not_know_become_what_it_knows() -> None:
    import numpy as np

    facts = {
        "n": np.int64(3),
        "x": np.float64("nan"),
        "path": Path("a/b"),
        "set": {2, 1},
        7: (1, 2),
        "flag": np.bool_(True),
    }
    run = SideRun("before", (), None, 0.0, 0, facts=facts)  # type: ignore[arg-type]
    assert to_plain(run)["facts"] == {"n": 3, "x": None, "path": "a/b", "set": [1, 2], "7": [1, 2], "flag": True}


def test_what_is_read_shares_nothing_with_what_it_was_read_from() -> None:
    run = SideRun("before", (), None, 0.0, 0, counters={"hits": 2.0}, facts={"threads": 2})
    plain = to_plain(run)
    read = from_plain(SideRun, plain)
    assert read == run
    read.facts["threads"] = 3
    read.counters["misses"] = 1.0
    assert (plain["facts"], plain["counters"]) == ({"threads": 2}, {"hits": 2.0})
