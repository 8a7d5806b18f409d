"""What a data set is: two splits for one seed, prepared when first asked for."""

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from provenzoo.datasets.packed import Packed

SplitName = Literal["train", "test"]
SPLITS: tuple[SplitName, SplitName] = ("train", "test")  # a split's index in draws

Augmentation = Callable[[Tensor, torch.Generator], Tensor]


def digest(*tensors: Tensor | Packed) -> str:
    """SHA-256 over dtype, shape and bytes of each tensor, 64 hex digits; the same on every device.

    Packed images have the digest of what they are unpacked.
    """
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(f"{tensor.dtype} {list(tensor.shape)};".encode())
        for part in tensor.split(1000) if isinstance(tensor, Packed) else [tensor]:
            sha.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def as_dtype(targets: Tensor, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Labels stay whole numbers; targets that are real numbers take the stage's dtype."""
    return targets.to(device, dtype) if targets.is_floating_point() else targets.to(device)


def law_digest(*law: Any, drawn: Tensor) -> str:
    """A digest for points that are drawn: of the law's name and arguments, and of what of it is drawn exactly (labels).

    Normal numbers of one generator differ in their last bits between processors, so that a digest of all tensors would
    call the same data another's.
    """
    return hashlib.sha256(f"{law} {digest(drawn)}".encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Split:
    """One split as whole tensors, ready for the model.

    `inputs` `[N, ...]` float32, such as normalised images `[N, C, H, W]` (a `Deferred` in a tensor's place, of a test
    split that is too large); `targets` `[N]` int64 labels, or real
    numbers `[N, ...]` float32. `augment` maps a batch of inputs and a generator to a batch of the same shape; only a
    training split has one.
    """

    inputs: Tensor
    targets: Tensor
    augment: Augmentation | None = field(default=None, kw_only=True)
    named: Mapping[str, Tensor] = field(default_factory=dict, kw_only=True)
    """Further tensors `[N, ...]` that metrics ask for by name, such as targets without noise."""
    made_from: str | None = field(default=None, kw_only=True)
    """Of data whose last bits depend on the machine's kernels (blurred images, noise): a digest of what it is from."""

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def kept(self) -> "Tensor | Packed | Deferred":
        """The inputs in the form in which they lie in memory."""
        return self.inputs

    @cached_property
    def digest(self) -> str:
        """SHA-256 of inputs and targets or of what they are made from, kept with every number measured on them."""
        return self.made_from or digest(cast(Tensor | Packed, self.kept), self.targets)


class PackedSplit(Split):
    """A split of images that lie in memory as bytes; `inputs` is made anew, whole, whenever it is asked for.

    `augment` here changes batches of bytes, before they are normalised.
    """

    def __init__(self, packed: Packed, targets: Tensor, augment: Augmentation | None = None) -> None:
        self.__dict__.update(packed=packed, targets=targets, augment=augment, named={}, made_from=None)

    @property
    def inputs(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.kept.whole()

    @property
    def kept(self) -> Packed:
        return self.__dict__["packed"]


class Deferred:
    """Inputs `[N, ...]` that are too many to hold: read batch by batch. What a measurement asks of inputs, it has.

    `read` gives the items at places `[n]`, `[n, ...]` float32 on the CPU.
    """

    def __init__(
        self,
        read: Callable[[Tensor], Tensor],
        places: Tensor,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._read, self._places, self._dtype = read, places, dtype
        self.device = torch.device(device)

    nbytes: ClassVar[int] = 0

    def __len__(self) -> int:
        return len(self._places)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "Deferred":
        """The same, whose batches come on a device in a precision."""
        return Deferred(self._read, self._places, device, dtype)

    def split(self, size: int, some: slice = slice(None)) -> Iterator[Tensor]:
        """Batches of `size` items, the last of what is left; `some` of them, without reading the others."""
        for places in self._places.split(size)[some]:
            yield self._read(places).to(self.device, self._dtype)


@dataclass(frozen=True)
class Stream:
    """A training split without an end: a fresh batch every step, a pure function of the step.

    `draw(step, size)` gives inputs `[size, ...]` and targets `[size, ...]`, float32 on the CPU. Where a batch is tiny,
    so that drawing it is mostly overhead, `draw` is asked for the batches of `block` steps at once: `draw(step //
    block, block * size)`. Where items are costly, `items(first, count)` gives those alone of the endless row that
    batches are cut from: each of several processes then draws its own.
    """

    draw: Callable[[int, int], tuple[Tensor, Tensor]]
    block: int = 1
    items: Callable[[int, int], tuple[Tensor, Tensor]] | None = None

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        """The batch of one step."""
        block, at = divmod(step, self.block)
        inputs, targets = self.draw(block, self.block * size)
        return inputs[at * size : (at + 1) * size], targets[at * size : (at + 1) * size]


class Recent:
    """The splits that were drawn last, by what they are drawn from, as far as `limit` bytes hold them.

    The points of a grid that differ in their training data alone are judged on the same test split, and drawing 10,000
    points can take longer than the training.
    """

    def __init__(self, limit: int = 2**30) -> None:
        self.limit = limit
        self._splits: dict[Hashable, Split] = {}

    def get(self, key: Hashable, draw: Callable[[], Split]) -> Split:
        """The split of a key, drawn if it is not held."""
        found = self._splits.pop(key, None)
        found = draw() if found is None else found
        self._splits[key] = found
        while len(self._splits) > 1 and sum(s.kept.nbytes for s in self._splits.values()) > self.limit:
            del self._splits[next(iter(self._splits))]
        return found


class Dataset:
    """Base of every data set: a subclass gives `shapes`, `prepare` and, if it has classes, `class_names`."""

    loss: str = "cross-entropy"
    derived: ClassVar[tuple[str, ...]] = ()
    """The arguments that `resolved` gives."""
    seed: int

    @property
    def shapes(self) -> dict[str, int]:
        """The model arguments that the data decides, such as `num_classes`."""
        raise NotImplementedError

    @property
    def class_names(self) -> list[str]:
        """The name of each label, in the order of the labels."""
        return []

    @property
    def structure(self) -> dict[str, Tensor]:
        """Named tensors that the data was drawn from, such as a partition or a graph."""
        return {}

    def prepare(self, split: SplitName) -> Split:
        """Read or draw one split."""
        raise NotImplementedError

    def stream(self) -> Stream | None:
        """Training data that is drawn afresh each step, in place of a training split."""
        return None

    @cached_property
    def train(self) -> Split | Stream:
        """What a model is trained on."""
        return self.stream() or self.prepare("train")

    @cached_property
    def test(self) -> Split:
        """What was held out; metrics are measured on it."""
        return self.prepare("test")

    def resolved(self) -> dict[str, Any]:
        """Arguments derived from the files, to be saved with a checkpoint; the same for every seed."""
        return {}

    @classmethod
    def missing(cls, **args: Any) -> str | None:
        """None where the data is at hand, else one line: what was looked for, where. Downloads nothing."""
        return None


def as_trained(builder: Any, node: Mapping[str, Any], trained: Mapping[str, Any]) -> dict[str, Any]:
    """A data node for a model that was trained on the node `trained` of the same data set.

    What the training data derived from its files (classes, size, statistics) holds here too where the node says
    nothing of it, so that labels and pixels mean in another folder what they meant to the model.
    """
    if node["name"] != trained["name"]:
        return dict(node)
    return {key: trained[key] for key in getattr(builder, "derived", ()) if key in trained} | dict(node)
