"""What cuda.kernel makes of its keywords before it meets a GPU: launches, geometry, names in expressions, faults."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_sides import kernel_scenarios, sides_of

from aiperf.workloads.cuda import workload as cuda
from aiperf.workloads.cuda.geometry import Placed

ADD: dict[str, Any] = {
    "source": "elementwise.cu",
    "entry": "add",
    "args": ["a", "b", "out"],
    "arrays": {"a": {}, "b": {}, "out": {"role": "output"}},
    "n": 1000,
}


PICTURE = {"role": "texture", "of": "picture", "linear": "MIXED"}


def placed(*, sms: int = 132, suggested: int = 0, **changes: Any) -> Placed:
    described = cuda.describe(**(ADD | changes))
    return described.placed(described.launches[0], sms=sms, suggested=suggested)


def test_sms_is_a_block_for_each_multiprocessor_times_the_waves() -> None:
    assert placed(grid="sms").grid == (132, 1, 1)
    assert placed(grid="sms", grid_waves=0.25).grid == (33, 1, 1)
    assert placed(grid="sms", grid_waves=0.001).grid == (1, 1, 1)
    assert placed(grid="sms", grid_waves=2, sms=10).grid == (20, 1, 1)
    assert placed(grid="sms * 2, 3").grid == (264, 3, 1)


def test_two_dimensional_blocks_cover_columns_and_rows() -> None:
    assert placed(block="16,8", shape=[100, 50]).grid == (4, 13, 1)
    assert placed(block="16,8", shape=[100, 50]).block == (16, 8, 1)
    assert placed(block="16,16", n=1024).grid == (64, 64, 1), "without a shape n is the side of a square"
    assert placed(block="8,8,4", shape=[16, 24, 10]).grid == (3, 2, 3)


def test_a_block_may_be_the_drivers_choice() -> None:
    assert placed(block="occupancy", suggested=768, n=1537).block == (768, 1, 1)
    assert placed(block="occupancy", suggested=768, n=1537).grid == (3, 1, 1)


def test_defines_that_are_whole_numbers_stand_in_expressions() -> None:
    given = {"defines": {"TILE": 16, "SCALE": "2.0f"}, "block": "TILE,TILE", "grid": "n // TILE, items"}
    assert placed(**given, items=3).block == (16, 16, 1)
    assert placed(**given, items=3).grid == (62, 3, 1)
    assert placed(variant="TILE=8", block="TILE").block == (8, 1, 1)
    arrays = ADD["arrays"] | {"a": {"shape": "n + TILE"}}
    assert cuda.describe(**(ADD | {"arrays": arrays}), defines={"TILE": 24}).arrays["a"].shape == (1024,)


def test_several_expressions_are_a_text_with_commas_or_a_list() -> None:
    for whole in ([128], 128, "128", ["n // 8 + 3"]):
        arrays = ADD["arrays"] | {"a": {"shape": whole}}
        assert cuda.describe(**(ADD | {"arrays": arrays})).arrays["a"].shape == (128,)
    assert placed(block=[16, "items * 4"], grid=["n // 10", 2], items=2).block == (16, 8, 1)
    assert placed(block=[16, 8], grid=["n // 10", 2]).grid == (100, 2, 1)


def test_whole_clusters_are_launched() -> None:
    assert placed(cluster=8).grid == (8, 1, 1)
    assert placed(cluster=8, grid="sms").grid == (136, 1, 1)
    assert "-DCLUSTER=8" in cuda.describe(**ADD, cluster=8).options
    assert not any("CLUSTER" in option for option in cuda.describe(**ADD).options)


def test_a_shape_gives_defines_names_and_n() -> None:
    described = cuda.describe(**(ADD | {"n": 0}), shape=[30, 20], flops="2 * rows * cols + n", useful_bytes="8 * n")
    assert {"-DN=600", "-DROWS=30", "-DCOLS=20"} <= set(described.options)
    assert described.flops == 1800
    assert described.useful_bytes == 4800
    assert described.work_items == 600


def test_repeat_may_be_an_expression() -> None:
    given = {**ADD, "defines": {"LAUNCHES": 8}}
    assert cuda.describe(**given, repeat="LAUNCHES // 2").repeat == 4
    with pytest.raises(ValueError, match="repeat is LAUNCHES // 16; write 1 or more"):
        cuda.describe(**given, repeat="LAUNCHES // 16")


def test_each_launch_takes_what_it_leaves_out_from_the_keywords() -> None:
    launches = [{"entry": "scale", "args": ["a", "out"], "block": 64}, {"entry": "triad", "smem": "4 * threads"}]
    described = cuda.describe(**(ADD | {"entry": ""}), launches=launches, block=128, repeat=3)
    first, second = (described.placed(launch, sms=1) for launch in described.launches)
    assert (first.entry, first.threads, first.blocks, first.args) == ("scale", 64, 16, ("a", "out"))
    assert (second.entry, second.threads, second.smem, second.args) == ("triad", 128, 512, ("a", "b", "out"))
    assert described.repeat == 3


def test_a_texture_brings_the_picture_that_it_is_of() -> None:
    arrays = {"unused": {}, "picture": {"shape": "10, 100"}, "seen": PICTURE, "out": {"role": "output"}}
    described = cuda.describe(**(ADD | {"arrays": arrays, "args": ["seen", "out"], "defines": {"MIXED": 1}}))
    assert described.timed == described.used == ("picture", "seen", "out")
    assert (described.arrays["seen"].of, described.arrays["seen"].linear) == ("picture", True)


@pytest.mark.parametrize(
    ("picture", "seen", "message"),
    [
        ({"shape": "10, 100"}, {"role": "texture"}, 'of is ""; it must name a float32 input'),
        (
            {"shape": "10, 100", "role": "scratch"},
            {"role": "texture", "of": "picture"},
            'of is "picture"; it must name a float32 input',
        ),
        (
            {"shape": "10, 100", "dtype": "float64"},
            {"role": "texture", "of": "picture"},
            'of is "picture"; it must name a float32 input',
        ),
        ({}, {"role": "texture", "of": "picture"}, "picture has 1 dimensions; a texture here has 2"),
        ({"linear": 1}, {"role": "texture", "of": "picture"}, "of and linear are for role texture"),
    ],
)
def test_a_texture_is_of_a_float32_input_with_two_dimensions(picture: Any, seen: Any, message: str) -> None:
    arrays = {"picture": picture, "seen": seen, "out": {"role": "output"}}
    with pytest.raises(ValueError, match=message):
        cuda.describe(**(ADD | {"arrays": arrays, "args": ["seen", "out"]}))


def test_only_arrays_that_a_launch_takes_are_made() -> None:
    described = cuda.describe(**(ADD | {"arrays": ADD["arrays"] | {"more": {}}}))
    assert described.used == ("a", "b", "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entry": ""}, "either entry or launches"),
        ({"launches": [{"entry": "add"}]}, "either entry or launches"),
        ({"entry": "", "launches": [{"entry": "add", "gird": 1}]}, "gird is unknown. Allowed: entry, args, grid"),
        ({"entry": "", "launches": [{"block": 1}]}, "entry is missing"),
        ({"args": None}, "add has no args"),
        ({"args": ["a", "c", "out"]}, '"c".*arrays: a, b, out'),
        ({"args": ["a", "b"]}, "role is output"),
        ({"entry": "subtract"}, "Known: add, triad"),
        ({"block": "16,16,16"}, "1 to 1024 threads"),
        ({"block": "16,16,1,1"}, "up to three whole numbers"),
        ({"block": "2.5"}, "up to three whole numbers"),
        ({"grid": "1, 70000"}, "65535"),
        ({"cluster": 17}, "1 to 16 blocks"),
        ({"carveout": 101}, "0 to 100 percent"),
        ({"block_choices": [64, 128]}, "for block: occupancy, which no launch has"),
        ({"block": "occupancy", "block_choices": []}, "1 to 1024 threads"),
        ({"block": "occupancy", "block_choices": [64, 2048]}, "name sizes of 1 to 1024 threads"),
        ({"repeat": 0}, "1 or more"),
        ({"shape": [1, 2, 3, 4]}, "1 to 3 sides"),
        ({"shape": [4, 0]}, "above 0"),
        ({"pdl": True, "cooperative": True}, "cannot go together"),
        ({"clear": ["c"]}, "c is not an array"),
        ({"reference": {"c": "a"}}, "c is not an array"),
        ({"flops": "m * n"}, 'flops: "m"'),
        ({"flops": "-n"}, "negative"),
        ({"arrays": ADD["arrays"] | {"a": {"role": "stored"}}}, "no layout fills it"),
        ({"arrays": ADD["arrays"] | {"a": {"dtype": "int32", "low": 5, "high": 5}}}, "holds no value"),
        ({"arrays": ADD["arrays"] | {"a": {"dtype": "int32", "init": "normal"}}}, "holds no value"),
    ],
)
def test_a_wrong_description_is_refused_with_what_is_allowed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cuda.describe(**(ADD | change))


@pytest.mark.parametrize("path", kernel_scenarios(), ids=lambda path: path.stem)
def test_every_side_of_a_shipped_scenario_is_described_and_fits_a_gpu_of_today(path: Any) -> None:
    work = set()
    for side in sides_of(path):
        described = side.described()
        for launch in described.launches:
            shared = described.placed(launch, sms=132, suggested=256)
            assert 0 < shared.threads <= 1024
            assert shared.smem <= 227 << 10
        work.add((side.case, described.flops, described.useful_bytes, described.work_items))
    assert len(work) == len({case for case, *_ in work}), "the sides of a case declare different work"
