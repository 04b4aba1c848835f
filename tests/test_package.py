"""The wheel: built, installed somewhere else, it finds its own scenarios and configurations."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.cli_user import PRECISION

pytestmark = pytest.mark.long

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Type a command of the installed package, far from the checkout."""
    site = tmp_path_factory.mktemp("site")
    argv = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-compile",
        "--target",
        str(site),
        str(wheel),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    elsewhere = tmp_path_factory.mktemp("elsewhere")

    def types(*command: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(site)}
        return subprocess.run(list(command), cwd=elsewhere, env=env, capture_output=True, text=True, check=False)

    types.site, types.folder = site, elsewhere  # type: ignore[attr-defined]
    return types


def test_the_wheel_holds_package_scenarios_configurations_and_sources(wheel) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = [p for folder in ("scenarios", "configs") for p in (CHECKOUT / folder).rglob("*") if p.is_file()]
    assert len(shipped) > 20
    assert {f"aiperf/data/{p.relative_to(CHECKOUT)}" for p in shipped} <= names
    sources = [p for p in (CHECKOUT / "aiperf").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert {str(p.relative_to(CHECKOUT)) for p in sources} <= names
    assert not [name for name in names if name.startswith(("tests/", "results/"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_installed_command_lists_the_shipped_scenarios(installed) -> None:
    script = installed.site / "bin" / "aiperf"
    told = installed(sys.executable, str(script), "list")
    assert told.returncode == 0, told.stderr
    stems = [p.stem for p in (CHECKOUT / "scenarios").rglob("*.yaml")]
    assert [stem for stem in stems if stem not in told.stdout] == []


def test_the_installed_package_plans_a_shipped_scenario_with_a_shipped_precision(installed) -> None:
    argv = ("run", "read-size-4k-vs-1m", "--dry-run", "--precision", "quick")
    told = installed(sys.executable, "-m", "aiperf", *argv)
    assert told.returncode == 0, told.stderr
    assert "read-size-4k-vs-1m" in told.stdout


def test_the_installed_package_is_the_one_that_runs(installed) -> None:
    told = installed(sys.executable, "-c", "import aiperf; print(aiperf.__file__)")
    assert told.stdout.startswith(str(installed.site))


def test_a_worker_of_the_installed_package_runs_a_workload_of_its_user(installed) -> None:
    assert installed(sys.executable, "-m", "aiperf", "new", "mine").returncode == 0
    (installed.folder / "fast.yaml").write_text(PRECISION)
    argv = ("run", "./mine.yaml", "--only", "rows=1024", "--precision", "fast.yaml", "--no-peaks", "-q")
    told = installed(sys.executable, "-m", "aiperf", *argv)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "mine" in told.stdout
