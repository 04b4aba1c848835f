"""aiperf: is the after really better than the before, by how much, why, and how sure are we?

``from aiperf import compare`` compares two functions from Python; loading it waits until it is asked for.
"""

import importlib

# typing.TYPE_CHECKING without loading typing: the command and every worker import this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from aiperf.api.compare import Compared, compare

__version__ = "0.1.0"
__all__ = ["Compared", "__version__", "compare"]
_LAZY = {"Compared": "aiperf.api.compare", "compare": "aiperf.api.compare"}


def __getattr__(name: str) -> object:
    """What ``import aiperf`` does not load yet. Raises AttributeError."""
    if name not in _LAZY:
        raise AttributeError(f"module 'aiperf' has no attribute {name!r}")
    if name == "compare" and (within := importlib.import_module("aiperf.api.within")).in_worker():
        refuses: object = within.compare
        return refuses
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
