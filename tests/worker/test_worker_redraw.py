"""Fresh inputs by kind: what is drawn, what is shuffled, and what stays because it may be structure."""

import numpy as np
import pytest
import torch

from aiperf.worker.redraw import Redraw
from aiperf.workloads.contract import Work, Workload


def redraw_of(**inputs):
    return Redraw(Workload(lambda: None, Work(), outputs=dict, inputs=lambda: inputs))


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_whole_numbers_that_repeat_are_drawn_with_other_counts_alike_for_alike_seeds(make):
    drawn = np.random.default_rng(0).integers(0, 50, 4096)
    labels, twin = make(drawn), make(drawn)
    redraw_of(y=labels)(11)
    redraw_of(y=twin)(11)
    assert labels.tolist() == twin.tolist()
    counts, were = np.bincount(np.asarray(labels), minlength=50), np.bincount(drawn, minlength=50)
    assert (counts != were).sum() > 25
    assert set(labels.tolist()) <= set(drawn.tolist())


def test_inputs_of_equal_content_are_redrawn_alike_whatever_library_holds_them():
    drawn = np.random.default_rng(0).standard_normal(100_003).astype(np.float32) * 7 + 1e-4
    for content in (drawn, np.full(9, 0.1, np.float32)):
        ours, theirs = content.copy(), torch.tensor(content)
        redraw_of(x=ours)(3)
        redraw_of(x=theirs)(3)
        assert ours.tolist() == theirs.tolist() != content.tolist()


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_whole_numbers_that_each_occur_once_are_shuffled_alike_for_alike_seeds(make):
    labels, twin = (make([3, 1, 2, 9, 4, 7, 0, 5]) for _ in range(2))
    redraw_of(y=labels)(11)
    redraw_of(y=twin)(11)
    assert labels.tolist() == twin.tolist() != [3, 1, 2, 9, 4, 7, 0, 5]
    assert sorted(labels.tolist()) == [0, 1, 2, 3, 4, 5, 7, 9]


def test_a_seed_gives_the_same_order_whatever_was_drawn_before():
    labels = np.array([3, 1, 2, 9, 4, 7, 0, 5])
    redraw = redraw_of(y=labels)
    redraw(11)
    first = labels.tolist()
    redraw(12)
    assert labels.tolist() != first
    redraw(11)
    assert labels.tolist() == first


def test_rows_of_a_table_stay_whole():
    rows = [(5, 1), (2, 2), (9, 0), (4, 4), (7, 3), (1, 6)]
    table, keys = np.array(rows), np.arange(12)[::-1].reshape(6, 2)[[3, 0, 5, 1, 4, 2]]
    were = {tuple(row) for row in keys.tolist()}
    redraw_of(table=table, keys=keys)(3)
    assert {tuple(row) for row in table.tolist()} < set(rows)
    assert {tuple(row) for row in keys.tolist()} == were


@pytest.mark.parametrize(
    "structure",
    [
        np.array([0, 4, 4, 9]), np.array([9, 4, 0]), np.full(5, 7), np.array([True, False, True]),
        np.array([0.0, -np.inf]), np.array(5), torch.tensor([0, 2, 5]), torch.tensor([[False, True], [True, False]]),
    ],
)  # fmt: skip
def test_offsets_constants_and_masks_stay_as_they_are(structure):
    was = structure.tolist()
    redraw = redraw_of(a=structure)
    redraw(5)
    assert structure.tolist() == was
    assert not redraw.possible


def test_a_constant_gets_noise_so_that_no_side_can_do_without_it():
    gamma, beta = np.ones(4096, np.float32), torch.zeros(4096)
    redraw_of(gamma=gamma, beta=beta)(7)
    assert 0.015 < gamma.std() < 0.025
    assert abs(gamma.mean() - 1) < 0.005
    assert 0.015 < float(beta.std()) < 0.025


def test_a_wide_draw_lies_far_from_the_usual_one():
    x = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    redraw = redraw_of(x=x)
    redraw(7, wide=True)
    assert 25 < x.std() < 35
    assert x.mean() > 1
    redraw(7)
    assert 0.9 < x.std() < 1.1


