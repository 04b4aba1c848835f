"""Secrets that users type are measured with and never stored: by name, by form, and wherever they come up again."""

import json
from dataclasses import replace

import pytest
from factory_of_stored_records import make_case

from aiperf.records import CaseRecord, RunRecord, Side
from aiperf.store.codec import decode_case, decode_run, encode_case, encode_run
from aiperf.store.masking import masked, named_like_secret

GITHUB = "ghp_0123456789abcdefghijABCDEFGHIJ456789"


def stored(*commands: str, env: dict[str, str] | None = None) -> str:
    plain = {"argv": ["aiperf", "ab", *commands], "case": {"sides": [{"env": env or {}}]}}
    return json.dumps(masked(plain))


@pytest.mark.parametrize(
    "name",
    ["API_TOKEN", "GH_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "PGPASSWORD", "--api-key", "accessToken", "jwt"],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert named_like_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "first_token",
        "eos_token",
        "stop-token",
        "max_tokens",
        "--tokenizer",
        "TOKENIZERS_PARALLELISM",
        "num_key_heads",
        "author",
    ],
)
def test_names_of_what_models_count_are_none(name: str) -> None:
    assert not named_like_secret(name)


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("env API_TOKEN=hunter7seven serve", "env API_TOKEN=[withheld] serve"),
        ("serve --api-key hunter7seven --port 80", "serve --api-key [withheld] --port 80"),
        ("serve --password='hunter7seven'", "serve --password='[withheld]'"),
        (f"git clone https://{GITHUB}@host/x", "git clone https://[withheld]@host/x"),
        ("load postgres://me:hunter7seven@host/x", "load postgres://[withheld]@host/x"),
        ("serve --password --max-tokens 123456", "serve --password --max-tokens 123456"),
        ("train --max-tokens 4096000 --lr 0.001", "train --max-tokens 4096000 --lr 0.001"),
        ("env API_TOKEN=$TOKEN_OF_MINE serve", "env API_TOKEN=$TOKEN_OF_MINE serve"),
    ],
)
def test_what_is_named_or_looks_like_a_secret_is_not_kept_and_all_else_is(command: str, kept: str) -> None:
    assert json.loads(stored(command))["argv"][2] == kept


def test_options_and_variables_of_their_own_words_are_seen_too() -> None:
    told = stored(
        "--env-after", "DB_PASSWORD=correct-horse", "--api-key", "battery-staple-9", env={"T_TOKEN": "abcdef7"}
    )
    assert not any(secret in told for secret in ("correct-horse", "battery", "abcdef7"))


def test_a_secret_is_taken_out_wherever_it_comes_up_but_a_word_of_the_record_stays_one() -> None:
    plain = {"status": "measured", "case": {"env": {"A_TOKEN": "measured", "B_TOKEN": GITHUB}}, "said": f"no {GITHUB}!"}
    assert masked(plain) == {
        "status": "measured",
        "case": {"env": {"A_TOKEN": "[withheld]", "B_TOKEN": "[withheld 2]"}},
        "said": "no [withheld 2]!",
    }


def test_a_run_says_whether_its_command_line_had_a_secret_also_when_it_is_written_again() -> None:
    def read(*argv: str, **fields: str) -> RunRecord:
        return decode_run(encode_run(RunRecord("r", ("aiperf", *argv), "", **fields)))

    first = read("ab", "--api-key", "hunter7seven")
    assert (first.argv[-1], first.withheld) == ("[withheld]", True)
    assert decode_run(encode_run(replace(first, finished="now"))).withheld
    assert not read("ab", "echo [withheld]").withheld, "which somebody typed"
    assert not read("ab", cwd=f"/home/{GITHUB}").withheld


def test_sides_that_differ_in_a_secret_still_differ_and_the_record_reads_as_before() -> None:
    case = make_case()
    before, after = (replace(side, env={"A_TOKEN": f"hunter-{side.name}-7"}) for side in case.sides)
    record = CaseRecord(case=replace(case, sides=(before, after)), status="measured")
    read = decode_case(encode_case(record))
    sides: tuple[Side, ...] = read.case.sides
    assert [side.env["A_TOKEN"] for side in sides] == ["[withheld]", "[withheld 2]"]
    assert replace(read, case=record.case) == record
