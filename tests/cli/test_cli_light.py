"""What a light install does: no torch, no pandas, no pyarrow."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from cli_user import PRECISION, QUIET_CPU
from light_install import CHECKOUT, light_interpreter

from aiperf.protocol.libraries import EXTRAS

TORCH = "needs torch: pip install 'aiperf-ab[torch]'"


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """Type a command in a folder of its own without the extras' libraries; (exit code, output, what was said)."""
    folder = tmp_path_factory.mktemp("light")
    python = light_interpreter(folder / "venv")
    (folder / "fast.yaml").write_text(PRECISION)
    environment = (
        {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | QUIET_CPU | {"AIPERF_STATE": str(folder / "state")}
    )

    def starts(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, *argv], cwd=folder, env=environment, capture_output=True, text=True, check=False)

    def types(*argv: str) -> tuple[int, str, str]:
        done = starts("-m", "aiperf", *argv)
        return done.returncode, done.stdout, done.stderr

    types.folder, types.python, types.starts = folder, python, starts
    return types


def smaller(light, scenario: str, written: str, instead: str) -> str:
    """A shipped scenario with a smaller size in a file of the folder; the path to type."""
    text = (CHECKOUT / "scenarios" / "cpu" / f"{scenario}.yaml").read_text()
    assert text.count(written) == 1
    text = re.sub(r"^book:.*?^(?=why:)", "", text.replace(written, instead), flags=re.MULTILINE | re.DOTALL)
    (light.folder / f"{scenario}.yaml").write_text(text)
    return f"./{scenario}.yaml"


def test_none_of_the_libraries_can_be_imported_there(light) -> None:
    code = f"import importlib.util as u; print([n for n in {sorted(EXTRAS)} if u.find_spec(n)])"
    assert subprocess.check_output([light.python, "-c", code], text=True).strip() == "[]"


@pytest.mark.long
def test_numpy_pairs_run_and_torch_pairs_are_skipped_with_the_extra_s_name(light) -> None:
    looking_up = smaller(light, "python-loop-vs-vectorised-tokeniser", "n: 1048576", "n: 4096")
    code, out, err = light(
        "run", looking_up, "gemv-vs-batched-gemm", "text-vs-binary-dataset", "python-loop-vs-vectorised",
        "--precision", "fast.yaml", "--no-peaks",
    )  # fmt: skip
    assert code == 0, err
    records = [json.loads(path.read_text()) for path in (light.folder / "results" / "latest" / "cases").iterdir()]
    found = {r["case"]["scenario"]: (r["status"], r["skip_reason"]) for r in records}
    assert found["python-loop-vs-vectorised-tokeniser"] == ("measured", "")
    # Known before anything starts, from the workload's module; and seen by the worker, of an import in a function.
    assert found["gemv-vs-batched-gemm"] == ("skipped", TORCH)
    assert found["python-loop-vs-vectorised"] == ("skipped", TORCH)
    assert found["text-vs-binary-dataset"][0] == "skipped"
    assert "aiperf-ab[data]" in found["text-vs-binary-dataset"][1]
    assert TORCH in out


RUN = CHECKOUT / "results/reference/2026-11-22T07-20-07-vm"
OTHERS = [
    ("list",), ("list", "--workloads"), ("show", "gemv-vs-batched-gemm"), ("doctor",), ("book", "--missing"),
    ("run", "--suite", "cpu", "--dry-run"), ("report", str(RUN)), ("report", str(RUN), "--recompute"),
    ("query", "SELECT count(*) FROM samples", "--results", "few"),
]  # fmt: skip
TYPING = """
import contextlib, io, json, sys
from aiperf.cli.main import entry
told = []
for argv in json.loads(sys.argv[1]):
    sys.argv = ["aiperf", *argv]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = entry()
    told.append((int(code), out.getvalue(), err.getvalue()))
print(json.dumps(told))
"""


@pytest.mark.long
def test_other_commands_need_none_of_them(light) -> None:
    shutil.copytree(RUN, light.folder / "few" / RUN.name)
    done = light.starts("-c", TYPING, json.dumps(OTHERS))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told) == len(OTHERS)
    for argv, (code, out, err) in zip(OTHERS, told, strict=True):
        assert (argv, code, "Traceback" in err) == (argv, 0, False), err
        assert len(out) > 20, argv


def test_two_programs_are_compared_without_them(light) -> None:
    code, out, err = light("ab", "true", "true", "--precision", "fast.yaml")
    assert code == 0, err
    assert "true-" in out


def test_every_library_of_an_extra_is_brought_by_it() -> None:
    project = tomllib.loads((Path(CHECKOUT) / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for library, extra in EXTRAS.items():
        # Triton comes with every build of torch that can use it; two are imported by another name.
        named = {"triton": "torch", "PIL": "pillow", "cutlass_library": "nvidia-cutlass"}.get(library, library)
        assert any(named in line for line in extras[extra]), (library, extra)
        assert not any(line.startswith(library) for line in project["dependencies"])
    assert any("torch" in line for line in extras["gpu"])
    assert any("torch" in line for line in extras["dev"]), "make install has what demo and tests need"
