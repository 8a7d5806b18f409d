"""Weights in and out of safetensors files; nothing here unpickles.

A file holds each tensor once: names that share a tensor (a looped block, tied embeddings) are kept in an
alias map beside it and come back as one tensor. A checkpoint is known by the digest of its tensors, not by
the hash of its file, which changes with the order of its metadata.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from provenzoo.errors import ZooError
from provenzoo.plain import write_whole

State = dict[str, Tensor]


def save(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors of any layout or device to one file, whole or not at all.

    `metadata` is text by key; the key `aliases` is taken.
    """
    write_whole(Path(path), packed(tensors, metadata))


def packed(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file; without metadata, the same tensors give the same bytes on every save."""
    kept, aliases = _without_aliases(tensors)
    notes = dict(metadata or {}) | ({"aliases": json.dumps(aliases, sort_keys=True)} if aliases else {})
    return safetensors.torch.save(_separate(kept), notes or None)


def load(path: str | Path) -> tuple[State, dict[str, str]]:
    """The tensors of a file by sorted name, on the CPU, and its metadata.

    Aliased names get the same tensor object. A file that is missing, truncated or no safetensors file is a
    ZooError.
    """
    check_header(Path(path))
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            metadata = dict(file.metadata() or {})
        aliases = json.loads(metadata.pop("aliases", "{}"))
        tensors |= {alias: tensors[name] for alias, name in aliases.items()}
    except OSError as error:
        raise ZooError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (safetensors.SafetensorError, ValueError, KeyError, AttributeError) as error:
        raise ZooError(f"{path}: truncated, damaged or no safetensors file ({error})") from None
    return dict(sorted(tensors.items())), metadata


LARGEST_HEADER = 2**24
"""Bytes that the table of tensors at the head of a file may have."""
_FOREIGN = {
    b"version https://git-lfs": "a Git-LFS pointer, not the weights; fetch them with `git lfs pull`",
    b"PK\x03\x04": "a pickle of torch.save, no safetensors file; it could run code and is not read",
    b"\x80": "a pickle, no safetensors file; it could run code and is not read",
}


def check_header(path: Path) -> None:
    """An error that says what a file is where it cannot be safetensors; only its first bytes are read."""
    try:
        with open(path, "rb") as file:
            start = file.read(64)
            size = file.seek(0, 2)
    except OSError as error:
        raise ZooError(f"{path}: cannot be read ({error.strerror or error})") from None
    length = int.from_bytes(start[:8], "little")
    if length + 8 <= min(size, LARGEST_HEADER) and start[8:9] == b"{":
        return
    for magic, what in _FOREIGN.items():
        if start.startswith(magic):
            raise ZooError(f"{path}: {what}")
    if LARGEST_HEADER < length <= size:
        raise ZooError(f"{path}: its header has {length} bytes, more than the {LARGEST_HEADER} that are read")
    raise ZooError(f"{path}: truncated, damaged or no safetensors file ({size} bytes)")


def plain_names(state: Mapping[str, Tensor]) -> State:
    """A state under the names of the bare model, where `torch.compile` or DistributedDataParallel wrapped it."""
    bare = {re.sub(r"(?<![^.])_orig_mod\.", "", name): tensor for name, tensor in state.items()}
    while bare and all(name.startswith("module.") for name in bare):
        bare = {name.removeprefix("module."): tensor for name, tensor in bare.items()}
    return bare


def digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the sorted tensors' names, dtypes, shapes and bytes, 64 hex digits.

    Equal names and values have equal digests, whatever the order, memory layout, aliases or file they come
    from.
    """
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        total.update(bits(tensor.cpu()).numpy().data)
    return total.hexdigest()


def bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor as a flat uint8 tensor, to compare bit for bit."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def stack(states: Sequence[Mapping[str, Tensor]]) -> State:
    """One state `[R, ...]` of R states with the same names; aliases stay aliases."""
    made: dict[tuple, Tensor] = {}
    stacked = {}
    for name in states[0]:
        parts = [state[name].detach() for state in states]
        key = tuple(map(_layout, parts))
        stacked[name] = made[key] = made[key] if key in made else torch.stack(parts)
    return stacked


def pick(tensors: Mapping[str, Tensor], r: int) -> State:
    """The state of replica `r` of a stacked one."""
    return {name: tensor[r] for name, tensor in tensors.items()}


def _layout(tensor: Tensor) -> tuple:
    """Equal for two tensors exactly if they are the same view of the same memory."""
    storage = tensor.untyped_storage().data_ptr()
    return storage, tensor.device, tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()


def _without_aliases(tensors: Mapping[str, Tensor]) -> tuple[State, dict[str, str]]:
    """Each tensor once, under the first of its names in sorted order, and the other names' map to it."""
    first: dict[tuple, str] = {}
    kept, aliases = {}, {}
    for name, tensor in sorted(tensors.items()):
        owner = first.setdefault(_layout(tensor), name)
        if owner == name:
            kept[name] = tensor.detach()
        else:
            aliases[name] = owner
    return kept, aliases


def _separate(tensors: State) -> State:
    """Contiguous tensors on the CPU that share no memory, as safetensors asks for."""
    taken: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        plain = tensor.cpu().contiguous()
        if plain.untyped_storage().data_ptr() in taken:
            plain = plain.clone()
        taken.add(plain.untyped_storage().data_ptr())
        separate[name] = plain
    return separate
