"""Every Triton kernel of the workloads agrees with float64 in Triton's interpreter, without a GPU: at odd sizes, and as
each shipped scenario asks for it. What the interpreter cannot carry is named, with the reason."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiperf.plan.cases import expand
from aiperf.scenario.load import load_scenario
from aiperf.workloads.shared.triton_gemm import SEARCHED

# One child interprets every case: 84 s alone on two CPUs, and several times that where others use them too.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("interpreted_kernels.py")
Case = tuple[str, dict[str, Any]]
BY_TRITON = {
    "two_kernels",
    "one_kernel",
    "serial",
    "two_streams",
    "triton",
    "fastest",
    "opaque",
    "transparent",
    "flex",
    "int4_symmetric",
    "hand_written",
    4,
}

USED = ("impl", "backend", "weights", "expert_bits", "kernels", "rounding")
NOT_INTERPRETED = {
    "an autotuned tile": "the autotuner times kernels on a GPU",
    "specialised warps": "warps are specialised by Triton's compiler",
    "TF32 operands": "TF32 is a mode of NVIDIA tensor cores",
    "a kernel inside what torch.compile generates": "torch.compile cannot look into a kernel",
    "flex_attention, whose kernel torch writes": "flex_attention compiles to a Triton kernel and needs a GPU",
}
"""What scenarios ask for and the interpreter cannot carry: the words in which the workload skips such a side.

