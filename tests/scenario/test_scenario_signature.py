"""Signatures read from source, and values held against them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.errors import UserError
from aiperf.scenario import signature as module
from aiperf.scenario import source
from aiperf.scenario.binding import bind, convert, entry_annotation, missing
from aiperf.scenario.signature import families, lacking, read_signature, resolve_workload
from aiperf.units import InvalidValue

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A folder of shipped workloads of this test's own."""
    (tmp_path / "w").mkdir()
    for each in (module, source):
        monkeypatch.setattr(each, "workload_folder", lambda: tmp_path / "w")
    return tmp_path / "w"


def test_parameters_annotations_and_defaults_come_from_the_source(folder):
    found = read_signature("./bench.py:copy", base=folder)
    assert found.parameters["size"] == "Size"
    assert found.parameters["direction"] == "Literal['h2d', 'd2h']"
    assert found.parameters["limit"] == "Size | None"
    assert found.defaults["n"] == 4096
    assert found.defaults["shape"] == [2, 2]
    assert "size" not in found.defaults
    assert "ctx" not in found.parameters
    assert found.doc == "Copies a buffer."


def test_nothing_of_the_workload_is_run(folder):
    (folder / "loud.py").write_text("raise SystemExit('ran')\nimport torch\ndef f(ctx, *, n: int): ...\n")
    before = set(sys.modules)
    assert read_signature("./loud.py:f", base=folder).parameters == {"n": "int"}
    assert not {m for m in set(sys.modules) - before if m.startswith(("torch", "loud"))}


def family(shipped, name, text):
    (shipped / name).mkdir()
    (shipped / name / "workload.py").write_text(text)


def test_a_shipped_workload_is_found_in_the_package_of_its_family(shipped):
    family(shipped, "transfer", "def copy(ctx, *, n: int = 1): ...\n")
    family(shipped, "cuda", "from aiperf.workloads.cuda.kernel import kernel\n")
    (shipped / "shared").mkdir()
    (shipped / "cuda" / "kernel.py").write_text(
        "from .kinds import Kind, SIZE\ndef kernel(ctx, *, k: Kind, s=SIZE): ...\n"
    )
    (shipped / "cuda" / "kinds.py").write_text("Kind = Literal['a']\nSIZE = 2 * 3\n")
    (shipped / "contract.py").write_text("")
    assert families() == ["cuda", "transfer"]
    assert read_signature("transfer.copy", base=shipped).parameters == {"n": "int"}
    kernel = read_signature("cuda.kernel", base=shipped)
    assert (kernel.parameters["k"], kernel.defaults["s"]) == ("Literal['a']", 6)


def test_an_unknown_family_names_the_nearest(shipped):
    family(shipped, "transfer", "def copy(ctx): ...\n")
    with pytest.raises(UserError) as caught:
        resolve_workload("transfr.copy", base=shipped)
    fault = caught.value.faults[0]
    assert fault.what == '"transfr.copy": there is no workload family transfr; allowed: transfer.'
    assert fault.hint == "Did you mean transfer?"


def test_the_contract_and_private_modules_are_no_families(shipped):
    (shipped / "contract.py").write_text("def f(ctx): ...\n")
    (shipped / "_x.py").write_text("def f(ctx): ...\n")
    for name in ("contract.f", "_x.f"):
        with pytest.raises(UserError, match="no workload family"):
            read_signature(name, base=shipped)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def f(ctx:\n", "b.py:1 is not valid Python"),
        ("f = 3\n", "has no function f"),
        ("class f: ...\n", "has no function f"),
        ("x = '\0'\n", "is not valid Python"),
        ("def f() -> Workload: ...\n", "takes no context"),
    ],
)
def test_source_that_is_no_workload_is_a_fault(folder, source, says):
    (folder / "b.py").write_text(source)
    with pytest.raises(UserError, match=says):
        read_signature("./b.py:f", base=folder)


