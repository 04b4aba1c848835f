"""``--kubernetes``: what is rendered, by the schema of the API (models of lightkube), and what a pod reads of it."""

from __future__ import annotations

import shlex

import pytest
import yaml
from lightkube.models.batch_v1 import Job
from lightkube.models.core_v1 import Service

from aiperf.cli.nodes import joined
from aiperf.errors import UserError
from aiperf.launch.nodes.place import Place, read_place

ASKED = ("run", "x", "--kubernetes", "--image", "registry/aiperf:1", "--claim", "shared")


def rendered(text: str) -> tuple[dict, dict]:
    """Service and Job, after the schema: every key known, every type right, nothing required missing."""
    service, job = yaml.safe_load_all(text)
    assert Service.from_dict(service).to_dict() == service
    assert Job.from_dict(job).to_dict() == job
    return service, job


def container(job: dict) -> dict:
    (only,) = job["spec"]["template"]["spec"]["containers"]
    return only


def place(job: dict, index: int, uid: str = "u-1") -> Place:
    """What the pod of this index reads from its variables, the cluster's fields put in as Kubernetes documents them."""
    template = job["spec"]["template"]
    fields = {
        "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index),
        "metadata.labels['batch.kubernetes.io/controller-uid']": uid,
        "spec.nodeName": f"gpu-{index}",
    }
    env = {e["name"]: e.get("value") or fields[e["valueFrom"]["fieldRef"]["fieldPath"]] for e in container(job)["env"]}
    assert template["spec"]["restartPolicy"] == "Never"
    return read_place(env)


def test_every_pod_of_the_job_is_a_node_of_one_run(user):
    done = user.types(*ASKED, "-N", "3", "--gpus-per-node", "8", "--time", "90s", "--seed", "4")
    assert done.code == 0, done.err
    job = rendered(done.out)[1]
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 90)
    places = [place(job, index) for index in range(3)]
    assert [(p.rank, p.world, p.nodes, p.node) for p in places] == [(i, 3, 3, f"gpu-{i}") for i in range(3)]
    assert [(p.is_head, p.is_agent) for p in places] == [(True, False), (False, True), (False, True)]
    assert {p.job for p in places} == {places[0].job} != {place(job, 0, uid="u-2").job}
    assert container(job)["args"] == shlex.split("run x --seed 4 --launcher env --results /results")
    assert container(job)["resources"] == {"limits": {"nvidia.com/gpu": 8}}


def test_the_service_selects_the_pods_each_on_a_node_of_its_own_with_the_claim_as_results(user):
    service, job = rendered(user.types(*ASKED).out)
    pod, name = job["spec"]["template"]["spec"], job["metadata"]["name"]
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["metadata"]["name"] == pod["subdomain"] == name
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"].items() <= labels.items()
    mounts = {mount["name"]: mount["mountPath"] for mount in container(job)["volumeMounts"]}
    claimed = {mounts[v["name"]]: v["persistentVolumeClaim"] for v in pod["volumes"] if "persistentVolumeClaim" in v}
    assert claimed == {"/results": {"claimName": "shared"}}
    assert "resources" not in container(job)
    other = rendered(user.types(*ASKED).out)[1]
    assert other["metadata"]["name"] != name, "two renderings are two jobs"


def test_a_file_holds_what_does_not_change_and_flags_win(user):
    (user.folder / "k.yaml").write_text(
        "name: mine\nnodes: 4\nimage: i\nclaim: c\ntime: 1h\nlimits: {cpu: 32, memory: 64Gi}\n"
        "pod: {nodeSelector: {pool: h100}, tolerations: [{operator: Exists}]}\n"
    )
    done = user.types("survey", "--kubernetes-file", "k.yaml", "-N", "8", "--output", "job.yaml")
    assert (done.code, done.out) == (0, ""), done.err
    text = (user.folder / "job.yaml").read_text()
    service, job = rendered(text)
    assert (service["metadata"]["name"], job["spec"]["completions"]) == ("mine", 8)
    assert container(job)["args"][0] == "survey"
    assert container(job)["resources"]["limits"] == {"cpu": 32, "memory": "64Gi"}
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "h100"}
    assert text.startswith(
        "# kubectl apply -f job.yaml\n# kubectl logs -f --tail=-1 -l app.kubernetes.io/instance=mine,"
    )


def test_words_after_two_dashes_and_dollars_reach_the_command_as_they_were_typed(user):
    job = rendered(user.types(*ASKED, "--only", "a=$(x)", "--", "-y").out)[1]
    assert container(job)["args"][2:] == ["--only", "a=$$(x)", "--launcher", "env", "--results", "/results", "--", "-y"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "x", "--image", "i"), "Add --kubernetes."),
        (("run", "x", "--kubernetes", "--claim", "c"), '"" is not an image'),
        (("run", "x", "--kubernetes", "--image", "i"), '"" is not the name of a PersistentVolumeClaim'),
        ((*ASKED, "--slurm"), "cannot be combined with --slurm"),
        ((*ASKED, "--results=here"), "--results: is set by --kubernetes"),
        ((*ASKED, "--output", "no/such/folder"), "cannot be written"),
        (("run", "x", "--kubernetes-file", "no.yaml"), "cannot be read"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(user, words, said):
    done = user.types(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("name: Mine", "not a name for a Job"),
        ("nodes: -1", "nodes must be 1 or more"),
        ("limits: 3", "limits: 3 is not a mapping"),
        ("pod: {containers: []}", "pod: containers is set by aiperf"),
        ("seconds: 3", "unknown key seconds"),
    ],
)
def test_a_wrong_file_is_a_mistake(user, line, said):
    (user.folder / "k.yaml").write_text(f"image: i\nclaim: c\n{line}\n")
    done = user.types("run", "x", "--kubernetes-file", "k.yaml")
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_pods_wait_for_each_other_as_long_as_the_job_says(user, monkeypatch, tmp_path):
    job = rendered(user.types(*ASKED, "-N", "2").out)[1]
    (said,) = [entry["value"] for entry in container(job)["env"] if entry["name"] == "AIPERF_JOIN_TIMEOUT"]
    assert said == "10min"
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "AIPERF_JOIN_TIMEOUT": "100ms"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=r"1 of 2 nodes joined within 0\.1 s"), joined("env", tmp_path):
        pass
    monkeypatch.setenv("AIPERF_JOIN_TIMEOUT", "long")
    with pytest.raises(UserError, match="not a time"), joined("env", tmp_path):
        pass