The tiles that the autotuner may choose, the kernel with descriptors and its specialised loop, the product in TF32 (with
the interpreter's own precision) and the registered operator are run below without the part that is left out.
"""


def triton_kernels() -> list[str]:
    """module.function of every function of the workloads that is decorated with jit or speaks triton.language."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "aiperf/workloads").rglob("*.py"))}
    return [
        f"{path.stem}.{node.name}"
        for path, text in texts.items()
        if re.search(r"jit|\btl\b", text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
        and (
            any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)
            or any(isinstance(inner, ast.Name) and inner.id == "tl" for inner in ast.walk(node))
        )
    ]


def odd_sizes() -> dict[str, Case]:
    """Cases of our own: no multiple of a block, one element alone, values shifted, tiny and huge."""
    cases = [*_elementwise(), *_products()]
    cases += [("order", {"shape": [7 * 16 - 3, 3 * 32 - 3], "blocks": [16, 32], "group_m": g}) for g in (1, 2, 4, 16)]
    cases += [*_attention(), *(("few_bits", {"shape": shape}) for shape in ([1, 40, 128], [17, 70, 256], [70, 1, 128]))]
    cases += [("few_bits", {"shape": [17, 70, 256], "activations": "float"})]
    cases += [
        ("cast", {"rows": rows, "cols": cols, "dtype": dtype, "delayed": delayed})
        for rows, cols, dtype in ((1, 1, "float32"), (13, 700, "bfloat16"))
        for delayed in (False, True)
    ]
    cases += [("operator", {"transparent": transparent, "n": 3 * 64 + 5, "block": 64}) for transparent in (False, True)]
    cases += [
        ("over_latents", {"heads": heads, "kv_len": kv_len, "dtype": dtype, "splits": splits})
        for heads, kv_len, dtype, splits in (
            (20, 36, "float32", 1),
            (20, 36, "float32", 2),
            (16, 4, "float32", 1),
            (3, 52, "bfloat16", 3),
        )
    ]
    cases += [
        ("one_token", {"heads": heads, "kv_heads": kv_heads, "place": place, "dtype": dtype})
        for heads, kv_heads, place, dtype in (
            (6, 2, 70, "float32"),
            (4, 4, 64, "float32"),
            (4, 1, 0, "float32"),
            (6, 2, 131, "bfloat16"),
            (4, 2, 600, "float32"),
        )
    ]
    cases += [
        (kind, {"rows": rows, "columns": columns, "dtype": dtype})
        for kind in ("token_product", "token_product_alone", "token_gated")
        for rows, columns, dtype in ((13, 1000, "float32"), (3, 9000, "float32"), (1, 16, "bfloat16"))
    ]
    cases += [
        ("unequal", {"lengths": [37, 1, 70, 16], "heads": heads, "dtype": dtype, "backend": backend, **cut})
        for heads, dtype in ((4, "float32"), (6, "bfloat16"), (40, "float32"))
        for backend in ("two_kernels", "one_kernel")
        for cut in ({"splits": 3}, {"part_keys": 16})
    ]
    cases += [
        ("mixed_batch", {"heads": heads, "dtype": dtype, "backend": backend, **sizes})
        for heads, dtype, sizes in (
            (6, "float32", {}),
            (8, "bfloat16", {"q_len": 64}),
            # Turns of two multiprocessors round up to more tiles than there are: one program takes the other kind.
            (3, "float32", {"kv_heads": 1, "q_len": 16, "block_kv": 16}),
        )
        for backend in ("serial", "two_streams", "one_kernel")
    ]
    cases += [("gate", {"rows": rows, "cols": cols}) for rows, cols in ((13, 60), (8, 128), (1, 8))]
    return {named(kind, params): (kind, params) for kind, params in cases}


def named(kind: str, params: dict[str, Any]) -> str:
    return " ".join([kind, *(f"{key}={value}" for key, value in params.items())])


def _elementwise() -> Iterator[Case]:
    for dtype in ("float32", "bfloat16", "float16"):
        for op in ("add", "swiglu", "gated_activation"):
            yield "launch", {"op": op, "shape": [3 * 64 + 5], "dtype": dtype}
        for op in ("softmax", "row_l2norm", "layer_norm", "norm_dropout_residual"):
            yield "launch", {"op": op, "shape": [5, 101], "dtype": dtype}
    for op in ("row_l2norm", "layer_norm", "norm_dropout_residual"):
        yield "launch", {"op": op, "shape": [4, 37], "scale": 0.01, "shift": 0.02}
    for scale, shift in ((30.0, 200.0), (1.0, -200.0)):
        yield "launch", {"op": "softmax", "shape": [4, 37], "scale": scale, "shift": shift}
    for depth in (1, 7):
        yield "launch", {"op": "axpb", "shape": [3 * 64 + 5], "depth": depth}
    for op, shape in (
        ("add", [1]),
        ("axpb", [64]),
        ("softmax", [1, 1]),
        ("layer_norm", [3, 1]),
        ("row_l2norm", [1, 64]),
    ):
        yield "launch", {"op": op, "shape": shape}


def _products() -> Iterator[Case]:
    odd: dict[str, Any] = {"shape": [70, 61, 45], "blocks": [32, 32, 16], "group_m": 2}
    for dtype in ("fp32", "bf16", "fp16"):
        for own in ({}, {"persistent": True}, {"epilogue": "scale"}, {"epilogue": "bias_gelu"}):
            yield "product", {**odd, "dtype": dtype, **own}
    for dtype in ("fp32", "bf16"):
        yield "product", {**odd, "dtype": dtype, "result": "fp32", "k_per_launch": 19}
    for own in ({"precision": "tf32"}, {"column_major": True}):
        yield "product", {**odd, "dtype": "fp32", **own}
    for loop in ("overwrite", "prefetch"):
        for shape in ([70, 61, 45], [33, 40, 32], [1, 1, 1]):
            yield "product", {**odd, "shape": shape, "dtype": "fp32", "k_loop": loop}
    yield "product", {"shape": [1, 1, 1], "blocks": [16, 16, 16], "dtype": "fp32"}
    described = {"shape": [33, 48, 40], "blocks": [16, 32, 16], "group_m": 2, "descriptors": True}
    for dtype in ("fp32", "fp16"):
        yield "product", {**described, "dtype": dtype}
    for dtype, specialise in (("fp16", False), ("bf16", True)):
        yield "product", {**described, "dtype": dtype, "own_descriptors": True, "specialise": specialise}
    for tile in SEARCHED:
        blocks = [tile.block_m, tile.block_n, tile.block_k]
        yield "product", {"shape": [70, 61, 45], "blocks": blocks, "dtype": "bf16", "group_m": tile.group_m}


def _attention() -> Iterator[Case]:
    for dtype, kind, tile in (
        ("fp32", "causal", [16, 16, 1]),
        ("fp32", "none", [32, 16, 1]),
        ("fp32", "causal", [16, 16, 3]),
        ("fp32", "causal", [0, 16, 0]),
        ("bf16", "causal", [16, 32, 1]),
    ):
        yield "attend", {"shape": [2, 4, 2, 13, 37, 16], "dtype": dtype, "kind": kind, "tile": tile}
    for dtype, kept in (("fp32", "whole"), ("fp32", "pages"), ("fp32", "fp8"), ("bf16", "fp8")):
        for tile in ([16, 16, 1], [16, 16, 2]):
            shape = [2, 6, 2, 1, 36, 32]
            yield "attend", {"shape": shape, "dtype": dtype, "kind": "none", "tile": tile, "kept": kept}
    for kind, splits in (("none", 1), ("causal", 1), ("causal", 3)):
        shape, tile = [2, 4, 2, 13, 37, 16], [16, 16, splits]
        yield "attend", {"shape": shape, "dtype": "fp32", "kind": kind, "tile": tile, "slope": 0.25}
    yield "attend", {"shape": [1, 1, 1, 1, 1, 16], "dtype": "fp32", "kind": "causal", "tile": [16, 16, 4]}


def small(params: dict[str, Any], workload: str) -> dict[str, Any]:
    """A side of a scenario in a small size: two tiles each way, two blocks deep, the last ones cut short.

    What chooses a kernel, a tile or a type stays; warps and stages are the compiler's alone, and of two rows of tiles
    no more than two are walked together.
    """
    kept = {key: value for key, value in sorted(params.items()) if key not in ("warps", "num_warps", "num_stages")}
    if workload == "llm.generate":
        short = {"model": "tiny", "prompt_tokens": 12, "new_tokens": 3, "dtype": "float32"}
        return kept | short | {"graph": "none", "compile": "none"}
    depth = params.get("k_per_launch") or params.get("block_k", 64)
    flat = {"n": 3 * 1024 + 77, "depth": 8}
    most = {
        "linalg.matmul": {
            "m": params.get("block_m", 128) + 22,
            "n": params.get("block_n", 128) + 8,
            "k": depth + 8,
            "group_m": 2,
        },
        "attention.forward": {
            "batch": 1,
            "heads": 2,
            "kv_heads": 1,
            "q_len": 8,
            "kv_len": 32,
            "window": 8,
            "page_tokens": 8,
        },
        "attention.ragged": {"head_dim": 32, "heads": 8, "kv_heads": 2, "part_keys": 64, "splits": 2},
        "attention.hybrid": {
            "q_len": 2 * params.get("block_q", 128),
            "kv_len": 4 * params.get("block_q", 128),
            "sequences": 3,
            "decode_kv": 2 * params.get("decode_block_kv", 64),
            "heads": 8,
            "kv_heads": 2,
            "head_dim": 32,
        },
        "attention.latent": {"batch": 1, "heads": 32, "latent_dim": 32, "kv_len": 128},
        "quant.linear": {"m": 3, "n": 40, "k": 256} | ({"m": 16, "n": 48} if params.get("pieces", 1) > 1 else {}),
        "moe.layer": {"tokens": 8, "hidden": 128, "expert_hidden": 128, "experts": 4},
        "tensor.op": {"n": 3 * params["cols"]} if "cols" in params else flat,
    }[workload]
    if workload == "attention.ragged":
        kept["lengths"] = [length // 256 + 3 for length in kept["lengths"]]
    return {key: min(value, most[key]) if key in most else value for key, value in kept.items()}


def asked_by_scenarios() -> dict[str, list[dict[str, Any]]]:
    """Scenario that needs Triton -> its sides that run a kernel of it, at every point of its axes."""
    found = {}
    for path in sorted(ROOT.glob("scenarios/*/*.yaml")):
        if "triton" not in path.read_text(encoding="utf-8"):
            continue
        scenario = load_scenario(path)
        if "triton" in scenario.needs.libraries:
            cases = expand(scenario, on_gpu=True)
            sides = [side for case in cases for side in case.sides]
            by_triton = [s for s in sides if BY_TRITON & {s.params.get(k) for k in USED}]
            found[path.stem] = [{"function": s.workload, "params": small(s.params, s.workload)} for s in by_triton]
    return found


def slack(side: dict[str, Any]) -> float:
    """Passes after the product round a 16-bit result again, which near zero is much of it; so do weights of attention.
    A layer in few bits is held against the exact one: its kernel has cases of its own."""
    if side["function"] in ("quant.linear", "moe.layer"):
        return 1.0
    if side["function"].startswith("attention."):
        return 2**-6
    passes = side["params"].get("epilogue", "none") != "none" and not side["params"].get("fused_epilogue")
    return 2**-6 if passes else 1e-5


def case_of(side: dict[str, Any]) -> Case:
    """How a side of a scenario is tried."""
    if side["function"] == "llm.generate":
        return "generated", side["params"]
    return "workload", side | {"slack": slack(side)}


KERNELS = triton_kernels()
ODD = odd_sizes()
SCENARIOS = asked_by_scenarios()
SIDES = {named(side["function"], side["params"]): side for sides in SCENARIOS.values() for side in sides}
FAULTS = {
    "read": "1 elements outside the arrays of the launch are read",
    "write": "1 elements outside the arrays of the launch are written",
    "twice": "1 elements are written twice in one launch",
}
BFLOAT16 = "bfloat16, uncorrected"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """case -> error (in units of what is allowed), skipped or failed, and the kernels that ran."""
    if importlib.util.find_spec("triton") is None:
        pytest.fail("Triton is not installed: `make install` (extra dev) brings it on Linux x86-64", pytrace=False)
    product = {"m": 32, "n": 32, "k": 32, "backend": "triton", "block_m": 16, "block_n": 16, "block_k": 16}
    cases = {
        "uncorrected": {BFLOAT16: ("workload", {"function": "linalg.matmul", "params": product | {"dtype": "bf16"}})},
        "corrected": {fault: ("copy", {"fault": fault}) for fault in (*FAULTS, "undefined", "none")}
        | ODD
        | {name: case_of(side) for name, side in SIDES.items()},
    }
    folder = tmp_path_factory.mktemp("interpreted")
    source, target = folder / "cases.json", folder / "outcomes.json"
    source.write_text(json.dumps(cases), encoding="utf-8")
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, CHILD, source, target], check=True, env=env)
    return json.loads(target.read_text(encoding="utf-8"))


