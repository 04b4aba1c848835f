"""The ways to emit an NVTX range from Python: nvtx package, libnvtx3interop, torch.cuda.nvtx, in order of preference.

What must not live here: which ranges exist or what they are called; whether ranges are wanted at all.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

DOMAIN = "aiperf"
COLOR = "blue"
ARGB_BLUE = 0xFF0000FF
INTEROP = "libnvtx3interop.so.1"
NVTX_VERSION, COLOR_ARGB, MESSAGE_REGISTERED = 3, 1, 3


@dataclass(frozen=True)
class RangeTool:
    """One way to emit ranges. Start/end ranges belong to the process, push/pop ranges to the calling thread."""

    name: str
    start: Callable[[str], object]
    end: Callable[[Any], object]
    push: Callable[[str], object]
    pop: Callable[[], object]
    domain: str = DOMAIN


def nvtx_package() -> RangeTool:
    """Ranges by the nvtx package, 0.2.11 or newer. Raises what importing or using an unfit package raises."""
    import nvtx
    from nvtx._lib import lib

    domain: Any = nvtx.get_domain(DOMAIN)
    name = "nvtx"
    if type(domain).__name__ == "DummyDomain":
        # Since 0.2.12 the package asks nvtxDomainIsEnabled and falls silent on "no", but a tool older than NVTX 3.2
        # never answers that question although it listens to ranges.
        domain, name = _forced(lib), "nvtx (forced)"
    attributes = _Cache(lambda text: domain.get_event_attributes(message=text, color=COLOR))
    attributes["probe"]
    if hasattr(domain, "start_range"):
        return RangeTool(
            name,
            start=lambda text: domain.start_range(attributes[text]),
            end=domain.end_range,
            push=lambda text: domain.push_range(attributes[text]),
            pop=domain.pop_range,
        )
    handle = domain.handle
    return RangeTool(
        name,
        start=lambda text: lib.start_range(attributes[text], handle),
        end=lib.end_range,
        push=lambda text: lib.push_range(attributes[text], handle),
        pop=lambda: lib.pop_range(handle),
    )


def interop_library() -> RangeTool:
    """Ranges by the C library that ships with CUDA builds of torch and with the CUDA toolkit. Raises OSError."""
    lib = _load_interop()
    domain = lib.nvtxDomainCreateA(DOMAIN.encode())
    attributes = _Cache(lambda text: ctypes.byref(_attributes(lib.nvtxDomainRegisterStringA(domain, text.encode()))))
    return RangeTool(
        "libnvtx3interop",
        start=lambda text: lib.nvtxDomainRangeStartEx(domain, attributes[text]),
        end=lambda handle: lib.nvtxDomainRangeEnd(domain, handle),
        push=lambda text: lib.nvtxDomainRangePushEx(domain, attributes[text]),
        pop=lambda: lib.nvtxDomainRangePop(domain),
    )


def torch_ranges() -> RangeTool:
    """Ranges by torch, which knows no domains. Raises ImportError, or RuntimeError on a CPU build."""
    from torch.cuda import nvtx

    nvtx.range_end(nvtx.range_start("aiperf-probe"))
    return RangeTool(
        "torch.cuda.nvtx",
        start=nvtx.range_start,
        end=nvtx.range_end,
        push=nvtx.range_push,
        pop=nvtx.range_pop,
        domain="",
    )


TOOLS: tuple[Callable[[], RangeTool], ...] = (nvtx_package, interop_library, torch_ranges)


def interop_candidates() -> Iterator[str]:
    """Paths where the interop library may be, the wheels of this environment first; the bare name last."""
    spec = importlib.util.find_spec("nvidia")
    wheels = list(spec.submodule_search_locations or ()) if spec else []
    roots = [os.path.join(wheel, "*", "lib") for wheel in wheels]
    if cuda_home := os.environ.get("CUDA_HOME"):
        roots.append(os.path.join(cuda_home, "lib64"))
    roots.append("/usr/local/cuda*/lib64")
    for root in roots:
        yield from sorted(glob.glob(os.path.join(root, INTEROP)))
    yield INTEROP


class _Cache(dict[str, Any]):
    """Event attributes by range name; a registered string is what ``--capture-range=nvtx`` matches."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, text: str) -> Any:
        self[text] = made = self._make(text)
        return made


def _forced(lib: Any) -> Any:
    domain = object.__new__(lib.Domain)
    domain.handle = lib.DomainHandle(DOMAIN)
    lib.Domain.__init__(domain, DOMAIN)
    return domain


class _Message(ctypes.Union):
    _fields_ = (("ascii", ctypes.c_char_p), ("registered", ctypes.c_void_p))


class _Payload(ctypes.Union):
    _fields_ = (("unsigned", ctypes.c_uint64), ("double", ctypes.c_double))


class _Attributes(ctypes.Structure):
    """nvtxEventAttributes_v2 of nvToolsExt.h."""

    _fields_ = (
        ("version", ctypes.c_uint16),
        ("size", ctypes.c_uint16),
        ("category", ctypes.c_uint32),
        ("color_type", ctypes.c_int32),
        ("color", ctypes.c_uint32),
        ("payload_type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("payload", _Payload),
        ("message_type", ctypes.c_int32),
        ("message", _Message),
    )


def _attributes(registered: int | None) -> _Attributes:
    return _Attributes(
        version=NVTX_VERSION,
        size=ctypes.sizeof(_Attributes),
        color_type=COLOR_ARGB,
        color=ARGB_BLUE,
        message_type=MESSAGE_REGISTERED,
        message=_Message(registered=registered),
    )


def _load_interop() -> Any:
    refusals = []
    for path in interop_candidates():
        try:
            return _declared(ctypes.CDLL(path))
        except (OSError, AttributeError) as error:
            refusals.append(str(error))
    raise OSError("; ".join(refusals))


def _declared(lib: Any) -> Any:
    event = ctypes.POINTER(_Attributes)
    for name, result, arguments in (
        ("nvtxDomainCreateA", ctypes.c_void_p, [ctypes.c_char_p]),
        ("nvtxDomainRegisterStringA", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]),
        ("nvtxDomainRangeStartEx", ctypes.c_uint64, [ctypes.c_void_p, event]),
        ("nvtxDomainRangeEnd", None, [ctypes.c_void_p, ctypes.c_uint64]),
        ("nvtxDomainRangePushEx", ctypes.c_int, [ctypes.c_void_p, event]),
        ("nvtxDomainRangePop", ctypes.c_int, [ctypes.c_void_p]),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib
