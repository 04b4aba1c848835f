"""The environment of a profiled process: an allow-list, as nsys writes all of it into its report, and what is left out.

What must not live here: starting processes, and cleaning reports (scrub.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from aiperf.records.profiled import ProfileNote

_KEEP = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|TERM|PYTHON\w*|VIRTUAL_ENV|CONDA_PREFIX|LD_LIBRARY_PATH"
    r"|LD_PRELOAD|CUDA_\w+|CUBLAS_\w+|CUDNN_\w+|NVIDIA_\w+|NCCL_\w+|NVSHMEM_\w+|GLOO_\w+|TORCH\w*|PYTORCH_\w+|TRITON_\w+"
    r"|OMP_\w+|GOMP_\w+|MKL_\w+|KMP_\w+|OPENBLAS_\w+|MALLOC_\w+|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_\w+|NVTX_\w+|AIPERF_\w+"
    r"|CUPY_\w+|KVIKIO_\w+|CUFILE_\w+|UCX_\w+|NUMBA_\w+|NVPL_\w+|HF_HOME|HF_HUB_\w+|HF_DATASETS_\w+|XDG_CACHE_HOME|LIBRARY_PATH"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|KEY|AUTH|COOKIE|JWT", re.IGNORECASE)
_OF_THE_SHELL = re.compile(
    r"_|PWD|OLDPWD|SHLVL|HOSTNAME|LS_COLORS|LS_OPTIONS|EDITOR|VISUAL|PAGER|MAIL|SSH_\w+|XDG_\w+|DBUS_\w+|DISPLAY|COLORTERM"
    r"|WAYLAND_\w+|TMUX\w*|STY|WINDOWID|LESS\w*|HIST\w+|PS1|COLUMNS|LINES|NO_COLOR|TERM_\w+|DEBIAN_FRONTEND|PYTEST_\w+"
)
"""Variables that change no result of a program: their absence goes unmentioned."""
_SHORTEST_SECRET = 8


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


def missed(environ: Mapping[str, str], *, extra: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """What a profiled launch goes without and a program might read; ``extra`` are the side's own variables."""
    return tuple(n for n in withheld(environ) if n not in (extra or {}) and not _OF_THE_SHELL.fullmatch(n))


def withheld_notes(names: Sequence[str]) -> tuple[ProfileNote, ...]:
    """A note on what is ``missed``, in which names of secrets are counted and not given; none when it is nothing."""
    plain = [name for name in names if not named_like_secret(name)]
    return (ProfileNote("withheld", {"names": plain, "secrets": len(names) - len(plain)}),) if names else ()


def named_like_secret(name: str) -> bool:
    """Whether a variable's name suggests that its value is a secret."""
    return _SECRET.search(name) is not None


def secrets_of(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that smell of a secret, but for short values and paths that exist: name -> value."""
    env = os.environ if environ is None else environ
    return {
        name: value
        for name, value in env.items()
        if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET and not os.path.lexists(value)
    }


def without_secrets(text: str, *, environ: Mapping[str, str] | None = None) -> str:
    """A text, such as a tool's last words, with the values of this process' own secrets taken out."""
    # The longest first: one may hold another.
    for value in sorted(secrets_of(environ).values(), key=len, reverse=True):
        text = text.replace(value, "[withheld]")
    return text


def with_libraries(env: Mapping[str, str], folders: Iterable[str]) -> dict[str, str]:
    """``env`` with library folders put before LD_LIBRARY_PATH."""
    found = [folder for folder in folders if folder]
    if not found:
        return dict(env)
    return {**env, "LD_LIBRARY_PATH": os.pathsep.join([*found, *filter(None, [env.get("LD_LIBRARY_PATH", "")])])}
