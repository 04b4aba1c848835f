"""A real Slurm of two nodes, n1 and n2, on this machine: ``python -m tests.slurm.two_node_slurm start|stop FOLDER``.

It needs slurmctld, slurmd and munge (Debian: ``apt-get install slurm-wlm munge``) and the superuser's rights.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
_CONF = """
ClusterName=two
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2
ReturnToService=2
SlurmdTimeout=6
SlurmctldTimeout=10
KillWait=5
MinJobAge=300
SwitchType=switch/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=4000 Gres=gpu:2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=4000 Gres=gpu:2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=60 State=UP PriorityTier=1
PartitionName=urgent Nodes=n1,n2 MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str:
    """Why there can be no Slurm here; empty where there can."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed"
    return "" if os.geteuid() == 0 else "only root may start it"


class TwoNodes:
    """The daemons, from ``start`` to ``stop``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.conf = self.folder / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        """Start them and wait until both nodes are idle."""
        for name in ("state", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        base = 20000 + os.getpid() % 9000
        host = os.uname().nodename
        self.conf.write_text(
            _CONF.format(folder=self.folder, host=host, port=base, first=base + 1, second=base + 2), encoding="utf-8"
        )
        # Two files that stand for GPUs, as the devices of real ones do.
        (self.folder / "gres.conf").write_text("NodeName=n[1-2] Name=gpu File=/dev/null,/dev/zero\n", encoding="utf-8")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = [f"--{name}-file={self.folder}/munged.{name}" for name in ("pid", "log", "seed")]
        # munged runs as whoever starts it, with a key and a socket of its own.
        self._daemon(
            ["munged", "--force", "-F", "-S", f"{self.folder}/munge.sock", "--key-file", str(key), *files],
            "munged",
        )
        self._until(lambda: (self.folder / "munge.sock").exists(), "munged")
        self._daemon(["slurmctld", "-D", "-f", str(self.conf)], "slurmctld")
        for node in ("n1", "n2"):
            self.start_node(node)
        self._until(lambda: self.states().count("idle") == 2, "both nodes")

    def start_node(self, node: str) -> None:
        """Start a node's daemon, also again."""
        self._daemon(["slurmd", "-D", "-N", node, "-f", str(self.conf)], f"slurmd-{node}")

    def kill_node(self, node: str) -> None:
        """End a node's daemon as a crash does; what it started lives on."""
        self._end(f"slurmd-{node}", signal.SIGKILL)

    def asks(self, *argv: str) -> str:
        """What a command of Slurm prints."""
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, check=True).stdout.strip()

    def job(self, number: str) -> str:
        """The state of a job, also of one that is over."""
        return self.asks("squeue", "-h", "-t", "all", "-j", number, "-o", "%T")

    def states(self) -> list[str]:
        """The state of each node."""
        found = subprocess.run(
            ["sinfo", "-N", "-h", "-p", "all", "-o", "%T"], env=self.env, capture_output=True, text=True
        )
        return found.stdout.split()

    def stop(self) -> None:
        """End every daemon."""
        for name in ("slurmd-n1", "slurmd-n2", "slurmctld", "munged"):
            self._end(name, signal.SIGTERM)

    def _daemon(self, argv: list[str], name: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(argv, env=self.env, stdout=out, stderr=out, start_new_session=True)
        (self.folder / f"{name}.own-pid").write_text(str(process.pid))

    def _end(self, name: str, number: int) -> None:
        file = self.folder / f"{name}.own-pid"
        if not file.exists():
            return
        pid = int(file.read_text())
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline and Path(f"/proc/{pid}").exists():
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                time.sleep(0.05)
        file.unlink()

    def _until(self, true, what: str) -> None:
        deadline = time.monotonic() + 20
        while not true():
            if time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{what} did not come up: see the logs in {self.folder}")
            time.sleep(0.1)


if __name__ == "__main__":
    nodes = TwoNodes(Path(sys.argv[2]))
    if sys.argv[1] == "start":
        nodes.start()
        print(f"export SLURM_CONF={nodes.conf}")
    else:
        nodes.stop()
