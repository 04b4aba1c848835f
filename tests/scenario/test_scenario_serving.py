"""The commands of shipped servers, held against the options that their programs were recorded to take."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from aiperf.paths import scenario_folder

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "serve"
PROGRAMS = {
    "vllm serve": "vllm",
    "python -m sglang.launch_server": "sglang",
    "llama-server": "llama-server",
    "transformers serve": "transformers",
}
"""How a command begins -> the file of its options."""


def recorded(program: str) -> set[str]:
    lines = (FIXTURES / f"{program}.txt").read_text(encoding="utf-8").splitlines()
    return {
        option for line in lines if not line.startswith("#") for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", line)
    }


def commands() -> list[tuple[str, str]]:
    folders = [scenario_folder() / name for name in ("serve", "cpu")]
    found = []
    for path in sorted(path for folder in folders for path in folder.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if "workload: serve.load" in text:
            document = yaml.safe_load(text)
            found += [(path.stem, document[side]["server"]) for side in ("before", "after")]
    return found


def unknown(command: str) -> set[str]:
    """Options of a command that its program does not take."""
    program = next(file for begin, file in PROGRAMS.items() if command.startswith(f"{begin} "))
    return (
        {word.partition("=")[0] for word in shlex.split(command) if word.startswith("-")} - {"-m"} - recorded(program)
    )


@pytest.mark.parametrize(("name", "command"), commands())
def test_every_option_of_a_shipped_server_is_one_that_its_program_takes(name: str, command: str) -> None:
    assert unknown(command) == set(), name
    assert "{port}" in command


def test_every_shipped_server_of_sglang_exports_its_counts_and_says_what_it_had_cached() -> None:
    of_sglang = [command for _, command in commands() if "sglang" in command]
    assert len(of_sglang) == 4
    assert all({"--enable-metrics", "--enable-cache-report"} <= set(command.split()) for command in of_sglang)


def test_every_recorded_program_has_a_pair_and_an_option_of_another_one_is_noticed() -> None:
    begun = {file for begin, file in PROGRAMS.items() for _, command in commands() if command.startswith(f"{begin} ")}
    assert begun == set(PROGRAMS.values()) == {path.stem for path in FIXTURES.glob("*.txt")}
    assert unknown("vllm serve {model} --port {port} --disable-radix-cache --no-enable-chunked-prefill") == {
        "--disable-radix-cache"
    }
    assert unknown("llama-server --model {model} --port {port} --no-chunked") == {"--no-chunked"}
    assert unknown("transformers serve {model} --port {port} --cb-blocks=4") == {"--cb-blocks"}
