"""Compiled modules are kept also where the environment forbids to write them: hundreds of processes start in the tests,
and each process of pytest would compile, with its own asserts, what was imported before it is configured. Hypothesis
leaves out what other libraries add to it, for which it would import them.

What must not live here: imports of anything that is to be kept.
"""

from __future__ import annotations

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")
