"""``--kubernetes``: the options of a command that is printed as a Kubernetes Job instead of being run.

What must not live here: what the Job holds (launch/nodes/kubernetes.py).
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from aiperf.cli.nodes import refuse_idle_nodes
from aiperf.cli.options import Command, not_together, time_of, with_options
from aiperf.cli.slurm import read_job_file, without_options, without_slurm
from aiperf.errors import usage
from aiperf.launch.nodes.kubernetes import KubernetesJob

_FLAGS, _VALUED = ("--kubernetes",), ("--image", "--claim", "--kubernetes-file", "--output")
_OF_SLURM = {"slurm": "--slurm", "partition": "--partition", "account": "--account", "slurm_file": "--slurm-file",
             "detach": "--detach", "collect": "--collect"}  # fmt: skip
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "kubernetes": (
        Annotated[bool, typer.Option("--kubernetes", help="Print the command as a Kubernetes Job for kubectl apply.")],
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
            typer.Option(
                "--kubernetes-file", metavar="FILE", help="YAML file of these options, plus name:, limits: and pod:."
            ),
        ],
        "",
    ),
    "output": (
        Annotated[str, typer.Option("--output", metavar="FILE", help="Kubernetes: write the Job to this file.")],
        "",
    ),
}


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
            raise usage("applies only to a Kubernetes Job.", "Add --kubernetes.", f"--{lone}")
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
    refuse_idle_nodes(job.nodes, given)
    job = job if job.name else replace(job, name=f"aiperf-{secrets.token_hex(3)}")
    text = job.render(argv, typed["output"])
    if not typed["output"]:
        print(text, end="")
        return
    try:
        Path(typed["output"]).write_text(text, encoding="utf-8")
    except OSError as error:
        raise usage(f"cannot be written: {error.strerror}.", where=typed["output"]) from None
