"""Runs the shell steps of a composite action as GitHub does: bash -eo pipefail, inputs in expressions, always().

What must not live here: tests. Steps that use another action are passed over.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Step:
    """What came of one step; code None where it did not run."""

    name: str
    code: int | None
    out: str = ""


def run_action(action: Path, *, folder: Path, env: dict[str, str], inputs: dict[str, str]) -> list[Step]:
    """Run the action in ``folder`` and return its shell steps in order."""
    document = yaml.safe_load(action.read_text(encoding="utf-8"))
    known = document["inputs"]
    assert set(inputs) <= set(known), "an input that the action does not have"
    values = {name: inputs.get(name, str(spec.get("default", ""))) for name, spec in known.items()}
    contexts = {f"inputs.{name}": value for name, value in values.items()}
    contexts |= {"github.token": env.get("ITS_TOKEN", ""), "runner.temp": env["RUNNER_TEMP"]}

    def filled(text: str) -> str:
        once = re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda m: contexts[m[1]], text)
        return once if once == text else filled(once)

    done: list[Step] = []

    for step in document["runs"]["steps"]:
        if "run" not in step:
            continue
        assert "${{" not in step["run"], "somebody's text reaches the shell as a variable, never as part of the script"
        if not _runs(step.get("if", ""), contexts, failed=any(s.code for s in done)):
            done.append(Step(step["name"], None))
            continue
        own = {name: filled(text) for name, text in step.get("env", {}).items()}
        its = {**os.environ, **env, **own}
        ran = subprocess.run(
            [step["shell"], "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=folder, env=its,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        done.append(Step(step["name"], ran.returncode, ran.stdout))
    return done


def _runs(condition: str, contexts: dict[str, str], *, failed: bool) -> bool:
    parts = [part.strip() for part in condition.split("&&") if part.strip()]
    always = "always()" in parts
    for part in (p for p in parts if p != "always()"):
        name, sign, value = part.split(None, 2)
        if (contexts[name] == value.strip("'")) != (sign == "=="):
            return False
    return always or not failed
