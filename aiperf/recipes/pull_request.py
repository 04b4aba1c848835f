"""One comment of aiperf on the pull or merge request that a CI job is about: created once, then updated.

What must not live here: what the comment says, options, exit codes.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.errors import UserError, usage

TOKENS = {"github": "GITHUB_TOKEN", "gitlab": "AIPERF_GITLAB_TOKEN"}
"""CI system -> the variable that holds the right to comment; GitLab's job token cannot write notes."""
_LIMIT = 60_000
"""Characters of a comment; GitHub takes 65,536."""
_PAGE = 100
_TIMEOUT_S = 30.0
_CUT = "\n\nThe rest is cut off here: the job's summary has all of it.\n"


@dataclass(frozen=True)
class CommentPlace:
    """Where the comments of one request are read and written."""

    comments: str
    """URL of the list, to which new ones are posted."""
    one: str
    """URL of a single one, with ``{id}``."""
    update: str
    """HTTP method that changes one."""
    headers: Mapping[str, str]


def comment_place(environ: Mapping[str, str]) -> CommentPlace | None:
    """The request that this CI job is about; None when it is about none, such as a push to a branch.

    Raises UserError outside GitHub Actions and GitLab CI, and without the right to comment.
    """
    if environ.get("GITHUB_ACTIONS") == "true":
        if not environ.get("GITHUB_EVENT_PATH"):
            raise usage("the variable GITHUB_EVENT_PATH is not set.", "Run this in a pull request's job.")
        if not (number := _pull_request(Path(environ["GITHUB_EVENT_PATH"]))):
            return None
        api = f"{environ.get('GITHUB_API_URL', 'https://api.github.com')}/repos/{environ.get('GITHUB_REPOSITORY', '')}"
        headers = {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {_token(environ, 'github')}"}
        return CommentPlace(f"{api}/issues/{number}/comments", f"{api}/issues/comments/{{id}}", "PATCH", headers)
    if environ.get("GITLAB_CI") == "true":
        if not (number := environ.get("CI_MERGE_REQUEST_IID", "")):
            return None
        project = f"{environ.get('CI_API_V4_URL', '')}/projects/{environ.get('CI_PROJECT_ID', '')}"
        notes = f"{project}/merge_requests/{number}/notes"
        return CommentPlace(notes, f"{notes}/{{id}}", "PUT", {"PRIVATE-TOKEN": _token(environ, "gitlab")})
    raise usage("this is neither GitHub Actions nor GitLab CI.", "Run it in a CI job; elsewhere, read the file itself.")


def put_comment(place: CommentPlace, text: str, *, key: str) -> bool:
    """Update the comment that carries ``key``, or create it; whether it was created. Raises UserError."""
    mark = f"<!-- aiperf {key} -->"
    body = {"body": f"{mark}\n{text if len(text) <= _LIMIT else text[:_LIMIT].rpartition(chr(10))[0] + _CUT}"}
    found = next((one for one in _comments(place) if str(one.get("body", "")).startswith(mark)), None)
    if found is None:
        _ask(place, "POST", place.comments, body)
    else:
        _ask(place, place.update, place.one.format(id=found["id"]), body)
    return found is None


def _token(environ: Mapping[str, str], system: str) -> str:
    name = TOKENS[system]
    token = environ.get(name, "")
    if not token:
        raise usage(f"the variable {name} is not set, so no comment can be posted.", f"Set {name} for this step.")
    return token


def _pull_request(event: Path) -> str:
    try:
        found = json.loads(event.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise usage(f"the event cannot be read: {error}.", where="GITHUB_EVENT_PATH") from None
    request = found.get("pull_request") or {}
    return str(request.get("number") or "")


def _comments(place: CommentPlace) -> Iterator[dict[str, Any]]:
    page, full = 1, True
    while full:
        found = _ask(place, "GET", f"{place.comments}?{urllib.parse.urlencode({'per_page': _PAGE, 'page': page})}")
        yield from found
        page, full = page + 1, len(found) == _PAGE


def _ask(place: CommentPlace, method: str, url: str, body: Mapping[str, str] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {**place.headers, "Content-Type": "application/json", "User-Agent": "aiperf"}
    try:
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise _refused(f"{method} {url}: {error.code} {error.reason}", forbidden=error.code in (401, 403)) from None
    except (OSError, ValueError) as error:
        raise _refused(f"{method} {url}: {error}") from None


def _refused(what: str, *, forbidden: bool = False) -> UserError:
    way = "Allow the job to comment: permissions: {pull-requests: write}. A fork's token never has that permission."
    return usage(f"the comment could not be posted: {what}.", way if forbidden else "The summary has all of it.")
