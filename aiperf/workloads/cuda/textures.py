"""A picture as a texture: a CUDA array that holds a copy of it in the order of the texture unit, and its handle.

What must not live here: launches, and the drawing of pictures.
"""

from __future__ import annotations

from typing import Any

import torch

from aiperf.workloads.shared.cupy_kernels import import_cupy, view_stream

_BITS = 32


class Texture:
    """``picture``, a float32 tensor of two dimensions on the current device; places are counted in its values, and
    those outside of it are zero."""

    def __init__(self, picture: Any, *, linear: bool) -> None:
        """``linear`` mixes the four values around a place; else the nearest is given."""
        cupy = import_cupy()
        from cupy.cuda import texture

        runtime = cupy.cuda.runtime
        self._picture = picture
        rows, columns = picture.shape
        channel = texture.ChannelFormatDescriptor(_BITS, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
        self._array = texture.CUDAarray(channel, columns, rows)
        resource = texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=self._array)
        asked = texture.TextureDescriptor(
            (runtime.cudaAddressModeBorder, runtime.cudaAddressModeBorder),
            runtime.cudaFilterModeLinear if linear else runtime.cudaFilterModePoint,
            runtime.cudaReadModeElementType,
        )
        self._object = texture.TextureObject(resource, asked)

    @property
    def handle(self) -> int:
        """What a kernel takes as cudaTextureObject_t."""
        return int(self._object.ptr)

    def fill(self) -> None:
        """Copy what the picture holds now, on torch's current stream."""
        stream = view_stream(torch.cuda.current_stream().cuda_stream)
        self._array.copy_from(import_cupy().from_dlpack(self._picture), stream)
