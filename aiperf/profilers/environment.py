"""The environment of a profiled process: an allow-list, because nsys writes all of it into its report.

What must not live here: starting processes, and cleaning reports (scrub.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

_KEEP = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|TERM|PYTHON\w*|VIRTUAL_ENV|CONDA_PREFIX|LD_LIBRARY_PATH"
    r"|LD_PRELOAD|CUDA_\w+|CUBLAS_\w+|CUDNN_\w+|NVIDIA_\w+|NCCL_\w+|NVSHMEM_\w+|GLOO_\w+|TORCH\w*|PYTORCH_\w+|TRITON_\w+"
    r"|OMP_\w+|GOMP_\w+|MKL_\w+|KMP_\w+|OPENBLAS_\w+|MALLOC_\w+|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_\w+|NVTX_\w+|AIPERF_\w+"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|KEY|AUTH|COOKIE|JWT", re.IGNORECASE)


def profiled_environment(
    environ: Mapping[str, str] | None = None, *, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What a profiled process gets of ``environ``: names on the allow-list that do not smell of a secret.

    ``extra`` are the side's own variables: the user wrote them for this process, so they are given whatever their name.
    """
    env = os.environ if environ is None else environ
    kept = {k: v for k, v in env.items() if _KEEP.fullmatch(k) and not _SECRET.search(k)}
    return {**kept, **(extra or {})}


def withheld(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Names that ``profiled_environment`` leaves out, sorted; for a note that says so."""
    env = os.environ if environ is None else environ
    return tuple(sorted(set(env) - set(profiled_environment(env))))


def with_libraries(env: Mapping[str, str], folders: Iterable[str]) -> dict[str, str]:
    """``env`` with library folders put before LD_LIBRARY_PATH."""
    found = [folder for folder in folders if folder]
    if not found:
        return dict(env)
    return {**env, "LD_LIBRARY_PATH": os.pathsep.join([*found, *filter(None, [env.get("LD_LIBRARY_PATH", "")])])}
