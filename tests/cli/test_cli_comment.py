"""``aiperf comment``: one comment on a request, created once and then updated."""

from __future__ import annotations

import json

import pytest
from fake_forge import forge


@pytest.fixture
def pull(user, monkeypatch):
    """A user in a job of GitHub Actions about pull request 7; call it with the API's address."""

    def job(url: str, *, token: str = "secret", event: object = None) -> None:
        event = {"pull_request": {"number": 7}} if event is None else event
        for name, value in {
            "GITHUB_ACTIONS": "true", "GITHUB_API_URL": url, "GITHUB_REPOSITORY": "ada/engine", "GITHUB_TOKEN": token,
            "GITHUB_EVENT_PATH": str(user.write("event.json", json.dumps(event))),
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        user.write("summary.md", "## aiperf gate\n\nall is well\n")

    for name in ("GITHUB_ACTIONS", "GITLAB_CI"):
        monkeypatch.delenv(name, raising=False)
    return job


def test_the_comment_is_created_once_and_then_updated_among_many_others(here, user, pull) -> None:
    with forge(others=230) as server:
        pull(server.url)
        assert here("comment", "summary.md").out == "the comment was created\n"
        assert len(server.comments) == 231
        assert server.comments[-1]["body"].endswith("## aiperf gate\n\nall is well\n")
        user.write("summary.md", "## aiperf gate\n\nslower\n")
        assert here("comment", "summary.md").out == "the comment was updated\n"
        assert len(server.comments) == 231
        assert server.comments[-1]["body"].endswith("slower\n")
        assert server.asked[-1] == ("PATCH", "/repos/ada/engine/issues/comments/1230")
        assert ("POST", "/repos/ada/engine/issues/7/comments") in server.asked
        # Another job's comment is another comment.
        assert here("comment", "summary.md", "--key", "gpu").out == "the comment was created\n"
        assert len(server.comments) == 232


def test_a_merge_request_of_gitlab_gets_a_note(here, user, monkeypatch, pull) -> None:
    with forge() as server:
        user.write("summary.md", "fine\n")
        for name, value in {
            "GITLAB_CI": "true", "CI_API_V4_URL": server.url, "CI_PROJECT_ID": "12", "CI_MERGE_REQUEST_IID": "3",
            "AIPERF_GITLAB_TOKEN": "secret",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        assert [here("comment", "summary.md").out for _ in range(2)] == [
            "the comment was created\n", "the comment was updated\n"
        ]  # fmt: skip
        assert server.asked[-1] == ("PUT", "/projects/12/merge_requests/3/notes/1000")


def test_a_push_has_nothing_to_comment(here, pull) -> None:
    pull("http://127.0.0.1:1", event={"ref": "refs/heads/main"})
    done = here("comment", "summary.md")
    assert (done.code, done.out) == (0, "this job does not belong to a pull or merge request: nothing to comment on\n")


def test_a_token_without_the_right_is_said_with_what_to_give_it(here, pull) -> None:
    with forge() as server:
        pull(server.url, token="of a fork")
        done = here("comment", "summary.md")
        assert (done.code, "403" in done.err, "pull-requests: write" in done.err) == (2, True, True)
        assert "of a fork" not in done.err
        assert server.comments == []


@pytest.mark.parametrize(
    ("argv", "url", "said"),
    [
        (("nowhere.md",), "http://127.0.0.1:1", "--summary FILE"),
        (("summary.md",), "http://127.0.0.1:1", "the comment could not be posted"),
        (("summary.md",), "", "could not be posted"),
    ],
)
def test_what_cannot_be_done_is_one_message(here, pull, argv, url, said) -> None:
    pull(url)
    done = here("comment", *argv)
    assert (done.code, said in done.err, done.plain) == (2, True, True)


def test_outside_a_ci_system_it_says_so(here, user, pull) -> None:
    user.write("summary.md", "fine\n")
    done = here("comment", "summary.md")
    assert (done.code, "neither GitHub Actions nor GitLab CI" in done.err) == (2, True)


def test_a_long_summary_is_cut_after_a_line_and_says_so(here, user, pull) -> None:
    with forge() as server:
        pull(server.url)
        user.write("summary.md", "".join(f"line {i}\n" for i in range(20_000)))
        assert here("comment", "summary.md").code == 0
        body = server.comments[0]["body"]
        assert len(body) < 65_536
        assert body.endswith("The rest is cut off here: the job's summary has all of it.\n")
