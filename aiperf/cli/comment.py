"""``aiperf comment``: a summary becomes the one comment of aiperf on a pull or merge request.

What must not live here: asking GitHub or GitLab, and what a summary says.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from aiperf.errors import usage
from aiperf.recipes.pull_request import comment_place, put_comment

_File = Annotated[Path, typer.Argument(metavar="FILE", help="Markdown, as --summary of run, ab and gate writes it.")]
_Key = Annotated[str, typer.Option("--key", help="Name of the comment, if several jobs of a pipeline each write one.")]


def comment(file: _File, key: _Key = "gate") -> None:
    """Post FILE as a comment on this CI job's pull or merge request, or update the existing comment.

    GitHub Actions needs GITHUB_TOKEN with pull-requests: write; GitLab CI needs a project token in AIPERF_GITLAB_TOKEN.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise usage(
            f"{file} cannot be read: {getattr(error, 'strerror', '') or error}.", "Write it with --summary FILE first."
        ) from None
    place = comment_place(os.environ)
    if place is None:
        print("this job does not belong to a pull or merge request: nothing to comment on")
        return
    print(f"the comment was {'created' if put_comment(place, text, key=key) else 'updated'}")