@pytest.mark.parametrize(
    "head",
    [
        "def f(context, *, n: int)",
        "def f(ctx, *, n: int)",
        "def f(_, *, n: int)",
        "def f(c: Context, *, n: int)",
        "def f(c: contract.Context, *, n: int)",
        "def f(c, *, n: int) -> Workload",
        "def f(c, *, n: int) -> 'contract.Workload'",
    ],
)
def test_a_function_that_takes_a_context_or_returns_a_workload_makes_one(folder, head):
    (folder / "b.py").write_text(f"{head}: ...\n")
    found = read_signature("./b.py:f", base=folder)
    assert (found.plain, found.parameters, found.open) == (False, {"n": "int"}, False)


@pytest.mark.parametrize(
    ("head", "parameters", "open_"),
    [
        ("def f(n: int)", {"n": "int"}, False),
        ("def f(a, /, b, *, n: int = 1)", {"a": "Any", "b": "Any", "n": "int"}, False),
        ("def f(context: str)", {"context": "str"}, False),
        ("def f(**more)", {}, True),
        ("@cache\ndef f(n)", {"n": "Any"}, True),
    ],
)
def test_any_other_function_is_a_step_whose_parameters_are_all_its_own(folder, head, parameters, open_):
    (folder / "b.py").write_text(f"{head}: ...\n")
    found = read_signature("./b.py:f", base=folder)
    assert (found.plain, found.parameters, found.open) == (True, parameters, open_)


def test_static_and_class_methods_are_functions_and_what_only_an_import_shows_takes_anything(folder):
    assert read_signature("./bench.py:Parser.fast", base=folder).parameters == {"text": "str"}
    assert read_signature("./bench.py:Parser.made", base=folder).parameters == {"text": "str"}
    for unseen in ("./bench.py:quick", "./bench.py:Literal", "json:loads"):
        found = read_signature(unseen, base=folder)
        assert (found.plain, found.open) == (True, True), unseen
    with pytest.raises(UserError, match="has no function TABLE"):
        read_signature("./bench.py:TABLE", base=folder)


def test_a_module_beside_the_scenario_is_its_file(folder):
    assert resolve_workload("bench:copy", base=folder)[0] == f"{folder}/bench.py:copy"
    assert resolve_workload("json:loads", base=folder) == ("json:loads", None, "loads")


def test_a_name_that_an_installed_module_clearly_lacks_is_refused_and_nothing_is_imported_for_it(folder):
    for workload in ("os.path:join", "numpy.linalg:solve", "math:sqrt", "nowhere:f", "torch.nn.functional:relu"):
        assert read_signature(workload, base=folder).open
    for workload, near in (("os.path:joinn", "join"), ("json:dumpps", "dumps"), ("colorsys:rgb_to_hsvv", "rgb_to_hsv")):
        with pytest.raises(UserError, match=f"has no function {workload.partition(':')[2]}") as told:
            read_signature(workload, base=folder)
        assert near in str(told.value.faults[0])
    code = "import sys; from pathlib import Path; from aiperf.scenario.signature import read_signature as read\n"
    code += "read('torch.nn.functional:relu', base=Path('.')); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout == "False\n"


def test_a_module_in_folders_without_init_is_found_and_none_of_them_is_imported(folder, monkeypatch):
    place = folder / "outer" / "middle" / "inner"
    place.mkdir(parents=True)
    (place / "deep.py").write_text("def step(n: int): pass\n")
    monkeypatch.syspath_prepend(folder)
    assert list(read_signature("outer.middle.inner.deep:step", base=folder).parameters) == ["n"]
    assert source.source_of_module("outer.middle.inner.deep") == place / "deep.py"
    assert source.source_of_module("outer.nowhere.deep") is None
    assert "outer" not in sys.modules


def test_aliases_that_go_in_circles_end(folder):
    (folder / "b.py").write_text("A = B\nB = A\nX = X\ndef f(ctx, *, a: A = A, x: X = X + 1): ...\n")
    assert set(read_signature("./b.py:f", base=folder).parameters) == {"a", "x"}


