"""One side of a case, at two commits: the case that a gate measures instead of a stored baseline.

What must not live here: git, and the gate's rule.
"""

from __future__ import annotations

from dataclasses import replace

from aiperf.errors import usage
from aiperf.records import Case, Check
from aiperf.scenario.text import ref_text
from aiperf.scenario.wording import allowed, nearest


def rebuild_case(case: Case, *, base: str, head: str, side: str = "") -> Case:
    """The case whose sides, base and head, are one side of ``case`` at the commits ``base`` and ``head``.

    ``side`` is the last one by default: after, or a ladder's last step. What the scenario says about before against
    after (expectation, book, counters that must move, outputs that differ by design) does not hold between two commits
    and is dropped. Two commits never share a process. Raises UserError for a side that the case does not have.
    """
    by_name = {each.name: each for each in case.sides}
    name = side or case.sides[-1].name
    if name not in by_name:
        what = f"{case.scenario} has no side {name}; its sides: {allowed(by_name)}."
        raise usage(what, nearest(name, by_name))
    chosen = by_name[name]
    return replace(
        case,
        title=f"{case.scenario}: {ref_text(base)} against {ref_text(head)}",
        why=f"Both run the side {name} of this scenario, at two commits.",
        sides=(replace(chosen, name="base", ref=base), replace(chosen, name="head", ref=head)),
        measure=replace(case.measure, isolation="process"),
        check=_same(case),
        moves={},
        expect="",
        book=(),
        rebuilt=True,
    )


def _same(case: Case) -> Check:
    """Two commits of one side must compute the same; a check that cannot be made at all is not invented."""
    check = case.check
    if case.is_command:
        return check if check.kind == "none" else replace(check, reason="")
    if check.kind == "none" or (check.kind != "named" and not check.reason):
        return check
    return Check(reference=check.reference)
