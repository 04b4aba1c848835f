"""Loading a workload function by family or path, and what breaks the contract."""

import sys
from pathlib import Path

import pytest

from aiperf.worker.load import NotAWorkload, set_up, workload_function
from aiperf.workloads.contract import Context, Workload

BENCHES = str(Path(__file__).with_name("benches.py"))


def test_a_workload_is_found_by_family_or_by_path():
    assert workload_function("tensor.op").__module__ == "aiperf.workloads.tensor.workload"
    assert workload_function(f"{BENCHES}:healthy").__name__ == "healthy"
    assert isinstance(set_up(f"{BENCHES}:healthy", Context(), {"items": 5}), Workload)


def test_a_users_file_imports_its_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "aiperf_neighbour.py").write_text("NAME = 'next door'\n")
    (tmp_path / "aiperf_bench.py").write_text("from aiperf_neighbour import NAME\ndef f(context): return NAME\n")
    assert workload_function(f"{tmp_path}/aiperf_bench.py:f")(None) == "next door"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("gives_none", r"returned NoneType, not an aiperf Workload\. Write return Workload\(step=step, outputs="),
        ("bad_step", r"step is NoneType, not a function\. Write step=step"),
        ("bad_close", r"close is str, not a function\. Write close=close, or leave it out"),
        ("NOT_CALLABLE", r"NOT_CALLABLE is int, not a function\. Write def NOT_CALLABLE\(\.\.\.\):"),
    ],
)
def test_what_breaks_the_contract_is_told(function, message):
    with pytest.raises(NotAWorkload, match=message):
        set_up(f"{BENCHES}:{function}", Context(), {})


def test_a_file_of_a_package_is_imported_as_its_module(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    package = tmp_path / "aiperf_boxed" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "aiperf_boxed" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text("NAME = 'inside'\n")
    (package / "bench.py").write_text("from .other import NAME\ndef f(): return NAME\n")
    found = workload_function(f"{package}/bench.py:f")
    assert (found(), found.__module__) == ("inside", "aiperf_boxed.inner.bench")


def test_a_missing_function_is_named():
    with pytest.raises(AttributeError, match="absent"):
        workload_function(f"{BENCHES}:absent")
    with pytest.raises(ModuleNotFoundError, match=r"aiperf\.workloads\.nowhere"):
        workload_function("nowhere.step")
