"""Finding scenario files by every kind of selector."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from aiperf.errors import UserError
from aiperf.scenario.find import find_scenarios, find_subject, list_scenarios


@pytest.fixture
def shelf(write, good, folder):
    write(good + "tags: [demo, memory]\n", "shelf/a/pinned.yaml")
    write(good + "tags: [demo]\nneeds: {gpus: 1}\ngpu: {}\naxes: {n: [1]}\n", "shelf/b/overlap.yml")
    write("title: [broken\n", "shelf/b/broken.yaml")
    write(good, "shelf/.hidden/secret.yaml")
    (folder / "shelf" / "notes.txt").write_text("no scenario")
    return folder / "shelf"


def names(selectors, shelf):
    return [p.stem for p in find_scenarios(selectors, folders=[shelf])]


@pytest.mark.parametrize(
    ("selectors", "found"),
    [
        ([], ["pinned", "broken", "overlap"]),
        (["overlap"], ["overlap"]),
        (["demo"], ["pinned", "overlap"]),
        (["overlap", "demo"], ["overlap", "pinned"]),
        (["*in*"], ["pinned"]),
        (["./shelf/a/pinned.yaml"], ["pinned"]),
        (["shelf/b/"], ["broken", "overlap"]),
        (["shelf"], ["pinned", "broken", "overlap"]),
        (["shelf/**/*.yml"], ["overlap"]),
    ],
)
def test_selectors_find_by_name_tag_pattern_file_and_folder(shelf, selectors, found):
    assert names(selectors, shelf) == found


def test_a_name_goes_before_a_tag_of_the_same_word(shelf, write, good):
    write(good, "shelf/demo.yaml")
    assert names(["demo"], shelf) == ["demo"]


def test_every_unknown_selector_gets_its_fault_and_the_nearest_name(shelf):
    with pytest.raises(UserError) as caught:
        find_scenarios(["overlab", "./nowhere.yaml", "qqq"], folders=[shelf])
    assert [(f.what, f.hint) for f in caught.value.faults] == [
        ('"overlab" is not a scenario, tag, file or folder.', "Did you mean overlap?"),
        ('"./nowhere.yaml" matches no scenario file.', "Give a .yaml file, or a folder that holds some."),
        ('"qqq" is not a scenario, tag, file or folder.', "Tags: demo, memory. aiperf list shows all names."),
    ]


def test_many_tags_are_left_to_the_list(shelf):
    (shelf / "many.yaml").write_text(f"title: Many\ntags: [{', '.join(f't{n}' for n in range(30))}]\n")
    with pytest.raises(UserError) as caught:
        find_scenarios(["qqq"], folders=[shelf])
    assert caught.value.faults[0].hint == "aiperf list shows all names."


def test_a_file_that_lies_there_under_the_name_is_what_was_meant(shelf, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("")
    with pytest.raises(UserError) as caught:
        find_scenarios(["mine", "./mine"], folders=[shelf])
    assert [f.hint for f in caught.value.faults] == ["Did you mean ./mine.yaml?"] * 2


WORKLOADS = ("cuda.kernel", "demo.copy", "peaks.d2h", "peaks.h2d")


def test_a_scenario_goes_before_a_workload_of_the_same_name(shelf, write, good):
    assert find_subject("demo.copy", workloads=WORKLOADS, folders=[shelf]) == []
    path = write(good, "shelf/demo.copy.yaml")
    assert find_subject("demo.copy", workloads=WORKLOADS, folders=[shelf]) == [path]
    assert len(find_subject("demo", workloads=WORKLOADS, folders=[shelf])) == 2


def test_what_is_no_workload_either_names_the_nearest_of_both_kinds(shelf):
    told = []
    for name in ("demo.cpy", "overlab", "cuda.kernal", "cuda", "peaks", "qqq", "./nowhere.yaml"):
        with pytest.raises(UserError) as caught:
            find_subject(name, workloads=WORKLOADS, folders=[shelf])
        told += [(f.what, f.hint) for f in caught.value.faults]
    none = "is not a scenario, tag, file, folder or workload."
    assert told == [
        (f'"demo.cpy" {none}', "Did you mean demo, or the workload demo.copy?"),
        (f'"overlab" {none}', "Did you mean overlap?"),
        (f'"cuda.kernal" {none}', "Did you mean the workload cuda.kernel?"),
        (f'"cuda" {none}', "Did you mean the workload cuda.kernel?"),
        (f'"peaks" {none}', "Did you mean one of the workloads peaks.d2h, peaks.h2d?"),
        (f'"qqq" {none}', "Tags: demo, memory. aiperf list shows all names, aiperf list --workloads the workloads."),
        ('"./nowhere.yaml" matches no scenario file.', "Give a .yaml file, or a folder that holds some."),
    ]


def test_files_of_one_name_clash_when_a_subject_is_sought_too(shelf, write, good):
    write(good, "shelf/b/pinned.yaml")
    with pytest.raises(UserError, match="two scenarios have the name pinned"):
        find_subject("pinned", workloads=WORKLOADS, folders=[shelf])


@pytest.mark.parametrize("selector", ["", "[", "a\0b", "~nobody/x", "x" * 5000])
def test_odd_selectors_are_faults_too(shelf, selector):
    with pytest.raises(UserError):
        find_scenarios([selector], folders=[shelf])


def test_two_files_of_one_name_clash(shelf, write, good):
    write(good, "mine/pinned.yaml")
    with pytest.raises(UserError, match=r"two .* pinned: shelf/a/pinned\.yaml and mine/pinned\.yaml"):
        find_scenarios(["pinned", "mine/pinned.yaml"], folders=[shelf])


def test_one_file_named_twice_comes_once(shelf):
    assert names(["pinned", "./shelf/a/../a/pinned.yaml"], shelf) == ["pinned"]


def test_a_listing_tells_what_the_file_says_and_keeps_broken_files(shelf):
    broken, overlap, pinned = list_scenarios([shelf])
    assert broken.problem.startswith("shelf/b/broken.yaml:2:1: is not valid YAML")
    assert (overlap.gpus, overlap.gpu_sizes, overlap.axes, overlap.tags) == (1, True, ("n",), ("demo",))
    assert (pinned.title, pinned.workload) == ("Pageable against pinned", "./bench.py:copy")


@pytest.mark.parametrize(
    ("sides", "workloads"),
    [
        ("before: {}\nafter: {}\n", ("a.one",)),
        ("before: {workload: b.two}\nafter: {}\n", ("b.two", "a.one")),
        ("before: {workload: b.two}\nladder: {x: {workload: c.three}, y: {workload: b.two}}\n", ("b.two", "c.three")),
        ("before: {command: [sleep, 1]}\nafter: {command: [sleep, 2]}\n", ()),
        ("before: {workload: [1]}\nafter: 3\n", ()),
    ],
)
def test_a_listing_names_every_workload_that_a_side_runs(write, folder, sides, workloads):
    write("workload: a.one\n" + sides, "sides/x.yaml")
    (entry,) = list_scenarios([folder / "sides"])
    assert (entry.workload, entry.workloads) == ("a.one", workloads)


def test_each_of_thirty_files_is_read_once_for_their_listing(write, good, folder, monkeypatch):
    read: Counter[str] = Counter()
    plain = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.update([path.name]), plain(path))[1])
    for i in range(30):
        write(good + f"tags: [t{i}]\n" + "axes: {n: [1, 2, 3]}\n" * 1, f"many/s{i}.yaml")
    assert len(list_scenarios([folder / "many"])) == 30
    assert read == {f"s{i}.yaml": 1 for i in range(30)}


def test_an_unreadable_folder_entry_does_not_stop_the_listing(shelf):
    os.symlink(shelf / "gone.yaml", shelf / "dangling.yaml")
    assert "dangling" in [entry.name for entry in list_scenarios([shelf])]
