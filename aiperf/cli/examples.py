"""Examples that every command's help ends with; tests parse them, and the command reference and the man page show them.

What must not live here: what a command does.
"""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "run": (
        ("run random-vs-sequential-read", "one scenario, with its verdict"),
        ("run ./my-pair.yaml --precision quick", "your own pair, with a provisional verdict"),
        ("run --suite cpu --budget 10min", "a suite; time goes to the widest intervals"),
        ("run --resume latest", "continue a run that stopped"),
    ),
    "ab": (
        ('ab "python old.py" "python new.py"', "two programs"),
        ('ab "sort -n big.txt" "sort -g big.txt" "sort -h big.txt"', "three programs, the first as the baseline"),
        ("ab --shell sh 'grep -c a f | cat' 'grep -o a f | wc -l' --prepare 'rm -f out'", "shell commands"),
    ),
    "list": (
        ("list", "all scenarios"),
        ("list copy", "scenarios about copies"),
        ("list --workloads", "the workloads that your own scenarios can use"),
    ),
    "show": (
        ("show random-vs-sequential-read", "a scenario and its latest measurement"),
        ("show latest CASE", "why a case got its verdict"),
        ("show transfer.copy", "the parameters of a workload"),
    ),
    "new": (
        ("new my-pair", "my-pair.yaml and my-pair.py, ready to run"),
        ("new my-copy --from same-vs-same", "my-copy.yaml, a shipped scenario whose parameters you can change"),
    ),
    "report": (
        ("report latest --html", "one page that opens offline"),
        ("report latest --recompute", "recompute the verdicts from the raw samples"),
    ),
    "profile": (
        ("profile random-vs-sequential-read --check", "what each profiler can do here"),
        ("profile gemv-vs-batched-gemm --html", "both sides' counters as a page"),
    ),
    "clean": (("clean --dry-run", "what would be removed, with sizes"),),
    "compare": (
        ("compare RUN RUN", "two stored runs, case by case"),
        ("compare --hosts NAME", "how its speedup varies between hosts"),
    ),
    "gate": (
        ("gate ./loop.yaml --against origin/main", "the working tree against a branch"),
        ("gate --config benchmarks/gate.yaml --against HEAD~1 --summary gate.md", "with a gate configuration file"),
        ('gate --promote latest --baseline base.json --why "new hardware"', "store a baseline"),
    ),
    "comment": (("comment gate.md", "post what --summary wrote on this job's pull request"),),
    "history": (
        ("history random-vs-sequential-read", "its trend over the stored runs"),
        ("history random-vs-sequential-read --html", "the trend as a page with charts"),
    ),
    "query": (
        ('query "SELECT scenario, ratio, verdict FROM comparisons"', "any question about the stored runs"),
        ("query --schema", "the tables and their columns"),
    ),
    "book": (("book", "a summary of all chapters"), ("book --chapter ch07", "its rows, and what was measured here")),
    "export": (("export latest --output run.parquet", "its comparisons as one table"),),
    "import": (("import pyperf.json", "store another tool's results as a run"),),
    "doctor": (("doctor", "what biases benchmarks here"), ("doctor --all", "including the probes that passed")),
    "peaks": (("peaks", "measure the peaks and compare them with the datasheet"),),
    "survey": (
        ("survey --slurm -N 8", "eight nodes of a Slurm cluster"),
        ("survey --groups 4 --slow 2=0.2", "try it here, with one of four groups slowed on purpose"),
    ),
    "calibrate": (("calibrate random-vs-sequential-read", "this host's noise floor, with A/A runs"),),
}
"""Command -> (what to type after ``aiperf``, what it does)."""


def help_epilog(name: str) -> str:
    """The examples as click prints them: a paragraph that it does not fill."""
    shown = [f"aiperf {typed}" for typed, _ in EXAMPLES[name]]
    lines = [f"  {line}\n      {said}" for line, (_, said) in zip(shown, EXAMPLES[name], strict=True)]
    return "\n".join(["\b", "Examples:", *lines])
