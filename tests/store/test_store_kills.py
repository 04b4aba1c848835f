"""Writers that are killed, and several at once: what is there is whole, what was finished is there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from patience import PATIENCE_S

from aiperf.store.history import entries
from aiperf.store.query import ask
from aiperf.store.read import case_files, find_runs, open_run, read_pairs

HERE = Path(__file__).parent
SAMPLES_A_PAIR = 4


@dataclass
class Writers:
    """Starts and kills writers of one results folder."""

    results: Path
    process: subprocess.Popen[str]
    saved: dict[tuple[str, str], int] = field(default_factory=dict)
    """(run, case) -> pairs of the latest record that a writer told to be saved."""

    def start(self, name: str) -> int:
        """Start a writer; its pid."""
        return int(self._ask(f"start {name}", "pid").split()[1])

    def wait_for_a_case(self) -> None:
        """Wait until any writer tells of a case."""
        self._ask("", "saved")

    def kill(self, pid: int) -> None:
        """End a writer without warning, and take in all that it had told."""
        os.kill(pid, signal.SIGKILL)
        self._ask(f"reap {pid}", "dead")

    def _ask(self, line: str, answer: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if line:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        while told := self.process.stdout.readline().strip():
            if told.startswith("saved"):
                _, run, case, pairs = told.split()
                self.saved[run, case] = int(pairs)
            if told.startswith(answer):
                return told
        raise AssertionError("the writers are gone")


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    path = os.pathsep.join([str(HERE.parents[1]), str(HERE)])
    results = tmp_path / "results"
    with subprocess.Popen(
        [sys.executable, str(HERE / "store_writers.py"), str(results)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path}, start_new_session=True,
    ) as process:  # fmt: skip
        yield Writers(results, process)
        os.killpg(process.pid, signal.SIGKILL)


def readable(results: Path, *, writer: str = "") -> dict[tuple[str, str], int]:
    """(run, case) -> pairs of every record there is, or of one writer's; each joined with its samples."""
    found = {}
    # A writer that was killed before its first case may have left no more than its folder.
    for folder in (f for f in find_runs(results) if f.name.endswith(writer) and case_files(f)):
        run = open_run(folder, results=results)
        records, damaged = run.read_cases()
        assert damaged == (), "a record is half written"
        for record in records:
            pairs = read_pairs(run, record)
            assert [len(pair.samples) for pair in pairs] == [SAMPLES_A_PAIR] * len(record.pairs)
            found[folder.name, record.case.id] = len(pairs)
    return found


def missing(writers: Writers, there: dict[tuple[str, str], int], *, writer: str = "") -> dict[tuple[str, str], int]:
    """What a writer told to be saved and nobody can read."""
    told = {key: pairs for key, pairs in writers.saved.items() if key[0].endswith(writer)}
    return {key: pairs for key, pairs in told.items() if there.get(key, 0) < pairs}


def leftovers(results: Path) -> list[Path]:
    return [path for path in results.rglob("*") if path.name.startswith(".") and path.is_file()]


@pytest.mark.parametrize("kills", [8, pytest.param(20, marks=pytest.mark.long)])
def test_a_writer_killed_at_random_moments_leaves_whole_cases_and_loses_none(writers: Writers, kills: int) -> None:
    moments, began = random.Random(2026), time.monotonic()
    for number in count():
        # Enough, and enough of them in the middle of a file.
        if number >= kills and len(writers.saved) > kills and len(leftovers(writers.results)) >= kills // 4:
            break
        assert number < kills or time.monotonic() - began < PATIENCE_S, (writers.saved, leftovers(writers.results))
        name = f"-writer{number}"
        pid = writers.start(name[1:])
        if number % 4:  # the others die while they begin
            writers.wait_for_a_case()
        time.sleep(moments.uniform(0, 0.15))
        writers.kill(pid)
        assert missing(writers, readable(writers.results, writer=name), writer=name) == {}
    there = readable(writers.results)
    assert missing(writers, there) == {}
    history = entries(writers.results)
    assert history.damaged == ()
    assert {(e.run.run, e.record.case.id) for e in history.entries} == set(there)
    with ask('SELECT run, "case", count(*) FROM samples GROUP BY ALL', results=writers.results) as answer:
        assert {(run, case): count for run, case, count in answer.rows} == {
            key: pairs * SAMPLES_A_PAIR for key, pairs in there.items()
        }
        assert answer.damaged == ()


@pytest.mark.long
def test_two_writers_in_one_folder_and_a_reader_do_not_meet(writers: Writers) -> None:
    pids = [writers.start("one"), writers.start("two")]
    seen, cases = 0, Counter[str]()
    deadline = time.monotonic() + PATIENCE_S
    while seen < 12 or len(cases) < 2 or min(cases.values()) < 3:
        assert time.monotonic() < deadline, cases
        history = entries(writers.results)
        assert history.damaged == ()
        assert len(history.entries) >= seen, "a case that was there is gone"
        seen, cases = len(history.entries), Counter(each.run.run for each in history.entries)
        if seen:
            sql = "SELECT count(*), (SELECT sum(pairs) FROM cases) FROM samples"
            with ask(sql, results=writers.results) as answer:
                ((samples, pairs),) = answer.rows
                assert answer.damaged == ()
            assert samples == pairs * SAMPLES_A_PAIR
    for pid in pids:
        writers.kill(pid)
    there = readable(writers.results)
    assert missing(writers, there) == {}
    assert len({run for run, _ in there}) == 2
    assert len(there) >= seen
