"""The figures that aiperf promises, measured: ``python -m tests.bench [PART ...]``.

What must not live here: tests with a pass mark on time; those figures belong in this table, not in the test run.
"""