def test_defaults_that_would_grow_without_bound_stay_text(folder):
    (folder / "b.py").write_text("def f(ctx, *, a=10**10**10, b=256 << 20, c=2**70, d=1 << 10**10): ...\n")
    assert read_signature("./b.py:f", base=folder).defaults == {
        "a": "10 ** 10 ** 10", "b": 2**28, "c": "2 ** 70", "d": "1 << 10 ** 10"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("def f(context, *, n, m=1): ...", ""),
        ("def f(context, n, /, m): ...", ""),
        ("def f(context, n): ...", "no parameter m of f"),
        ("def f(context): ...", "no parameter n and m of f"),
        ("def f(n, *, m): ...", "no parameter n of f"),
        ("def g(context): ...\nimport f2\nf3 = g", "no function f"),
        ("", "no function f"),
    ],
)
def test_what_another_text_lacks_for_a_call_is_told(text, lacks):
    assert lacking(text, "f", {"n": 1, "m": 2}) == lacks


def test_a_plain_function_of_another_commit_takes_its_first_parameter_too():
    assert lacking("def f(n, *, m): ...", "f", {"n": 1, "m": 2}, plain=True) == ""
    assert lacking("def f(k): ...", "f", {"n": 1}, plain=True) == "no parameter n of f"


@pytest.mark.parametrize(
    "text",
    [
        "def f(context, **more): ...",
        "@wrapped\ndef f(context): ...",
        "from helpers import f",
        "from helpers import g as f",
        "from helpers import *",
        "import f.g",
        "f = make()",
        "if True:\n    def f(context): ...",
        "try:\n    import a\nexcept ImportError:\n    f = None",
        "def __getattr__(name): ...",
        "globals()['f'] = 1",
        "def f(:",
        "x = '\udcff'",
    ],
)
def test_what_only_running_another_text_could_tell_is_not_said_to_lack(text):
    assert lacking(text, "f", {"n": 1}) == ""


def test_an_edited_file_is_read_again(folder):
    import os

    read_signature("./bench.py:copy", base=folder)
    (folder / "bench.py").write_text("def copy(ctx, *, fresh: int): ...\n")
    os.utime(folder / "bench.py", ns=(1, 1))
    assert set(read_signature("./bench.py:copy", base=folder).parameters) == {"fresh"}


@pytest.mark.parametrize(
    ("annotation", "value", "typed"),
    [
        ("Size", "1MiB", 1024**2),
        ("Size", 7, 7),
        ("Seconds", "2ms", 0.002),
        ("float", 2, 2.0),
        ("int", 2, 2),
        ("bool", False, False),
        ("list[Size]", ["1KiB", 2], [1024, 2]),
        ("dict[str, Seconds]", {"a": "1s"}, {"a": 1.0}),
        ("dict", {"a": 1}, {"a": 1}),
        ("tuple[int, ...]", [1, 2], [1, 2]),
        ("Literal['a', 2, True]", 2, 2),
        ("Size | None", None, None),
        ("Optional[Size]", "1KiB", 1024),
        ("int | str", "x", "x"),
        ("contract.Size", "1KiB", 1024),
        ("np.dtype", "anything", "anything"),
        ("Any", None, None),
    ],
)
def test_values_become_what_the_workload_receives(annotation, value, typed):
    converted = convert(value, annotation)
    assert converted == typed
    assert type(converted) is type(typed)


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        ("Size", "12Q", '"12Q" is not a size.'),
        ("Size", -1, '"-1" is not a size.'),
        ("Seconds", 2, '"2" is not a time.'),
        ("int", True, "true is not a whole number."),
        ("int", 1.0, "1.0 is not a whole number."),
        ("float", "1", '"1" is not a number.'),
        ("bool", 1, "1 is not true or false."),
        ("str", 1, '1 is not text. Quote it: "1".'),
        ("Literal['1', '2']", 1, '1 is not allowed; allowed: 1, 2. Quote it: "1".'),
        ("Literal[1, True]", 1.0, "1.0 is not allowed; allowed: 1, true."),
        ("list[int]", 1, "1 is not a list. Write [1]."),
        ("list[int]", ["a"], '"a" is not a whole number.'),
        ("int | float | str", [128], "[128] is not allowed; allowed: number or text."),
        ("int | str", {"a": 1}, '{"a": 1} is not allowed; allowed: whole number or text.'),
        ("int | list[int]", ["a"], '"a" is not a whole number.'),
        ("int | None", [1], "[1] is not a whole number."),
        ("tuple[int, int]", [1], "[1] has 1 entries. Write 2."),
        ("dict[str, int]", {"a": "b"}, '"b" is not a whole number.'),
        ("dict[str, int]", [1], "[1] is not a mapping."),
        ("int", None, "null is not a value."),
        ("Size | None", "x", '"x" is not a size.'),
    ],
)
def test_values_of_another_kind_are_refused_with_advice(annotation, value, says):
    with pytest.raises(ValueError, match="^" + __import__("re").escape(says)):
        convert(value, annotation)


