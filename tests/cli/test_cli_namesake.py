"""The other tool called aiperf, installed into the same folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.cli.namesake import refuse_namesake
from aiperf.errors import UserError


def install(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_a_package_of_its_own_is_no_namesake(tmp_path) -> None:
    install(tmp_path, "aiperf_ab", "0.1.0")
    install(tmp_path / "elsewhere", "aiperf", "0.3.0")
    refuse_namesake(tmp_path / "aiperf")


def test_a_namesake_in_the_same_folder_is_refused_with_advice(tmp_path) -> None:
    install(tmp_path, "aiperf", "0.3.0")
    with pytest.raises(UserError) as caught:
        refuse_namesake(tmp_path / "aiperf")
    fault = caught.value.faults[0]
    assert "aiperf 0.3.0" in fault.what
    assert "virtual environment" in fault.hint


def test_the_command_does_not_start_beside_its_namesake(user) -> None:
    shutil.copytree(Path(__file__).resolve().parents[2] / "aiperf", user.folder / "site" / "aiperf")
    install(user.folder / "site", "aiperf", "0.3.0")
    env = {**user.environment(), "PYTHONPATH": str(user.folder / "site")}
    argv = [sys.executable, "-m", "aiperf", "--version"]
    done = subprocess.run(argv, cwd=user.folder, env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert "another tool, the distribution aiperf 0.3.0" in done.stderr
    assert "Traceback" not in done.stderr
