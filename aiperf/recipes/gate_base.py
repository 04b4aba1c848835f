"""What a gate was asked, and what its cases are held against: commits to rebuild, or a stored baseline.

What must not live here: measuring, judging, printing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePosixPath

from aiperf.analysis import gate_wording as wording
from aiperf.analysis.differences import differing
from aiperf.analysis.estimates import FEWEST_SESSIONS
from aiperf.analysis.gate import Difference, GateRow, Level, Status
from aiperf.analysis.gate_base import Baseline
from aiperf.analysis.gate_judge import GateReference, blank_row, refuse_case
from aiperf.errors import usage
from aiperf.host.calibration import load_calibration
from aiperf.host.facts import HostFacts
from aiperf.host.fingerprint import fingerprint, git_state
from aiperf.host.relevance import HostCheck
from aiperf.launch.git import WORKING_TREE, CheckoutFailed, branch_of, git, repo_of, resolve
from aiperf.plan.gates import GateConfig, MetricRule
from aiperf.plan.plan import Plan
from aiperf.plan.rebuild import rebuild_case
from aiperf.recipes.run import RunOutcome, run_plan
from aiperf.records import Case, Invocation, Side
from aiperf.report.live import Progress
from aiperf.scenario.signature import lacking
from aiperf.scenario.wording import shown_path
from aiperf.settings import Settings
from aiperf.store.baseline import read_baseline

_SHORT = 12
_REPORTS = frozenset((".html", ".htm", ".log", ".pdf", ".png", ".svg"))
"""What an untracked file is called that people read: no program of a base that lacks it can need it, unless by name."""

Measure = Callable[..., RunOutcome]
"""``run_plan``, or what stands for it in a test."""


@dataclass(frozen=True)
class Gate:
    """Everything that one gate was asked."""

    config: GateConfig
    plan: Plan
    """The scenarios' own cases."""
    host: HostFacts
    settings: Settings
    progress: Callable[[], Progress]
    """A display for each session."""
    invocation: Invocation
    measure: Measure = run_plan
    host_check: HostCheck = HostCheck.warn
    """What is done about findings of the host that can bias a case."""

    @property
    def level(self) -> Level:
        """What the cases are held against."""
        if not self.config.baseline:
            return "rebuild"
        return "absolute" if self.config.absolute else "ratio"


@dataclass(frozen=True)
class Commits:
    """Base and head of one repository."""

    repo: Path
    base: str
    head: str


@dataclass(frozen=True)
class GateBase:
    """What the head is held against, found once: a branch may move while the gate measures."""

    against: GateReference
    name: str = ""
    head: str = ""
    commits: dict[str, Commits] = field(default_factory=dict)
    """Scenario file -> what is rebuilt; empty where nothing is."""
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    def commit_of(self, case: Case) -> str:
        """The commit of base, short; empty where none was rebuilt."""
        commits = self.commits.get(case.path)
        return commits.base[:_SHORT] if commits else ""


def check_side(gate: Gate) -> None:
    """A side that a case does not have, or that nothing is compared with, would gate nothing. Raises UserError."""
    asked = gate.config.side
    for case in gate.plan.cases if asked else ():
        names = [side.name for side in case.sides]
        known = names if gate.level == "rebuild" else names[1:]
        if asked not in known:
            raise usage(f"{case.scenario} has no side {asked} to gate.", f"Choose one of {', '.join(known)}.", "--side")


def find_base(gate: Gate) -> GateBase:
    """The base that a gate names. Raises UserError for unknown refs and unreadable baselines."""
    config = gate.config
    if gate.level == "rebuild":
        return _commits_of(gate)
    stored = read_baseline(Path(config.baseline))
    apart = differing({"must_match": stored.must_match}, fingerprint(gate.host)[1])
    head = git_state(Path.cwd()).get("sha", "")[:_SHORT]
    against = GateReference(gate.level, stored, config.side)
    return GateBase(against, shown_path(Path(config.baseline)), head, {}, apart, _of_few_sessions(gate, stored))


def _of_few_sessions(gate: Gate, stored: Baseline) -> tuple[str, ...]:
    """Say that noise between sessions is unknown: an interval without it is too narrow (METHOD 10)."""
    few = any(len(entry.sessions) < FEWEST_SESSIONS for entry in stored.entries)
    if gate.level != "ratio" or not few or load_calibration(stored.host_id):
        return ()
    return (
        f"the noise between sessions is poorly known: this host was never calibrated, and the baseline has fewer than "
        f"{FEWEST_SESSIONS} sessions of some case; run aiperf calibrate, or promote more runs",
    )


