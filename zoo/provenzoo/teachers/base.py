"""What a teacher is: a function of token matrices that tells its own ground truth."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from provenzoo.errors import ZooError
from provenzoo.models.activations import Activation, slope_of


class Teacher:
    """Base of every teacher, drawn for one seed. Calling it maps inputs to targets, item by item."""

    law: tuple[Any, ...] = ()
    """What tells the teacher from others, for the digest of its data; its arguments or its weights' digest."""

    @property
    def truth(self) -> dict[str, Tensor]:
        """What a student should find, named as the student's groups are; empty where it is not known."""
        return {}

    @property
    def shapes(self) -> dict[str, Any]:
        """The arguments of a student that the teacher decides."""
        return {}

    def check_inputs(self, shapes: Mapping[str, int]) -> None:
        """Raise a ZooError where the teacher does not take inputs of these shapes (`dim`, `tokens`)."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """A batch of inputs to a batch of targets, without a gradient: `[B, ...] -> [B, ...]`."""
        raise NotImplementedError


class BilinearTeacher(Teacher):
    """`f*(X) = sigma(V* X S*)` (Zhang et al., Eq. 2.1): `value` V* `[M, d]`, `attention` S* `[D, D]`.

    Each column of S* holds 1/K at the K tokens of the group that is read there, and 0 elsewhere.
    """

    def __init__(self, value: Tensor, attention: Tensor, activation: Activation, leak: float) -> None:
        self.value, self.attention = value, attention
        self.activation, self.leak = activation, leak
        self.slope = slope_of(activation, leak)
        self.law = (type(self).__name__, list(value.shape), self.slope)

    @property
    def truth(self) -> dict[str, Tensor]:
        return {"value": self.value, "attention": self.attention, "slope": self.value.new_tensor(self.slope)}

    @property
    def shapes(self) -> dict[str, Any]:
        leak = {"leak": self.leak} if self.activation == "leaky-relu" else {}
        return {"features": self.value.shape[0], "activation": self.activation, **leak}

    def check_inputs(self, shapes: Mapping[str, int]) -> None:
        own = {"dim": self.value.shape[1], "tokens": self.attention.shape[0]}
        for name, size in own.items():
            if shapes.get(name) != size:
                given = f"{name} {shapes[name]}" if name in shapes else f"no {name}"
                raise ZooError(f"the teacher has {name} {size}, its inputs have {given}; give both the same")

    def __call__(self, inputs: Tensor) -> Tensor:
        """`[..., d, D] -> [..., M, D]`."""
        value, attention = self.value.to(inputs), self.attention.to(inputs)
        return F.leaky_relu(value @ (inputs @ attention), self.slope)
