"""The idx format of MNIST and its family, plain or gzipped.

A file is two zero bytes, a type byte (8: unsigned byte), the number of dimensions, each dimension as a
big-endian 32-bit integer, then the values (described at the end of http://yann.lecun.com/exdb/mnist/).
"""

import gzip
import hashlib
import io
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from provenzoo.errors import ZooError


def read_idx(path: Path, shape: tuple[int, ...], md5: str | None = None) -> Tensor:
    """The uint8 tensor of `shape` that an idx file holds.

    `md5` is that of the decompressed file. A file that is missing, truncated, of another format, shape or
    content is a ZooError that names it.
    """
    data = _decompressed(path)
    start = 4 + 4 * len(shape)
    if data[:4] != bytes([0, 0, 8, len(shape)]):
        held = f"begins with {data[:4].hex(' ')}" if data else "is empty"
        raise ZooError(f"{path}: not an idx file of unsigned bytes in {len(shape)} dimensions (its content {held})")
    if len(data) < start:
        raise ZooError(f"{path}: truncated in its header, at byte {len(data)} of {start}")
    held_shape = struct.unpack(f">{len(shape)}I", data[4:start])
    size = start + math.prod(held_shape)
    if len(data) != size:
        fault = "truncated" if len(data) < size else "too long"
        raise ZooError(f"{path}: {fault}: {len(data)} bytes where its header promises {size}")
    if held_shape != shape:
        raise ZooError(f"{path}: holds {_times(held_shape)} values; {_times(shape)} are needed")
    if md5 and hashlib.md5(data, usedforsecurity=False).hexdigest() != md5:
        raise ZooError(f"{path}: of the right shape, but not the published file (its MD5 should be {md5})")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=start).view(shape)


def _decompressed(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            return file.read()
    except EOFError:
        raise ZooError(f"{path}: truncated: its gzip stream has no end") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ZooError(f"{path}: not a sound gzip file ({error})") from None
    except OSError as error:
        raise ZooError(f"{path}: cannot be read ({error.strerror})") from None


def write_idx(values: Tensor) -> bytes:
    """The gzipped idx file of a uint8 tensor; the same bytes on every call (no name, no time)."""
    header = struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
        file.write(header + values.contiguous().numpy().tobytes())
    return packed.getvalue()


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
