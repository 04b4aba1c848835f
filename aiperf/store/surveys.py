"""Stored surveys: one file each in results/surveys, whole or not there at all.

What must not live here: measuring, verdicts.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from aiperf.errors import system_words, usage
from aiperf.records.surveyed import SurveyRecord
from aiperf.store.codec import CorruptRecord, dump_json, from_plain
from aiperf.store.read import Damaged
from aiperf.store.write import write_whole

_FOLDER = "surveys"


def write_survey(survey: SurveyRecord, results: Path) -> Path:
    """Store a survey in a file of its own, named by its time; the file's path. Raises UserError."""
    stamp = survey.when.replace(":", "-").partition("+")[0]
    path = results / _FOLDER / f"{stamp}-{secrets.token_hex(4)}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, dump_json(survey))
    except OSError as error:
        what = f"the survey could not be stored: {system_words(error)}."
        raise usage(what, "Free some space, or choose another folder with --results PATH.", str(path)) from None
    return path


def read_survey(path: Path) -> SurveyRecord:
    """A stored survey. Raises UserError."""
    try:
        return _read(path)
    except (CorruptRecord, OSError) as error:
        what = f"it is not a stored survey: {Damaged.by(error, path).reason}."
        raise usage(what, "Stored surveys are in results/surveys.", str(path)) from None


def read_surveys(results: Path, *, drills: bool = False) -> tuple[list[SurveyRecord], list[Damaged]]:
    """The stored surveys of a results folder in order of time, with or without ``drills``, and the files that cannot be
    read."""
    found, damaged = [], []
    for path in sorted((results / _FOLDER).glob("[!.]*.json")):
        try:
            found.append(_read(path))
        except (CorruptRecord, OSError) as error:
            damaged.append(Damaged.by(error, path))
    return sorted((one for one in found if drills or not one.drill), key=lambda one: one.when), damaged


def _read(path: Path) -> SurveyRecord:
    try:
        plain = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise CorruptRecord("is not JSON") from None
    survey = from_plain(SurveyRecord, plain)
    ends = {node for reading in survey.readings for node in reading.nodes}
    if not ends <= set(range(len(survey.nodes))) or any(not reading.seconds > 0 for reading in survey.readings):
        raise CorruptRecord("has a reading of no node, or without a time")
    return survey
