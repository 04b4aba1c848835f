"""``--kubernetes``: the same command as an Indexed Job with a headless Service, as YAML for kubectl.

What must not live here: talking to a cluster; nothing is submitted.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from aiperf.cli.options import Command, not_together, time_of, with_options
from aiperf.cli.slurm import read_job_file, without_options, without_slurm
from aiperf.errors import usage
from aiperf.paths import config_file

_RESULTS = "/results"
_INSTANCE = "app.kubernetes.io/instance"
_FLAGS, _VALUED = ("--kubernetes",), ("--image", "--claim", "--kubernetes-file", "--output")
_OF_SLURM = {"slurm": "--slurm", "partition": "--partition", "account": "--account", "slurm_file": "--slurm-file",
             "detach": "--detach", "collect": "--collect"}  # fmt: skip
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")
"""Of a Service and, with the index behind it, of a host."""
_CLAIM = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "kubernetes": (
        Annotated[bool, typer.Option("--kubernetes", help="Print it as a Kubernetes Job, to be applied by kubectl.")],
        False,
    ),
    "image": (Annotated[str, typer.Option("--image", help="Kubernetes: container image with aiperf.")], ""),
    "claim": (
        Annotated[str, typer.Option("--claim", metavar="PVC", help="Kubernetes: volume claim for the results.")],
        "",
    ),
    "kubernetes_file": (
        Annotated[
            str,
            typer.Option("--kubernetes-file", metavar="FILE", help="YAML of the same, with name:, limits: and pod:."),
        ],
        "",
    ),
    "output": (Annotated[str, typer.Option("--output", metavar="FILE", help="Kubernetes: file of the Job.")], ""),
}


@dataclass(frozen=True)
class KubernetesJob:
    """What an Indexed Job asks for."""

    name: str = ""
    """Of Job and Service; one that is drawn where it is empty."""
    nodes: int = 1
    gpus_per_node: int = 0
    image: str = ""
    claim: str = ""
    """PersistentVolumeClaim that every node can write."""
    seconds: int = 0
    """Time limit; 0 for none."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Further resources of each pod, e.g. cpu and memory."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the pod's spec, e.g. nodeSelector and tolerations."""

    def check(self) -> None:
        """Raises UserError where the cluster would refuse it."""
        if not self.image or self.image.split() != [self.image]:
            raise usage(f'"{self.image}" is not an image.', "Name one that has aiperf installed.", "--image")
        if not _CLAIM.fullmatch(self.claim):
            what = f'"{self.claim}" is not the name of a PersistentVolumeClaim.'
            raise usage(what, "Name one that all nodes can write (ReadWriteMany).", "--claim")
        if not _NAME.fullmatch(self.name):
            what = f'"{self.name}" is not a name for a Job.'
            raise usage(what, "Take up to 52 small letters, digits and -, e.g. aiperf-1.", "--kubernetes-file")
        if self.nodes < 1 or self.gpus_per_node < 0:
            raise usage("nodes and GPUs cannot be negative, and there must be a node.", where="--kubernetes-file")

    def documents(self, argv: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Service and Job that run ``aiperf`` with ``argv`` on every node. Raises UserError."""
        self.check()
        text = config_file("kubernetes", "job").read_text(encoding="utf-8")
        service, job = yaml.safe_load_all(text)
        labels = {"app.kubernetes.io/name": "aiperf", _INSTANCE: self.name}
        for document in (service, job):
            document["metadata"] = {"name": self.name, "labels": dict(labels)}
        service["spec"]["selector"] = {_INSTANCE: self.name}
        job["spec"] |= {"completions": self.nodes, "parallelism": self.nodes}
        if self.seconds:
            job["spec"]["activeDeadlineSeconds"] = self.seconds
        template = job["spec"]["template"]
        template["metadata"]["labels"] = dict(labels)
        self._fill(template["spec"], argv)
        return service, job

    def _fill(self, pod: dict[str, Any], argv: Sequence[str]) -> None:
        if taken := sorted((pod.keys() | {"hostname", "initContainers"}) & self.pod.keys() - {"affinity"}):
            raise usage(f"pod: {taken[0]} is set by aiperf.", "Leave it out.", "--kubernetes-file")
        (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        apart["labelSelector"] = {"matchLabels": {_INSTANCE: self.name}}
        pod["volumes"][0]["persistentVolumeClaim"] = {"claimName": self.claim}
        pod["subdomain"] = self.name
        (container,) = pod["containers"]
        # Kubernetes puts variables in place of $(NAME); $$ is its way to write a $.
        container["image"], container["args"] = self.image, [word.replace("$(", "$$(") for word in argv]
        world = {"WORLD_SIZE": str(self.nodes), "MASTER_ADDR": f"{self.name}-0.{self.name}"}
        container["env"] += [{"name": name, "value": value} for name, value in world.items()]
        gpus = {"nvidia.com/gpu": self.gpus_per_node} if self.gpus_per_node else {}
        if limits := {**self.limits, **gpus}:
            container["resources"] = {"limits": limits}
        pod.update(self.pod)


def with_kubernetes(command: Command) -> Command:
    """Give a command that ``with_slurm`` has wrapped the options of Kubernetes; with them it is printed as a Job."""
    signature = inspect.signature(command, eval_str=True)
    own = [*signature.parameters.values(), inspect.Parameter("kubernetes", inspect.Parameter.KEYWORD_ONLY)]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        typed = given.pop("kubernetes")
        if typed["kubernetes"] or typed["kubernetes_file"]:
            _print_job(typed, given)
            return
        if lone := next((name for name in ("image", "claim", "output") if typed[name]), ""):
            raise usage("is an option of a Kubernetes Job.", "Add --kubernetes.", f"--{lone}")
        command(**given)

    called.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return with_options(called, "kubernetes", _OPTIONS, lambda typed: typed)


def _print_job(typed: dict[str, Any], given: dict[str, Any]) -> None:
    if of_slurm := next((flag for name, flag in _OF_SLURM.items() if given[name]), ""):
        raise not_together("--kubernetes", of_slurm)
    argv = without_options(without_slurm(sys.argv[1:]), _FLAGS, _VALUED)
    if own := next((word for word in argv if re.match(r"--(results|launcher)(=|$)", word)), ""):
        raise usage("is set by --kubernetes: the claim holds the results.", "Leave it out.", own.partition("=")[0])
    job = KubernetesJob()
    if typed["kubernetes_file"]:
        job = read_job_file(Path(typed["kubernetes_file"]), KubernetesJob, "seconds", math.ceil)
    flags = {"image": typed["image"], "claim": typed["claim"], "nodes": given["nodes"]}
    flags["gpus_per_node"] = given["gpus_per_node"]
    flags["seconds"] = math.ceil(time_of("--time", given["time_limit"])) if given["time_limit"] else 0
    job = replace(job, **{name: value for name, value in flags.items() if value})
    job = job if job.name else replace(job, name=f"aiperf-{secrets.token_hex(3)}")
    end = argv.index("--") if "--" in argv else len(argv)
    inside = [*argv[:end], "--launcher", "env", "--results", _RESULTS, *argv[end:]]
    text = _render(job, inside, typed["output"])
    if not typed["output"]:
        print(text, end="")
        return
    try:
        Path(typed["output"]).write_text(text, encoding="utf-8")
    except OSError as error:
        raise usage(f"cannot be written: {error.strerror}.", where=typed["output"]) from None


def _render(job: KubernetesJob, argv: Sequence[str], file: str) -> str:
    documents = job.documents(argv)
    head = f"{_INSTANCE}={job.name},batch.kubernetes.io/job-completion-index=0"
    lines = [
        f"# kubectl apply -f {file or 'FILE'}",
        f"# kubectl logs -f --tail=-1 -l {head}",
        f"# kubectl delete -f {file or 'FILE'}",
    ]
    return "\n".join(lines) + "\n" + yaml.safe_dump_all(documents, sort_keys=False, width=120)
