"""Kubernetes: an Indexed Job with a headless Service that runs one aiperf command on several nodes, for kubectl.

What must not live here: options of commands, and talking to a cluster; nothing is submitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from aiperf.errors import usage
from aiperf.paths import config_file

_RESULTS = "/results"
_INSTANCE = "app.kubernetes.io/instance"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")
"""Of a Service and, with the index behind it, of a host."""
_CLAIM = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


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

    def _check(self) -> None:
        """Raises UserError where the cluster would refuse it."""
        if not self.image or self.image.split() != [self.image]:
            raise usage(f'"{self.image}" is not an image.', "Choose one with aiperf installed.", "--image")
        if not _CLAIM.fullmatch(self.claim):
            what = f'"{self.claim}" is not the name of a PersistentVolumeClaim.'
            raise usage(what, "Choose one that all nodes can write to (ReadWriteMany).", "--claim")
        if not _NAME.fullmatch(self.name):
            what = f'"{self.name}" is not a name for a Job.'
            raise usage(what, "Use up to 52 lowercase letters, digits and -, e.g. aiperf-1.", "--kubernetes-file")
        if self.nodes < 1 or self.gpus_per_node < 0:
            raise usage("nodes must be 1 or more, and GPUs 0 or more.", where="--kubernetes-file")

    def render(self, argv: Sequence[str], file: str) -> str:
        """YAML of the Service and the Job that run ``aiperf`` with ``argv`` on every node, the results in the claim;
        first the lines for kubectl, with the name of its ``file``. Raises UserError."""
        end = argv.index("--") if "--" in argv else len(argv)
        documents = self._documents([*argv[:end], "--launcher", "env", "--results", _RESULTS, *argv[end:]])
        head = f"{_INSTANCE}={self.name},batch.kubernetes.io/job-completion-index=0"
        lines = [
            f"# kubectl apply -f {file or 'FILE'}",
            f"# kubectl logs -f --tail=-1 -l {head}",
            f"# kubectl delete -f {file or 'FILE'}",
        ]
        return "\n".join(lines) + "\n" + yaml.safe_dump_all(documents, sort_keys=False, width=120)

    def _documents(self, argv: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        self._check()
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
