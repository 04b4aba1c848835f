"""A real Slurm of nodes n1, n2, ... on this machine: ``python -m tests.slurm.local_slurm start|stop FOLDER [NODES]``.

It needs slurmctld, slurmd and munge (Debian: ``apt-get install slurm-wlm munge``) and the superuser's rights.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
_NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=4000 Gres=gpu:2"
_CONF = """
ClusterName=local
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
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF
"""


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def missing() -> str:
    """Why there can be no Slurm here; empty where there can."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed"
    return "" if os.geteuid() == 0 else "only root may start it"


class LocalSlurm:
    """The daemons, from ``start`` to ``stop``."""

    def __init__(self, folder: Path, *, nodes: int = 2) -> None:
        self.folder = folder.absolute()
        self.nodes = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.conf = self.folder / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        """Start them and wait until every node is idle."""
        for name in ("state", *(f"spool-{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        host, (port, *ports) = os.uname().nodename, _free_ports(1 + len(self.nodes))
        lines = [_NODE.format(name=name, host=host, port=own) for name, own in zip(self.nodes, ports, strict=True)]
        self.conf.write_text(
            _CONF.format(folder=self.folder, host=host, port=port, nodes="\n".join(lines)), encoding="utf-8"
        )
        # Two files that stand for GPUs, as the devices of real ones do.
        gpus = f"NodeName={','.join(self.nodes)} Name=gpu File=/dev/null,/dev/zero\n"
        (self.folder / "gres.conf").write_text(gpus, encoding="utf-8")
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
        for node in self.nodes:
            self.start_node(node)
        self._until(self.all_idle, "the nodes")

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

    def all_idle(self) -> bool:
        """Whether every node is there and has nothing to do."""
        return self.states().count("idle") == len(self.nodes)

    def cancel_all(self) -> None:
        """Cancel every job, so that one which a failed test leaves behind keeps no other one waiting."""
        self.asks("scancel", "--me")

    def stop(self) -> None:
        """End every daemon."""
        started = sorted(path.name.removesuffix(".own-pid") for path in self.folder.glob("slurmd-*.own-pid"))
        for name in (*started, "slurmctld", "munged"):
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
    cluster = LocalSlurm(Path(sys.argv[2]), nodes=int(sys.argv[3]) if len(sys.argv) > 3 else 2)
    if sys.argv[1] == "start":
        cluster.start()
        print(f"export SLURM_CONF={cluster.conf}")
    else:
        cluster.stop()
