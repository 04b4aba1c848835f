"""What the shell offers for a word that is being typed: names of scenarios, suites and precisions.

What must not live here: anything that takes time, such as reading the scenarios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiperf.paths import config_names, scenario_folder


def offer(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What completes a word by some names, of which Typer keeps those that begin with it; files are the shell's."""
    return lambda incomplete: sorted(set(names()))


scenarios = offer(lambda: (path.stem for path in scenario_folder().rglob("*.yaml")))
precisions = offer(lambda: config_names("measure"))
