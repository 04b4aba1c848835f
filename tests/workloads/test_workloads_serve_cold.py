"""Whether a server had met the prompts before: by its counts, by what its answers say, else by the time it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from loaded_servers import faults, loaded, not_late, play, running

from aiperf.workloads.serve.client import Request, Sent
from aiperf.workloads.serve.cold import CacheProbe
from aiperf.workloads.serve.metrics import template_share
from aiperf.workloads.serve.trace import Arrival, Segment

FRESH, AGAIN = (40.0, 42.0, 45.0, 41.0), (2.0, 3.0, 2.5, 2.2)


@pytest.mark.long
def test_a_trace_that_a_running_server_has_met_before_is_refused_unless_its_cache_was_flushed(tmp_path: Path) -> None:
    with running(tmp_path, "--metrics") as server:
        assert faults(tmp_path, server.base)[0] == {}
        assert faults(tmp_path, server.base)[0] == {}, "it was flushed in between"
        assert server.flush()
    with running(tmp_path, "--metrics", "--no-flush") as server:
        assert faults(tmp_path, server.base)[0] == {}
        found, facts = faults(tmp_path, server.base)
    assert list(found) == ["prefix_cache"]
    assert found["prefix_cache"].startswith("prefix cache differs: the server had 100 % of the prompts' tokens")
    assert "cache_probe" not in facts, "what counts needs no probe"


def test_what_the_answers_say_of_the_cache_counts_where_the_server_exports_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "--cached-tokens") as server:
        first, facts = faults(tmp_path, server.base)
        assert (first, facts["prefix_hit_rate"]) == ({}, 0.0)
        found, facts = faults(tmp_path, server.base)
        assert faults(tmp_path, server.base, cache="warm")[0] == {}
    assert facts["prefix_hit_rate"] == 1.0
    assert list(found) == ["prefix_cache"]
    assert "the server had 100 % of the prompts' tokens in its prefix cache" in found["prefix_cache"]


@pytest.mark.long
def test_where_a_cache_does_not_show_it_is_said_that_nobody_can_know(tmp_path: Path) -> None:
    # So slow that no chance makes a repeated prompt seem a quarter faster: of equal times once in 70 would do.
    with loaded(tmp_path, "--service", "0.1") as workload:
        play(workload)
        assert workload.faults is not None
        found = not_late(workload.faults())
    assert list(found) == ["cache_unknown"]
    assert "is unknown: the server does not count what it had in it, and to the first token" in found["cache_unknown"]


@pytest.mark.long
def test_a_server_that_refuses_to_be_asked_for_its_counts_is_not_asked(tmp_path: Path) -> None:
    with loaded(tmp_path, "--strict") as workload:
        play(workload)
        assert workload.counters is not None
        counts = workload.counters()
    assert (counts["requests"], counts["met"], counts["errors"]) == (12, 12, 0)


def test_what_a_template_puts_around_every_prompt_may_be_in_a_cold_cache() -> None:
    def played(*tokens: int | None) -> list[tuple[Segment, Sent]]:
        arrivals = tuple(Arrival(0.0, "one two three four", 1) for _ in tokens)
        requests = tuple(Request(0.0, 1, prompt_tokens=count) for count in tokens)
        return [(Segment(arrivals, 1.0), Sent(requests, 1.0, 0.0))]

    # 6 tokens of a template beside 4 words, some of which are two tokens.
    assert template_share(played(10, 10, 12)) == pytest.approx(18 / 32)
    assert template_share(played(4, 5)) == 0
    assert template_share(played(3, 4)) == 0
    assert template_share(played(None, None)) == 0


@pytest.mark.parametrize(
    ("probe", "found"),
    [
        (CacheProbe(FRESH, AGAIN, (40.0, 39.0, 44.0, 41.0) * 2), "cold"),
        (CacheProbe(FRESH, AGAIN, (2.0, 2.1, 3.0, 2.4) * 2), "known"),
        (CacheProbe(FRESH, AGAIN, (2.0, 2.1, 3.0, 41.0) * 2), "cold"),
        (CacheProbe(FRESH, AGAIN, (39.0, 38.0, 37.0, 39.5) * 2), "cold"),
        (CacheProbe(FRESH, (39.0, 38.0, 37.0, 39.5), (2.0, 2.1, 3.0, 2.4) * 2), "unseen"),
        (CacheProbe(FRESH, (2.0, 3.0, 2.5, 41.0), (2.0, 2.1, 3.0, 2.4) * 2), "unseen"),
        (CacheProbe(), "unseen"),
    ],
)
def test_a_probe_is_believed_only_where_its_groups_lie_apart(probe: CacheProbe, found: str) -> None:
    assert probe.found == found
