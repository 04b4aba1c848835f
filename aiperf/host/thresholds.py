"""The limits at which a fact of the host becomes a warning or makes it unfit, in one place.

What must not live here: reading or judging anything.
"""

from __future__ import annotations

PEAK_FAR_BELOW = 0.6
"""Share of its datasheet below which a measured peak is a finding."""
