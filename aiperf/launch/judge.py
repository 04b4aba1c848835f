"""The judge's process as a run holds it: started once, used for every pair, started again after it failed.

What must not live here: what it is asked to compare (evidence.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import TracebackType

from aiperf.launch.environment import side_environment
from aiperf.launch.gang import Gang, GangPlan, LaunchFailed
from aiperf.launch.guardian import Guardian
from aiperf.protocol.messages import R, WorkerRequest

JUDGE = "judge"
"""Name of the judge in failures, beside the names of sides."""
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""It multiplies no matrices, and pools of threads would be started with it."""


class JudgeProcess:
    """A process of its own that compares bytes. A request that it does not answer is a failed launch of ``judge``."""

    def __init__(self, folder: Path, guardian: Guardian) -> None:
        self._folder, self._guardian = folder, guardian
        self._gang: Gang | None = None
        self._awaited = False
        self._open = 0
        """Questions that it has not answered yet."""
        self._waited_s = 0.0

    def __enter__(self) -> JudgeProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """Its process, if it runs."""
        return self._gang.pids if self._gang is not None else ()

    @property
    def waited_s(self) -> float:
        """Seconds that anybody waited for its answers so far."""
        return self._waited_s

    def start(self) -> None:
        """Have it start, if it has not; does not wait. One that has ended is not replaced: what it had taken is lost,
        and the pair with it. Raises LaunchFailed."""
        if self._gang is not None:
            return
        env = {**side_environment({}, seed=0), **_ONE_THREAD}
        program = ("-P", "-m", "aiperf.worker.judge")
        gang = Gang(GangPlan(JUDGE, 1, env, "", (None,), self._folder, program=program), self._guardian)
        self._gang, self._awaited = gang, False
        self._or_end(gang.start)

    def turn_to_next(self) -> None:
        """Be ready for another pair: a judge that has ended meanwhile, or owes answers to a pair that failed, is
        replaced when it is needed."""
        if self._open or (self._gang is not None and not self._gang.alive):
            self.close()

    def ask(self, request: WorkerRequest[R], *, limit: float) -> R:
        """Its answer. Raises LaunchFailed."""
        self.send(request, limit=limit)
        return self.collect(type(request), limit=limit)

    def send(self, request: WorkerRequest[R], *, limit: float) -> None:
        """Ask without waiting for the answer; several questions may be open. Raises LaunchFailed."""
        self.start()
        assert self._gang is not None
        gang = self._gang
        if not self._awaited:
            self._or_end(lambda: gang.await_start(limit=limit))
            self._awaited = True
        self._or_end(lambda: gang.send(request))
        self._open += 1

    def collect(self, request: type[WorkerRequest[R]], *, limit: float) -> R:
        """The answer to the oldest open question, of this type. Raises LaunchFailed."""
        assert self._gang is not None
        gang, began = self._gang, monotonic()
        answers: list[R] = []
        try:
            self._or_end(lambda: answers.extend(gang.collect(request, limit=limit)))
        finally:
            self._waited_s += monotonic() - began
        self._open -= 1
        return answers[0]

    def _or_end(self, act: Callable[[], object]) -> None:
        """Whatever goes wrong with it, the next question goes to a new one."""
        try:
            act()
        except LaunchFailed:
            self.close()
            raise

    def close(self) -> None:
        """End it."""
        gang, self._gang, self._open = self._gang, None, 0
        if gang is not None:
            gang.kill()
