"""An MPS daemon of our own, with its own folder: started by probe, stopped with the side.

What must not live here: its clients; anything that changes a setting of the GPU.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from aiperf.workloads.contract import SkipSide

_CONTROL = "nvidia-cuda-mps-control"
_PATIENCE_S = 15.0
_LEAVE_S = 20.0
_FAULT = re.compile(r"fail|error|fault|not supported|denied", re.IGNORECASE)
_LIFE = f"{_CONTROL} -f & read -r _; echo quit | {_CONTROL}; wait"
"""Runs the daemon until standard input ends, and so no longer than the process that holds the other end of the pipe."""


class Mps:
    """A running daemon for one GPU. ``env`` makes a process its client, to which that GPU is number 0."""

    def __init__(self, gpu: int) -> None:
        """Start it for this GPU, counted as this process sees them; ``await_up`` comes before its first client. Raises
        SkipSide."""
        if shutil.which(_CONTROL) is None:
            raise SkipSide(f"sharing by MPS needs {_CONTROL}, which is not on PATH")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        # A client counts the GPUs that the daemon sees.
        seen = {"CUDA_VISIBLE_DEVICES": visible.split(",")[gpu].strip() if visible else str(gpu)}
        self._folder = Path(tempfile.mkdtemp(prefix="aiperf-mps-"))
        self.env: Mapping[str, str] = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self._folder),
            "CUDA_MPS_LOG_DIRECTORY": str(self._folder),
            "CUDA_VISIBLE_DEVICES": "0",
        }
        self._daemon: subprocess.Popen[bytes] | None = None
        try:
            quiet = subprocess.DEVNULL
            self._daemon = subprocess.Popen(
                ["/bin/sh", "-c", _LIFE], stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, process_group=0,
                env={**os.environ, **self.env, **seen},
            )  # fmt: skip
        except BaseException:
            self.close()
            raise

    def await_up(self) -> None:
        """Wait until it answers. Raises SkipSide when it does not come up."""
        until = time.monotonic() + _PATIENCE_S
        while self._ask("get_server_list") is None:
            if time.monotonic() > until or self._daemon is None or self._daemon.poll() is not None:
                raise SkipSide(f"{_CONTROL} did not start within {_PATIENCE_S:.0f} s")
            time.sleep(0.1)

    def _ask(self, command: str) -> str | None:
        """The daemon's answer; None while it does not answer."""
        try:
            asked = subprocess.run(
                [_CONTROL], input=f"{command}\n", capture_output=True, text=True, timeout=5,
                env={**os.environ, **self.env}, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        found = asked.returncode == 0 and "cannot find" not in (asked.stdout + asked.stderr).lower()
        return asked.stdout.strip() if found else None

    def servers(self) -> int:
        """How many servers the daemon has started; none before the first client."""
        return sum(word.isdigit() for word in (self._ask("get_server_list") or "").split())

    def faults(self) -> str:
        """The last fault that the daemon or its server logged; empty when none did."""
        logs = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(self._folder.glob("*.log"))]
        found = [line for log in logs for line in log.splitlines() if _FAULT.search(line)]
        return found[-1].strip() if found else ""

    def close(self) -> None:
        """End the daemon and its servers, and remove its folder."""
        if self._daemon is not None:
            assert self._daemon.stdin is not None
            self._daemon.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._daemon.wait(timeout=_LEAVE_S)
            # The shell is not the daemon: its group is both, and either may have ended without the other.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._daemon.pid, signal.SIGKILL)
            self._daemon.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
