"""The product that is tuned by hand for Hopper, without one: its source compiles, what it is given, what it refuses."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.linalg import hand_wgmma, prepared
from aiperf.workloads.linalg import workload as linalg


def test_the_tuned_source_compiles_for_hopper_without_spills(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on PATH")
    command = [nvcc, *hand_wgmma.FLAGS, "-Werror", "all-warnings", "-Xptxas=-v", "-cubin", "-o", tmp_path / "out"]
    said = subprocess.run([*command, hand_wgmma.SOURCE], check=True, capture_output=True, text=True)
    assert "0 bytes spill stores, 0 bytes spill loads" in said.stderr + said.stdout


def test_the_tuned_product_is_refused_where_it_could_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SkipSide, match=r"capability 9\.0"):
        linalg.matmul(Context(), m=256, n=256, k=64, dtype="fp16", backend="hand_wgmma")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(hand_wgmma, "build", lambda folder: pytest.fail("built for nothing"))
    for m, n, k in ((128, 256, 64), (256, 128, 64), (256, 256, 32)):
        with pytest.raises(ValueError, match=f"multiples of 256 and k of 64, not .{m}, {n}, {k}"):
            hand_wgmma.product(_on_gpu(m, k), _on_gpu(k, n), _on_gpu(m, n), folder=tmp_path)


def test_the_tuned_product_is_built_once_for_each_text_of_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text('#!/bin/sh\n[ "$1" = --version ] && exit\nfor last; do :; done\necho "$@" > "$last"\n')
    nvcc.chmod(0o755)
    monkeypatch.setattr(hand_wgmma, "find_nvcc", lambda: str(nvcc))
    monkeypatch.setattr(hand_wgmma, "HEADERS", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    built = set()
    for text in ("one", "two", "one"):
        (tmp_path / "async.cuh").write_text(text)
        path = hand_wgmma.build(tmp_path / "elsewhere")
        assert path.is_relative_to(tmp_path / "cache")
        assert "arch=compute_90a,code=sm_90a" in path.read_text()
        built.add(path)
    assert len(built) == 2


@pytest.mark.parametrize("ready", [7, None])
def test_a_tuned_product_is_prepared_for_its_operands(
    ready: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def prepare(*given: Any) -> int | None:
        asked.append(given[:6])
        given[-1]._obj.value = b"the driver refuses"
        return ready

    library = SimpleNamespace(
        workspace_bytes=lambda *_: 0,
        prepare=prepare,
        run=lambda *given: asked.append(given),
        registers=lambda: 168,
        shared_bytes=lambda: 9,
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=5))
    monkeypatch.setattr(hand_wgmma, "build", lambda folder: folder)
    monkeypatch.setattr(prepared, "load", lambda path: library)
    a, b, out = _on_gpu(512, 64), _on_gpu(64, 256), _on_gpu(512, 256)
    if ready is None:
        with pytest.raises(RuntimeError, match="hand_wgmma cannot prepare this product: the driver refuses"):
            hand_wgmma.product(a, b, out, folder=tmp_path)
        return
    run, facts = hand_wgmma.product(a, b, out, folder=tmp_path)
    assert run() is out
    assert asked == [(1, 1, 1, 512, 256, 64), (7, 5)]
    assert facts == {"registers": 168, "shared_bytes": 9, "workspace_bytes": 1}


def _on_gpu(rows: int, columns: int) -> Any:
    """What a product asks of a tensor on a GPU."""
    return SimpleNamespace(is_cuda=True, device="cpu", shape=(rows, columns), data_ptr=lambda: 1)
