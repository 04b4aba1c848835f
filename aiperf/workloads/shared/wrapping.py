"""Imported for what it brings along: what torch.compile() imports when it wraps a function, and compiles nothing.

Which modules those are differs between versions of torch. What must not live here: anything that compiling imports.
"""

from __future__ import annotations

import torch

torch.compile(lambda: None)
