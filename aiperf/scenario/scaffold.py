"""``aiperf new``: a scenario and a workload of its own that run at once and teach by their comments, or a copy of a
shipped scenario.

What must not live here: checking scenarios.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from aiperf.errors import Fault, UserError, usage
from aiperf.scenario.find import list_scenarios
from aiperf.scenario.wording import nearest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")
_BOOK = re.compile(r"^book:.*\n(?:[ \t-].*\n)*", re.MULTILINE)
"""The citations of a scenario."""

_SHORT_SCENARIO = """\
# Is after faster than before, and do both return the same result? Run it:  aiperf run ./{name}.yaml
before: ./{name}.py:by_row
after: ./{name}.py:whole
setup: ./{name}.py:matrix         # makes the arguments for both from a seed, untimed
axes: {{rows: [1024, 8192]}}      # one case for each value; params: {{columns: 64}} gives one value to both

# More options (aiperf new NAME --full writes a longer example, with work and limits):
# check: {{rtol: 1e-5}}           # how close floats must be; everything else is compared exactly
# expect: equivalent            # the verdict you expect: improved (default), equivalent or regressed
"""

_SHORT_CODE = '''\
"""The functions that {name}.yaml compares. Each call is timed; its return value is compared."""

import numpy as np


def matrix(seed, *, rows: int = 1024, columns: int = 256):
    """The argument of both; return a tuple for several, or a dict to pass them by name."""
    return np.random.default_rng(seed).standard_normal((rows, columns))


def by_row(matrix):
    return np.array([np.sqrt(np.square(row).sum()) for row in matrix])


def whole(matrix):
    return np.sqrt(np.square(matrix).sum(axis=1))
'''

_SCENARIO = """\
# One before/after question. Run it:  aiperf run ./{name}.yaml
title: Norms of rows, one row at a time against all at once   # what is compared
why: A call for each row pays the overhead of the interpreter and the library every time; one call pays it once.
tags: [mine]

# The code that both sides run: a file next to this one, and a function in it.
workload: ./{name}.py:row_norms

# The function's keyword parameters. params are shared; before and after list everything that differs.
params: {{columns: 256}}
axes: {{rows: [1024, 8192]}}        # one case for each value
before: {{method: by_row}}
after: {{method: whole}}

# Both sides get equal inputs, and their outputs must agree. If they agree to the last bit, write check: bitwise
check: {{rtol: 1e-5, reference: true}}
expect: improved                  # the verdict you expect: improved, equivalent or regressed

# More options (aiperf show NAME explains a scenario in full):
# gpu: {{rows: [1048576]}}          # sizes to use instead if there is a GPU
# needs: {{memory: 1GiB, libraries: {{torch: ">=2.6"}}}}
# measure: {{cache: cold, delta: 0.01}}
# Instead of after, a ladder of steps:  ladder: {{by_block: {{method: by_block}}, whole: {{method: whole}}}}
"""

_WORKLOAD = '''\
"""The code that the sides of {name}.yaml run. A workload sets up, and returns what to time and what to check."""

from __future__ import annotations

from typing import Literal

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


def row_norms(
    ctx: Context, *, rows: int = 1024, columns: int = 256, method: Literal["by_row", "whole"] = "whole"
) -> Workload:
    """Euclidean norm of every row of a matrix.

    The parameters are those of the YAML file; their annotations are checked before anything starts. Besides int,
    float, bool, str, list, dict and Literal there are Size (YAML: 256MiB) and Seconds (YAML: 2ms).
    """
    # Set-up is not timed. The seed is the same on both sides, so they get the same inputs.
    matrix = np.random.default_rng(ctx.seed).standard_normal((rows, columns), dtype=np.float32)
    norms = np.empty(rows, dtype=np.float32)

    def by_row() -> None:
        for i in range(rows):
            norms[i] = np.sqrt(np.square(matrix[i]).sum())

    def whole() -> None:
        np.sqrt(np.square(matrix).sum(axis=1), out=norms)

    return Workload(
        # step is what is timed. Every call does all the work again and writes every output.
        step={{"by_row": by_row, "whole": whole}}[method],
        # What one step does: it must be equal on both sides, or the comparison is not fair.
        work=Work(bytes=matrix.nbytes + norms.nbytes, flops=2.0 * matrix.size, items=rows, item="rows"),
        outputs=lambda: {{"norms": norms}},
        # The harness sometimes redraws the inputs to check that step really reads them.
        inputs=lambda: {{"matrix": matrix}},
        reference=lambda: {{"norms": np.sqrt(np.square(matrix.astype(np.float64)).sum(axis=1))}},
    )
'''


def scaffold(name: str, folder: Path, *, full: bool = False) -> list[Path]:
    """Write ``NAME.yaml`` and ``NAME.py`` into ``folder``, which is made when it is missing: two plain functions, or
    with ``full`` a workload.

    Raises UserError for a name that is none, and when a file is already there or cannot be written.
    """
    stem = _stem(name)
    scenario, code = (_SCENARIO, _WORKLOAD) if full else (_SHORT_SCENARIO, _SHORT_CODE)
    return _written(folder, {f"{stem}.yaml": scenario.format(name=stem), f"{stem}.py": code.format(name=stem)})


def copy_shipped(name: str, shipped: str, folder: Path) -> list[Path]:
    """Write a copy of the scenario ``shipped`` as ``NAME.yaml``, without ``book:``, which cites its old values.

    Raises UserError where ``scaffold`` does, and for a scenario that is not shipped, or the name of one that is.
    """
    known = {each.name: each.path for each in list_scenarios()}
    if (origin := known.get(shipped)) is None:
        hint = nearest(shipped, known) or "aiperf list shows all names."
        raise usage(f'"{shipped}" is not a shipped scenario.', hint, where="--from")
    if (stem := _stem(name)) in known:
        hint = f"Choose another, e.g. my-{stem}: records are stored under it, and those of both would mix."
        raise usage(f'"{stem}" is the name of a shipped scenario.', hint)
    text = _BOOK.sub("", origin.read_text(encoding="utf-8"))
    return _written(folder, {f"{stem}.yaml": f"# Copied from {shipped}.\n{text}"})


def _stem(name: str) -> str:
    stem = name.removesuffix(".yaml").removesuffix(".yml")
    if not _NAME.match(stem):
        hint = "Use letters, digits, - and _, e.g. my-pair; --folder FOLDER says where to write it."
        raise usage(f'"{name}" is not a valid scenario name.', hint)
    return stem


def _written(folder: Path, named: Mapping[str, str]) -> list[Path]:
    texts = {folder / name: text for name, text in named.items()}
    taken = [p for p in texts if p.exists()]
    if taken:
        raise UserError([Fault(str(p), "already exists.", "Choose another name; nothing was written.") for p in taken])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise usage(f"cannot write: {error.strerror}.", where=str(error.filename or folder)) from None
    return list(texts)