def test_entries_of_mappings_have_an_annotation_and_other_parameters_have_none():
    found = [entry_annotation(a, "x") for a in ("dict[str, int]", "dict", "int", "Any")]
    assert found == ["int", "Any", None, "Any"]


def test_a_typed_dict_names_the_keys_of_a_mapping_and_the_type_of_each(folder):
    (folder / "keys.py").write_text(
        "from typing import Literal, TypedDict\n"
        'METRICS = {"run": {"goodput": ("1/s", "higher"), "bad": "s"}, "other": {"x": ("s", "lower")}}\n'
        "Kind = Literal['poisson', 'constant']\n"
        "class Trace(TypedDict, total=False):\n"
        "    rate: float\n    arrivals: Kind\n    lengths: int | list[int]\n"
        "def run(context, *, trace: Trace | str) -> 'Workload': ...\n",
        encoding="utf-8",
    )
    found = read_signature("./keys.py:run", base=folder)
    assert found.metrics == {"goodput": ("1/s", "higher")}
    annotation = found.parameters["trace"]
    assert convert({"rate": 2, "lengths": [1, 2]}, annotation) == {"rate": 2.0, "lengths": [1, 2]}
    assert convert("./trace.jsonl", annotation) == "./trace.jsonl"
    assert (entry_annotation(annotation, "rate"), entry_annotation(annotation, "ratee")) == ("float", None)
    for value, said in (
        ({"ratee": 2}, '"ratee" is not a key; allowed: rate, arrivals, lengths.'),
        ({"arrivals": "uniform"}, 'arrivals: "uniform" is not allowed; allowed: poisson, constant.'),
        ({"rate": "fast"}, "rate: "),
    ):
        with pytest.raises(InvalidValue) as raised:
            convert(value, annotation)
        assert raised.value.what.startswith(said)


def test_a_typed_dict_of_a_neighbouring_file_is_followed(folder):
    (folder / "limits.py").write_text("class Limits(TypedDict, total=False):\n    ttft: Seconds\n", encoding="utf-8")
    text = "from .limits import Limits\ndef run(context, *, slo: Limits = {}) -> 'Workload': ...\n"
    (folder / "uses.py").write_text(text, encoding="utf-8")
    annotation = read_signature("./uses.py:run", base=folder).parameters["slo"]
    assert convert({"ttft": "100ms"}, annotation) == {"ttft": 0.1}


def test_bind_refuses_unknown_names_and_missing_names_the_rest(folder):
    found = read_signature("./bench.py:copy", base=folder)
    assert missing(found, {"n"}) == ["size"]
    assert bind(found, {"size": "1KiB"}) == {"size": 1024}
    with pytest.raises(ValueError, match='"sise" is not a parameter'):
        bind(found, {"sise": 1})
