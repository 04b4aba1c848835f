"""Strict YAML: what is refused, where, and in which words."""

from __future__ import annotations

import pytest

from aiperf.errors import UserError
from aiperf.scenario.document import read_document
from aiperf.scenario.load import load_scenario


def test_words_that_older_yaml_turns_into_booleans_or_minutes_stay_text(write):
    path = write("a: on\nb: off\nc: yes\nd: 1:30\ne: 012\nf: true\ng: 0x10\nh: 1e3\ni: ~\nj: '1'\nk: 1_000\n")
    expected = {"a": "on", "b": "off", "c": "yes", "d": "1:30", "e": 12, "f": True, "g": 16, "h": 1000.0}
    assert read_document(path).data == {**expected, "i": None, "j": "1", "k": "1_000"}


def test_a_document_knows_line_and_column_of_every_key_and_value(write):
    document = read_document(write("a: 1\nb:\n  c: [x, y]\n"))
    assert document.keys["b", "c"] == (3, 3)
    assert document.values["b", "c", 1] == (3, 10)


def test_a_byte_order_mark_is_no_fault(write, good):
    assert load_scenario(write(b"\xef\xbb\xbf" + good.encode())).title == "Pageable against pinned"


def test_an_empty_file_says_so(faults):
    for text in ("", "\n\n", "# only a comment\n", "---\n", "null\n"):
        assert faults(text) == ["x.yaml:1:1: is empty. Start with aiperf new NAME, or copy a shipped scenario."]


def test_a_list_is_not_a_scenario(faults):
    assert faults("- a\n- b\n") == [
        "x.yaml:1:1: is not a mapping of keys. Write key: value lines, starting with title:."
    ]


def test_a_file_of_ten_megabytes_is_refused_unread(faults):
    assert faults(b"a: 1\n" * 2_097_152) == [
        "x.yaml: is 10.0 MiB long; the limit for a scenario file is 1 MiB. Move data to a file that the workload reads."
    ]


def test_a_file_that_is_not_utf8_names_the_byte_and_its_line(faults):
    assert faults(b"title: a\nwhy: caf\xe9\n") == [
        "x.yaml:2:1: is not UTF-8 text: byte 0xe9 cannot be read. Save the file as UTF-8."
    ]


def test_a_tab_in_the_indentation_is_named_as_such(faults):
    assert faults("title: a\nbefore:\n\tpinned: false\n") == [
        "x.yaml:3:1: is indented with a tab. Indent with spaces; YAML allows no tabs there."
    ]


def test_a_python_object_is_refused_and_never_built(faults, folder):
    text = f"title: !!python/object/apply:os.system ['touch {folder}/built']\n"
    lines = faults(text)
    tag = "!!python/object/apply:os.system"
    assert f"x.yaml:1:8: title: the tag {tag} is not allowed. Write plain text, numbers or lists." in lines
    assert len([line for line in lines if line.startswith("x.yaml:1:8:")]) == 1
    assert not (folder / "built").exists()


def test_an_anchors_bomb_is_refused_at_every_anchor_and_alias(faults):
    text = 'a: &a ["x", "x"]\n' + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
    )
    lines = faults(text)
    assert "x.yaml:1:4: a: the anchor &a is not allowed. Write the value out." in lines
    assert "x.yaml:2:8: b[1]: the alias *a is not allowed. Write the value out." in lines


def test_a_repeated_key_names_the_first_line(faults, good):
    assert faults(good + "title: again\n") == [
        "x.yaml:7:1: title appears twice, first on line 1. Remove one of the two."
    ]


def test_a_second_document_is_refused(faults, good):
    assert faults(good + "---\n" + good) == [
        "x.yaml:7:1: starts a second document. Keep one scenario per file: remove the ---."
    ]


def test_broken_yaml_points_at_the_place(faults):
    assert faults("title: [a\nwhy: b\n")[0].startswith("x.yaml:2:4: is not valid YAML: ")


def test_endless_nesting_ends_in_one_fault(faults):
    assert faults("a: " + "[" * 500 + "]" * 500)[0].endswith(
        "is nested more than 12 levels deep. A scenario needs three or four."
    )


def test_numbers_that_are_not_finite_are_refused(faults, good):
    assert "params.share: .inf is not a finite number." in " ".join(
        faults(good.replace("size: 1MiB", "size: 1MiB, share: .inf"))
    )


@pytest.mark.parametrize(("name", "says"), [("absent.yaml", "does not exist."), ("sub", "is a folder")])
def test_a_path_that_is_no_file_says_what_it_is(folder, name, says):
    (folder / "sub").mkdir()
    with pytest.raises(UserError, match=says):
        load_scenario(folder / name)
