"""Who may measure into a run's folder."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from aiperf.errors import UserError
from aiperf.store.claim import CLAIM, RunClaim


def test_a_folder_has_one_claim_and_a_second_is_refused_with_the_first(tmp_path) -> None:
    first, second = RunClaim(tmp_path), RunClaim(tmp_path)
    first.take()
    with pytest.raises(UserError, match=rf"is being measured by process {os.getpid()} on \S+ since 20\d\d-"):
        second.take()
    first.release()
    second.take()
    second.release()
    assert list(tmp_path.iterdir()) == []


def test_the_claim_of_a_process_that_was_killed_does_not_count(tmp_path) -> None:
    program = "import sys; from pathlib import Path; from aiperf.store.claim import RunClaim\n"
    program += "RunClaim(Path(sys.argv[1])).take(); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        claim = RunClaim(tmp_path)
        with pytest.raises(UserError, match=f"process {holder.pid}"):
            claim.take()
        holder.kill()
    assert (tmp_path / CLAIM).exists()
    claim.take()
    claim.release()


def test_a_folder_that_cannot_be_written_is_claimed_by_nobody(tmp_path) -> None:
    RunClaim(tmp_path / "missing").take()
