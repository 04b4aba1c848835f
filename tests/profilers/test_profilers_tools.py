"""Finding profilers: where, which of several, what it can do, what it lacks; all with stand-ins that answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from profilers_made import program

from aiperf.profilers import tools
from aiperf.profilers.nsys import HELP_WORDS
from aiperf.profilers.nsys import PLACES as NSYS_PLACES
from aiperf.profilers.tools import (
    FoundTool,
    candidates,
    find_tool,
    has_ncu_report,
    importers,
    missing_libraries,
    offered_counters,
    packages_of,
    version_in,
)

NSYS = """
if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version {version}"; exit; fi
if [ "$1" = profile ]; then echo "  --wait="; echo "  --cuda-graph-trace="; fi
if [ "$1" = export ]; then echo "  --type="; fi
"""


PLACES = tuple(place for place in NSYS_PLACES if place.startswith("{cuda}"))
"""Only what a test makes: this machine's own tools are out of sight."""


def nsys(path: Path, version: str) -> Path:
    return program(path, NSYS.format(version=version))


def test_the_newest_that_answers_is_taken_wherever_it_lies(tmp_path: Path):
    nsys(tmp_path / "path" / "nsys", "2022.4.2.1-df9881f")
    newer = nsys(tmp_path / "cuda" / "bin" / "nsys", "2025.3.1.90-253135822126v0")
    program(tmp_path / "cuda" / "nsight-systems-9" / "bin" / "nsys", "exit 1")
    tool = find_tool(
        "nsys",
        places=PLACES,
        help_words=HELP_WORDS,
        environ={"PATH": f"{tmp_path}/path:/usr/bin", "CUDA_HOME": f"{tmp_path}/cuda"},
    )
    assert tool is not None
    assert (tool.path, tool.version, tool.version_text) == (newer, (2025, 3, 1), "2025.3.1")


def test_the_named_one_is_taken_although_it_is_older(tmp_path: Path):
    old = nsys(tmp_path / "mine", "2020.1.0")
    nsys(tmp_path / "path" / "nsys", "2025.3.1")
    tool = find_tool(
        "nsys", places=PLACES, help_words=HELP_WORDS, environ={"PATH": f"{tmp_path}/path", "AIPERF_NSYS": str(old)}
    )
    assert tool is not None
    assert tool.path == old


@pytest.mark.parametrize("kind", ["absent", "silent", "not executable", "a folder"])
def test_a_named_one_that_does_not_answer_is_not_replaced_by_another(tmp_path: Path, kind: str):
    nsys(tmp_path / "path" / "nsys", "2025.3.1")
    named = tmp_path / "mine"
    if kind == "silent":
        program(named, "exit 0")
    elif kind == "not executable":
        named.write_text("x")
    elif kind == "a folder":
        named.mkdir()
    nsys(tmp_path / "cuda" / "bin" / "nsys", "2025.3.1")
    environ = {"PATH": f"{tmp_path}/path", "CUDA_HOME": f"{tmp_path}/cuda", "AIPERF_NSYS": str(named)}
    assert find_tool("nsys", places=PLACES, help_words=HELP_WORDS, environ=environ) is None


def test_each_real_file_is_asked_once_in_the_order_of_search(tmp_path: Path):
    first = nsys(tmp_path / "path" / "nsys", "2022.4.2")
    second = nsys(tmp_path / "cuda" / "bin" / "nsys", "2023.1.1")
    third = nsys(tmp_path / "cuda" / "nsight-systems-2024.1" / "bin" / "nsys", "2024.1.1")
    link = tmp_path / "cuda" / "nsight-systems-2023.1" / "bin" / "nsys"
    link.parent.mkdir(parents=True)
    link.symlink_to(second)
    environ = {"PATH": str(first.parent), "CUDA_HOME": str(tmp_path / "cuda")}
    assert list(candidates("nsys", PLACES, environ=environ)) == [first, second, third]


def test_the_nsys_inside_nsight_compute_is_found_last(tmp_path: Path):
    own = nsys(tmp_path / "nsight-compute-2025.3.1" / "host" / "target-linux-x64" / "nsys", "2025.3.1")
    assert list(candidates("nsys", PLACES, environ={"PATH": "", "CUDA_PATH": str(tmp_path)})) == [own]