def _commits_of(gate: Gate) -> GateBase:
    config = gate.config
    if not config.against:
        raise usage("nothing to gate against.", "Give --against GIT_REF or --baseline FILE.")
    head = config.head or WORKING_TREE
    repos = {path: repo_of(Path(path or ".")) for path in {case.path for case in gate.plan.cases}}
    found = {r: Commits(r, resolve(r, config.against), resolve(r, head)) for r in dict.fromkeys(repos.values())}
    against = GateReference(side=config.side)
    return GateBase(
        against,
        _named(config.against, [commits.base for commits in found.values()]),
        _named_head(config.head, found.values()),
        {path: found[repo] for path, repo in repos.items()},
    )


def _named(ref: str, commits: Sequence[str]) -> str:
    """``origin/main (0123456789ab)``."""
    known = ", ".join(sorted({commit[:_SHORT] for commit in commits}))
    return f"{ref} ({known})" if known else ref


def _named_head(ref: str, found: Iterable[Commits]) -> str:
    """The head as a person knows it: a working tree by its branch, its commit, and whether it differs from that."""
    if ref:
        return _named(ref, [commits.head for commits in found])
    last = {commits.repo: resolve(commits.repo, "HEAD") for commits in found}
    changed = any(commits.head != last[commits.repo] for commits in found)
    branches = ", ".join(sorted({branch_of(repo) or "detached HEAD" for repo in last}))
    return _named(f"{branches} with uncommitted changes" if changed else branches, list(last.values()))


def only_documentation(gate: Gate, base: GateBase) -> tuple[str, ...]:
    """The files in which base and head differ, where the gate ignores all of them; empty otherwise.

    Nothing that lies beside a scenario or below it is ignored, unless that folder is the whole repository: it may be
    data. Untracked reports are ignored too, unless the gate ignores nothing.
    """
    changed: dict[str, None] = {}
    for commits in dict.fromkeys(base.commits.values()):
        root, repo = commits.repo.resolve(), commits.repo
        beside = {Path(path or ".").resolve().parent for path, its in base.commits.items() if its == commits} - {root}
        tracked = _names(repo, "diff", "--name-only", "--no-renames", commits.base, commits.head)
        for name in (*tracked, *(() if gate.config.head else _untracked(repo))):
            ignored = gate.config.ignores(name) or (
                name not in tracked and gate.config.ignore and _is_report(gate, repo, name)
            )
            if not ignored or any((root / name).is_relative_to(folder) for folder in beside):
                return ()
            changed[name] = None
    return tuple(changed)


def _untracked(repo: Path) -> list[str]:
    return _names(repo, "ls-files", "--others", "--exclude-standard")


def _is_report(gate: Gate, repo: Path, name: str) -> bool:
    """Whether an untracked file is what an earlier command wrote for people: none that is measured names it."""
    path = PurePosixPath(name)
    if path.suffix.lower() not in _REPORTS:
        return False
    try:
        naming = _names(repo, "grep", "--files-with-matches", "--fixed-strings", "-e", path.name)
    except CheckoutFailed as error:
        return not error.tail  # git grep found none, and says so by its exit status alone
    return all(gate.config.ignores(file) for file in naming)


def _names(repo: Path, *arguments: str) -> list[str]:
    """The paths that git prints."""
    command, *options = arguments
    return [name for name in git(repo, command, "-z", *options).split("\0") if name]


def unmeasured_rows(gate: Gate, files: Sequence[str]) -> list[GateRow]:
    """A passed row for each case of a gate whose base and head differ only in ``files``, which no side runs."""
    reason = wording.only_documentation(files)
    return [
        *(blank_row(case, rules_of(gate, case)[0].metric, "passed", reason) for case in gate.plan.cases),
        *(blank_row(s.case, rules_of(gate, s.case)[0].metric, "skipped", s.reason) for s in gate.plan.skips),
    ]


def arrange_cases(gate: Gate, base: GateBase) -> tuple[tuple[Case, ...], list[GateRow]]:
    """The cases to measure, and rows of those that there is nothing to hold against."""
    cases, refused = [], []
    for case in gate.plan.cases:
        row = _new_at_head(gate, base, case) or refuse_case(case, rules_of(gate, case), against=base.against)
        if row is not None:
            refused.append(row)
        else:
            cases.append(_rebuilt(gate, base, _with_threshold(gate, case)))
    return tuple(cases), refused


