import pytest

from aiperf.protocol.messages import TurnReply
from aiperf.worker.latencies import read_latencies
from aiperf.workloads.contract import Workload


def read(found):
    return read_latencies(Workload(lambda: None, latencies=lambda: found))


def test_plain_seconds_are_the_series_latency_and_named_ones_stay_apart():
    assert read(iter([1, 0.5])) == {"latency": (1.0, 0.5)}
    assert read({"ttft": [0.5], "inter_token": iter([0.25, 0.125]), "queue": []}) == {
        "ttft": (0.5,),
        "inter_token": (0.25, 0.125),
    }
    assert read_latencies(Workload(lambda: None)) == {}


def test_a_series_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(ValueError, match="'tpot', which is not a series: use latency, ttft, inter_token, end_to_end"):
        read({"tpot": [1.0]})
    reply = TurnReply(wall=(), device=(), latencies={"tpot": (1.0,)})
    assert reply.fault(None) == "latencies of tpot"


@pytest.mark.parametrize("odd", [-1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_refused_in_any_series(odd):
    with pytest.raises(ValueError, match="finite and not negative"):
        read({"ttft": [0.5], "queue": [odd]})
