"""model.decode and model.halves: cut into pieces, a transformer gives what it gives whole."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.model import halves, piecewise
from aiperf.workloads.shared import models

_SHORT = {"batch": 2, "lengths": [3, 7]}


def test_pieces_that_hand_over_in_kept_arrays_give_what_the_pass_as_a_whole_gives(tmp_path, monkeypatch):
    monkeypatch.setattr(piecewise, "replay_of", lambda call: call)
    workload = set_up(Pair("model.decode", {}, {}, _SHORT), "after", tmp_path)
    found = audit(workload, seed=5)["logits"]
    inputs = workload.inputs()
    module = models.build("tiny", seed=3, device="cpu", batch=2, seq=2).module.eval()
    with torch.inference_mode():
        pieces = piecewise.Piecewise(module, inputs["kept"], 2)
        again = [pieces(inputs["tokens"][:, i], length).clone().numpy() for i, length in enumerate((3, 7))]
    assert differences({"0": found[0], "1": found[1]}, {"0": again[0], "1": again[1]}, rtol=1e-5, atol=1e-6) == []
    assert abs(found[0] - found[1]).max() > 1e-3


def test_every_kept_token_up_to_the_length_and_none_beyond_it_counts(tmp_path):
    workload = set_up(Pair("model.decode", {}, {}, _SHORT), "after", tmp_path)
    workload.step()
    first = workload.outputs()["logits"].clone()
    kept = workload.inputs()["kept"]
    kept[:, :, :, :, 5] += 1
    workload.step()
    changed = (workload.outputs()["logits"] != first).flatten(1).any(1).tolist()
    assert changed == [False, True]


def test_a_token_decodes_to_what_a_whole_pass_says_when_the_kept_keys_are_those_of_its_text():
    module = models.build("tiny", seed=3, device="cpu", batch=2, seq=6).module.eval()
    tokens = torch.randint(1024, (2, 6), generator=torch.Generator().manual_seed(1))
    kept = []
    with torch.inference_mode():
        x = module.embed(tokens)
        for block in module.blocks:
            shape = (2, 6, 3, block.heads, block.head_dim)
            kept.append(block.qkv(block.norm1(x)).view(shape).permute(2, 0, 3, 1, 4)[1:])
            x = block(x)
        found = piecewise.plain(module, torch.stack(kept), tokens[:, -1], 6)
        assert torch.allclose(found, module(tokens)[:, -1], rtol=1e-4, atol=1e-5)


class Lanes:
    """Queues that run everything at once and note what ran where."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, str]] = []

    def current(self) -> str:
        return "timed"

    def queue(self, lane: str, call: partial) -> None:
        self.noted.append((lane, f"{call.func.__name__} {call.args[0]}"))
        call()

    def mark(self, lane: str) -> str:
        return f"after {self.noted[-1][1]}" if self.noted else "start"

    def wait(self, lane: str, mark: str) -> None:
        self.noted.append((lane, mark))


def test_halves_on_two_streams_hand_over_by_events_and_give_what_the_whole_model_gives(tmp_path):
    workload = set_up(Pair("model.halves", {}, {"batches": 2, "batch": 3, "seq": 5}), "after", tmp_path)
    found = audit(workload, seed=5)["predictions"]
    task = models.build("tiny", seed=3, device="cpu", batch=6, seq=5)
    task.redraw(5)
    module = task.module.eval()
    cut = halves.Halves(module, task.batch.chunk(2), torch.float32)
    lanes = Lanes()
    cut.overlapped(lanes, ["lower", "upper"])
    with torch.inference_mode():
        truth = module(task.batch)[:, -1].view(2, 3, -1).numpy()
    for predictions in (found, cut.predictions.numpy()):
        assert differences({"": predictions}, {"": truth}, rtol=1e-4, atol=1e-5) == []
    assert lanes.noted[2:8] == [
        ("lower", "first 0"), ("upper", "after first 0"), ("upper", "second 0"),
        ("lower", "first 1"), ("upper", "after first 1"), ("upper", "second 1"),
    ]  # fmt: skip
    assert [lane for lane, _ in lanes.noted[8:]] == ["timed", "timed"]


@pytest.mark.parametrize(
    ("call", "params", "error"),
    [
        (piecewise.decode, {"model": "moe:tiny"}, ValueError),
        (piecewise.decode, {"lengths": [0]}, ValueError),
        (piecewise.decode, {"capture": "piecewise"}, SkipSide),
        (halves.halves, {"model": "mlp:small"}, ValueError),
        (halves.halves, {"batches": 0}, ValueError),
        (halves.halves, {"streams": 2}, SkipSide),
        (halves.halves, {"graph": True}, SkipSide),
    ],
)
def test_what_cannot_be_cut_or_captured_is_refused(call, params, error):
    with pytest.raises(error):
        call(Context(), **params)