def rules_of(gate: Gate, case: Case) -> tuple[MetricRule, ...]:
    """The metrics that a case is gated by: those of the gate, and what the case is about."""
    rules = gate.config.metrics
    named = any(rule.metric == case.measure.metric for rule in rules)
    return rules if named else (MetricRule(case.measure.metric), *rules)


def _with_threshold(gate: Gate, case: Case) -> Case:
    """The case stops when it is decided against the gate's threshold, not against another."""
    own = next((rule.threshold for rule in rules_of(gate, case) if rule.metric == case.measure.metric), None)
    return case if own is None else replace(case, measure=replace(case.measure, delta=own))


def _rebuilt(gate: Gate, base: GateBase, case: Case) -> Case:
    commits = base.commits.get(case.path)
    if commits is None:
        return case
    # The tree as it lies is more than a commit: untracked files belong to it.
    return rebuild_case(case, base=commits.base, head=gate.config.head or WORKING_TREE, side=gate.config.side)


def _new_at_head(gate: Gate, base: GateBase, case: Case) -> GateRow | None:
    """The row of a case whose code base does not have yet."""
    commits = base.commits.get(case.path)
    if commits is None:
        return None
    files = _files_of(case, gate.config.side, commits.repo)
    needed = [*_folder_of(case, commits.repo), *files]
    absent = (f"no {path}" for path in needed if not _holds(commits.repo, commits.base, path))
    lacked = (found for path in files if (found := _lacked(case, gate.config.side, commits, path)))
    missing = next(chain(absent, lacked), "")
    if not missing:
        return None
    reason = f"new at head: base {commits.base[:_SHORT]} has {missing}"
    return blank_row(case, rules_of(gate, case)[0].metric, "no_baseline", reason)


def _folder_of(case: Case, repo: Path) -> list[Path]:
    """The folder that both sides run in, relative to the root of the repository; none where it is the root itself."""
    folder, root = Path(case.path).parent.resolve(), repo.resolve()
    return [folder.relative_to(root)] if folder != root and folder.is_relative_to(root) else []


def _files_of(case: Case, name: str, repo: Path) -> list[Path]:
    """Sources in the repository that the gated side runs, relative to its root, as they lie now.

    What git ignores is no source: a build makes it.
    """
    side = _gated(case, name)
    words = side.command or (side.workload.rpartition(":")[0], side.setup.rpartition(":")[0])
    found = [Path(case.path).parent / word for word in words if word]
    inside = [p.resolve() for p in found if p.is_file() and p.resolve().is_relative_to(repo.resolve())]
    paths = [p.relative_to(repo.resolve()) for p in inside]
    ours = ("ls-files", "--cached", "--others", "--exclude-standard", "--")
    return [p for p in paths if git(repo, *ours, f":(top,literal){p.as_posix()}").strip()]


def _gated(case: Case, name: str) -> Side:
    return next((side for side in case.sides if side.name == name), case.sides[-1])


def _lacked(case: Case, name: str, commits: Commits, path: Path) -> str:
    """What the workload's file at base lacks for the call that the gated side makes; empty when nothing, or unknown."""
    side = _gated(case, name)
    if side.command or not side.workload.startswith(f"{commits.repo / path}:"):
        return ""
    text = git(commits.repo, "show", f"{commits.base}:{path.as_posix()}")
    found = lacking(text, side.workload.rpartition(":")[2], side.params, plain=side.plain)
    return f"{found} in {path}" if found else ""


def _holds(repo: Path, commit: str, path: Path) -> bool:
    return bool(git(repo, "ls-tree", "--name-only", commit, "--", f"{path.as_posix()}").strip())


def incomparable_rows(gate: Gate) -> list[GateRow]:
    """Rows of a gate whose baseline another kind of host made: never a number."""
    reason = "the baseline was measured on another kind of host or software; measure one here and promote it"

    def bare(case: Case, status: Status, sentence: str) -> GateRow:
        return blank_row(case, rules_of(gate, case)[0].metric, status, sentence)

    skipped = [bare(skip.case, "skipped", skip.reason) for skip in gate.plan.skips]
    return [*(bare(case, "not_comparable", reason) for case in gate.plan.cases), *skipped]