def test_nothing_found_is_none(tmp_path: Path):
    assert (
        find_tool(
            "nsys", places=PLACES, help_words=HELP_WORDS, environ={"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path)}
        )
        is None
    )


def test_what_a_tool_can_do_is_read_from_its_help_whole_words_only(tmp_path: Path):
    nsys(tmp_path / "nsys", "2022.4.2")
    tool = find_tool("nsys", places=PLACES, help_words=HELP_WORDS, environ={"PATH": str(tmp_path)})
    assert tool is not None
    assert (tool.can("--wait"), tool.can("--cuda-graph-trace"), tool.can("--type")) == (True, True, True)
    assert (tool.can("--graph"), tool.can("--cuda-graph"), tool.can("wait")) == (False, False, False)


def test_a_tool_gets_the_folder_of_libraries_that_the_user_names(tmp_path: Path):
    needs = 'case ":$LD_LIBRARY_PATH:" in *:/my/libs:*) ;; *) exit 1;; esac'
    program(tmp_path / "nsys", needs + NSYS.format(version="2025.3.1"))
    assert find_tool("nsys", places=PLACES, help_words=HELP_WORDS, environ={"PATH": str(tmp_path)}) is None
    tool = find_tool(
        "nsys", places=PLACES, help_words=HELP_WORDS, environ={"PATH": str(tmp_path), "AIPERF_LIBS": "/my/libs"}
    )
    assert tool is not None
    assert tool.libraries == "/my/libs"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVIDIA Nsight Systems version 2022.4.2.1-df9881f", (2022, 4, 2)),
        ("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 36398880)", (2025, 3, 1)),
        ("perf version 6.1.187", (6, 1, 187)),
        ("perf version 6.14", (6, 14)),
        ("perf version 5.15.g8bb7eca972ad", (5, 15)),
        ("command not found", ()),
        ("version unknown", ()),
        ("", ()),
    ],
)
def test_versions_of_every_tool_are_read(text: str, version: tuple[int, ...]):
    assert version_in(text) == version


def test_a_tool_that_hangs_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tools, "_ASK_S", 0.2)
    program(tmp_path / "nsys", "exec sleep 60")
    assert (
        find_tool("nsys", places=PLACES, help_words=HELP_WORDS, environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}) is None
    )


# ---- importers and libraries -----------------------------------------------------------------------------------------


LISTED = """Device NVIDIA H200 (GH100)
------------------------------------------ ----------- ----------- ---------------------------------------
Metric Name                                Metric Type Metric Unit Metric Description
sm__ops_path_tensor_src_fp16               Counter     op          # of math ops executed in Tensor path
smsp__sass_thread_inst_executed_op_fadd_pred_on Counter inst       # of FADD thread instructions
"""


def test_the_counters_that_an_ncu_lists_are_known_by_name_and_none_where_it_lists_none(tmp_path: Path):
    (tmp_path / "told").write_text(LISTED)
    ncu = program(tmp_path / "ncu", f'[ "$1" = --query-metrics ] && cat {tmp_path / "told"}')
    assert offered_counters(FoundTool("ncu", ncu, (2025, 3))) == {
        "sm__ops_path_tensor_src_fp16",
        "smsp__sass_thread_inst_executed_op_fadd_pred_on",
    }
    mute = program(tmp_path / "mute" / "ncu", "echo no device >&2; exit 1")
    assert offered_counters(FoundTool("ncu", mute, (2025, 3))) == frozenset()


def test_importers_are_found_beside_the_link_beside_the_file_and_around_both(tmp_path: Path):
    real = nsys(tmp_path / "real" / "target-linux-x64" / "nsys", "1.2")
    beside = program(tmp_path / "real" / "host-linux-x64" / "QdstrmImporter", "")
    link = tmp_path / "shown" / "bin" / "nsys"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    around = program(tmp_path / "shown" / "host-linux-x64" / "QdstrmImporter", "")
    found = [path.resolve() for path in importers(link)]
    assert found[:2] == [beside, around]
    again = tmp_path / "shown" / "linux-desktop-x64"
    again.mkdir()
    (again / "QdstrmImporter").symlink_to(beside)
    assert [path.resolve() for path in importers(link)] == found


def test_missing_libraries_are_what_the_linker_does_not_find(tmp_path: Path):
    program(
        tmp_path / "ldd",
        "printf '\\tlibdw.so.1 => not found\\n\\tlibc.so.6 => /lib/libc.so.6 (0x7f)\\n\\tlibodd.so => not found\\n"
        "\\tlibdw.so.1 => not found\\n'",
    )
    assert missing_libraries(tmp_path / "x", env={"PATH": str(tmp_path)}) == ("libdw.so.1", "libodd.so")


def test_without_a_linker_to_ask_nothing_is_said_to_be_missing(tmp_path: Path):
    assert missing_libraries(tmp_path / "x", env={"PATH": str(tmp_path)}) == ()


@pytest.mark.parametrize(
    ("libraries", "said"),
    [
        (("libdw.so.1", "libelf.so.1"), "apt-get install libdw1 libelf1, or name a folder"),
        (("libodd.so",), "install the package that holds libodd.so, or name a folder"),
        (("libdw.so.1", "libodd.so"), "apt-get install libdw1; install the package that holds libodd.so, or name"),
    ],
)
def test_what_to_install_is_said(libraries: tuple[str, ...], said: str):
    assert packages_of(libraries).startswith(said)
    assert packages_of(libraries).endswith("in AIPERF_LIBS")


def test_the_module_that_reads_reports_is_the_installed_one_else_the_one_of_nsight_compute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program(tmp_path / "ncu", 'echo "Version 2025.3.1"')
    ncu = find_tool("ncu", places=(), environ={"PATH": str(tmp_path)})
    assert ncu is not None
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: object())
    assert has_ncu_report(ncu) == Path()
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    assert has_ncu_report(ncu) is None
    assert has_ncu_report(None) is None
    extras = tmp_path / "extras" / "python"
    extras.mkdir(parents=True)
    (extras / "ncu_report.py").write_text("")
    assert has_ncu_report(ncu) == extras