def assert_agrees(outcome: dict[str, Any]) -> None:
    assert "failed" not in outcome, outcome["failed"]
    assert "skipped" not in outcome, outcome["skipped"]
    assert outcome["error"] <= 1, f"{outcome['error']:.3g} times what is allowed"


@pytest.mark.parametrize("name", ODD)
def test_a_kernel_agrees_with_float64_at_odd_sizes(name: str, outcomes: dict[str, dict[str, Any]]) -> None:
    assert_agrees(outcomes[name])


@pytest.mark.parametrize("name", SIDES)
def test_a_side_of_a_scenario_agrees_or_is_skipped_for_a_reason_in_the_table(
    name: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    outcome = outcomes[name]
    if not any(words in outcome.get("skipped", "") for words in NOT_INTERPRETED.values()):
        assert_agrees(outcome)


@pytest.mark.parametrize("kernel", ["_product", "_gated", "_one_token"])
def test_a_decoder_that_asks_for_hand_written_kernels_runs_them(
    kernel: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    name = next(name for name, side in SIDES.items() if side["params"].get("kernels") == "hand_written")
    assert f"hand_written.{kernel}" in outcomes[name]["ran"]


@pytest.mark.parametrize("what", NOT_INTERPRETED)
def test_a_row_of_the_table_is_there_because_a_scenario_asks_for_it(
    what: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    assert any(NOT_INTERPRETED[what] in outcomes[name].get("skipped", "") for name in SIDES)


@pytest.mark.parametrize("name", KERNELS)
def test_no_kernel_is_left_out(name: str, outcomes: dict[str, dict[str, Any]]) -> None:
    assert any(name in outcomes[case]["ran"] for case in ODD), f"{name} has no case at odd sizes"


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_that_needs_triton_has_a_side_here(name: str) -> None:
    assert SCENARIOS[name]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kernel_that_leaves_its_arrays_is_found(fault: str, outcomes: dict[str, dict[str, Any]]) -> None:
    assert FAULTS[fault] in outcomes[fault]["failed"]


def test_a_kernel_that_uses_what_a_mask_leaves_undefined_is_found(outcomes: dict[str, dict[str, Any]]) -> None:
    assert_agrees(outcomes["none"])
    assert outcomes["undefined"]["error"] > 1


def test_a_product_that_the_interpreter_gets_wrong_is_skipped_until_it_gets_it_right(
    outcomes: dict[str, dict[str, Any]],
) -> None:
    """When this fails, Triton has mended tl.dot of bfloat16: drop the correction in interpreted_kernels.py."""
    assert "bfloat16" in outcomes[BFLOAT16].get("skipped", "")
