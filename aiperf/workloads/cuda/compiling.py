"""From a .cu file to machine code for one architecture, and a digest of that code.

What must not live here: launching, arrays, and what a scenario says.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

_NVCC_LIMIT_S = 300
_LINES_SHOWN = 30
_NVRTC_ERROR = re.compile(r"^(.*)\((\d+)\): (?:catastrophic )?error: (.*)$", re.MULTILINE)
_ARCHITECTURE = ("-arch", "--gpu-architecture", "-gencode")


class CompileError(ValueError):
    """A source that does not compile: where, and the compiler's own words."""


def compile_cubin(source: Path, options: Iterable[str], *, arch: str, backend: str, scratch: Path) -> bytes:
    """Machine code of ``source`` for ``arch`` (such as sm_90; an -arch among the options wins), by ``backend`` nvrtc
    (in this process) or nvcc (a program on PATH). Raises CompileError."""
    flags = [*options]
    if not any(flag.startswith(_ARCHITECTURE) for flag in flags):
        flags.append(f"-arch={arch}")
    return _by_nvcc(source, flags, scratch) if backend == "nvcc" else _by_nvrtc(source, flags)


def _by_nvrtc(source: Path, flags: list[str]) -> bytes:
    from cupy.cuda import nvrtc

    folders = [source.parent, *_header_folders()]
    # As CuPy compiles: functions without a keyword of CUDA, such as constexpr ones, are for the device.
    flags = [*flags, *(f"-I{folder}" for folder in folders), "--device-as-default-execution-space"]
    program = nvrtc.createProgram(source.read_text(encoding="utf-8"), str(source), (), ())
    try:
        nvrtc.compileProgram(program, tuple(flags))
        return bytes(nvrtc.getCUBIN(program))
    except nvrtc.NVRTCError as error:
        raise CompileError(first_error(source, nvrtc.getProgramLog(program) or str(error))) from None
    finally:
        nvrtc.destroyProgram(program)


def _header_folders() -> list[Path]:
    """Where CUDA's own headers lie, for a source that includes some: CuPy's copies, the wheels', the toolkit's."""
    import cupy

    bundled = Path(cupy.__file__).parent / "_core" / "include" / "cupy" / "_cccl"
    found = [bundled / part for part in ("cub", "thrust", "libcudacxx")]
    wheels = Path(torch.__file__).parents[1] / "nvidia"
    found += [wheels / "cu13" / "include", wheels / "cuda_runtime" / "include"]
    toolkit = cupy.cuda.get_cuda_path()
    found += [Path(toolkit) / "include", Path(toolkit) / "include" / "cccl"] if toolkit else []
    return [folder for folder in found if folder.is_dir()]


def _by_nvcc(source: Path, flags: list[str], scratch: Path) -> bytes:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise CompileError("backend is nvcc, but no nvcc is on PATH; install the CUDA toolkit or write nvrtc")
    target = scratch / f"{source.stem}.cubin"
    done = subprocess.run(
        [nvcc, "-cubin", *flags, "-o", target, source],
        capture_output=True, text=True, errors="replace", timeout=_NVCC_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise CompileError(first_error(source, done.stderr + done.stdout))
    return target.read_bytes()


def first_error(source: Path, log: str) -> str:
    """One message: file:line and the first error, how many there are, then the compiler's log."""
    errors = _NVRTC_ERROR.findall(log)
    kept = "\n".join(log.strip().splitlines()[:_LINES_SHOWN])
    if not errors:
        return f"{source} does not compile:\n{kept}"
    (path, line, text), more = errors[0], len(errors) - 1
    others = f" (and {more} more error{'s'[: more > 1]})" if more else ""
    return f"{path or source}:{line}: {text}{others}\n{kept}"


def code_digest(cubin: bytes, entries: Iterable[str]) -> str:
    """Digest of the machine code and constants that ``entries`` run: equal for one program, whatever its sources, names
    or defines. The functions that an entry calls lie in its own section."""
    wanted, digest = sorted(set(entries)), hashlib.sha256()
    for name, content in sections(cubin):
        own = next((e for e in wanted if name in (f".text.{e}", f".nv.constant2.{e}", f".nv.shared.{e}")), None)
        shared = name in (".nv.constant3", ".nv.global.init")
        if own is not None or shared:
            label = name.replace(f".{own}", "") if own is not None and len(wanted) == 1 else name
            digest.update(f"{label} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


def sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of each section of a 64-bit little-endian ELF file, by name. Raises ValueError for others."""
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ValueError("the compiler returned no 64-bit ELF file")
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", cubin, start + i * size) for i in range(count)]
    names = heads[names_at][4]
    found = []
    for name, kind, _, _, offset, length in heads:
        end = cubin.index(b"\0", names + name)
        # A section of kind NOBITS takes no room in the file; its length is all there is to it.
        content = str(length).encode() if kind == 8 else cubin[offset : offset + length]
        found.append((cubin[names + name : end].decode(), content))
    return iter(sorted(found))