def test_the_workloads_own_redraw_comes_first_and_alone():
    seeds = []
    x = np.ones(3)
    workload = Workload(lambda: None, Work(), outputs=dict, inputs=lambda: {"x": x}, redraw=seeds.append)
    Redraw(workload)(4)
    assert seeds == [4]
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_contents_are_swapped_without_a_call_of_the_side_and_drawn_as_audits_draw_them(make):
    x, called = make(np.random.default_rng(0).standard_normal(1000)), []
    redraw = Redraw(Workload(lambda: None, Work(), outputs=dict, inputs=lambda: called.append(1) or {"x": x}))
    swap, first = redraw.swap(), x.tolist()
    assert swap is not None
    swap.draw(7)
    assert x.tolist() == first
    swap.write(new=True)
    drawn = x.tolist()
    swap.write(new=False)
    assert x.tolist() == first != drawn
    assert len(called) == 1
    redraw(7)
    assert x.tolist() == drawn


def test_a_side_that_redraws_itself_is_not_passed_over():
    x = np.zeros(9)
    own = Workload(lambda: None, Work(), outputs=dict, inputs=lambda: {"x": x}, redraw=lambda seed: None)
    assert [Redraw(own).swap(), redraw_of(flags=np.array([True, False])).swap()] == [None, None]


def keys_of(make=np.array):
    draw = np.random.default_rng(0)
    return make(draw.permutation(np.unique(draw.integers(0, 1 << 40, 500))[:400]))


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_keys_that_each_occur_once_are_varied_by_others_and_come_back(make):
    keys = keys_of(make)
    redraw, were = redraw_of(keys=keys, x=np.ones(8)), keys.tolist()
    draws = redraw.variations(())
    assert list(draws) == ["keys"]
    restore = redraw.vary(draws, 7)
    now = keys.tolist()
    assert len(set(now)) == 400
    assert 150 <= len(set(now) - set(were)) <= 200
    assert min(were) <= min(now) <= max(now) <= max(were)
    restore()
    assert keys.tolist() == were


def test_keys_that_may_be_places_or_have_to_do_with_others_stay_as_they_are():
    places, twice = np.random.default_rng(0).permutation(400), np.array([5, 1 << 40, 5, 3] * 10)
    assert redraw_of(keys=places).variations(()) == {}
    assert redraw_of(keys=twice).variations(()) == {}
    assert redraw_of(keys=keys_of(), wanted=np.array([3, 1, 2])).variations(()) == {}
    keys = keys_of()
    told = Workload(lambda: None, Work(), outputs=dict, inputs=lambda: {"keys": keys}, fixed_inputs="an index's own")
    assert Redraw(told).variations(()) == {}


def parts(shape):
    """What is drawn large: every second number of each row, but for the first quarter of any dimension."""
    large = np.zeros(shape, bool)
    places = [slice(extent // 4, None) for extent in shape]
    large[(*places[:-1], slice(places[-1].start, None, 2))] = True
    return large


@pytest.mark.parametrize("make", [np.array, torch.tensor])
@pytest.mark.parametrize("shape", [(4096,), (64, 64), (8, 8, 64), (4096, 1)])
def test_large_inputs_are_large_in_a_part_that_no_half_and_no_stride_of_two_has_the_share_of(make, shape):
    content = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x = make(content)
    redraw_of(x=x)(5, wide=True)
    values, large = np.asarray(x), parts(shape)
    assert abs(values[~large]).max() < 6
    assert values[large].std() == pytest.approx(48, rel=0.1)
    assert values[large].mean() > 1


@pytest.mark.parametrize(("kind", "largest"), [("float16", 11.0), ("float32", 88.8), ("float64", 709.8)])
def test_of_large_inputs_some_lie_beyond_what_exp_takes_in_small_arrays_too(kind, largest):
    x = np.random.default_rng(0).standard_normal((32, 32)).astype(kind)
    redraw = redraw_of(x=x)
    for seed in range(200):
        redraw(seed, wide=True)
        assert x.max() > largest


def test_large_inputs_are_the_same_whatever_library_holds_them():
    content = np.random.default_rng(0).standard_normal((100, 33)).astype(np.float32)
    ours, theirs = content.copy(), torch.tensor(content)
    redraw_of(x=ours)(3, wide=True)
    redraw_of(x=theirs)(3, wide=True)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("shape", [(4096,), (64, 64), (8, 8, 64)])
def test_a_move_changes_half_of_the_large_numbers_so_that_no_norm_hides_it(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    redraw = redraw_of(x=x)
    redraw(5, wide=True)
    before = x.copy()
    redraw.move()
    moved = x != before
    assert not (moved & ~parts(shape)).any()
    assert (moved & parts(shape)).sum() == parts(shape).sum() // 2
    assert abs(x / before - 1).max() == pytest.approx(1e-9, rel=1e-3)
