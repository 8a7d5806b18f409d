"""What a teacher is: a function of token matrices that tells its own ground truth."""

from typing import ClassVar

from torch import Tensor

from provenzoo.errors import ZooError
from provenzoo.models.activations import Activation, activate, slope_of


class Teacher:
    """Base of every teacher, drawn for one seed. Calling it maps inputs to targets, item by item."""

    loss: ClassVar[str] = "half-squared-error"

    @property
    def truth(self) -> dict[str, Tensor]:
        """What a student should find, named as the student's groups are; empty where it is not known."""
        return {}

    @property
    def shapes(self) -> dict[str, int | str | float]:
        """The arguments of a student that the teacher decides."""
        return {}

    def check_inputs(self, dim: int, tokens: int) -> None:
        """Raise a ZooError where the teacher does not take inputs `[d, D]`."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """`[..., d, D] -> [..., M, D]`, without a gradient."""
        raise NotImplementedError


class BilinearTeacher(Teacher):
    """`f*(X) = sigma(V* X S*)` (Zhang et al., Eq. 2.1): `value` V* `[M, d]`, `attention` S* `[D, D]`.

    Each column of S* holds 1/K at the K tokens of the group that is read there, and 0 elsewhere.
    """

    def __init__(self, value: Tensor, attention: Tensor, activation: Activation, leak: float) -> None:
        self.value, self.attention = value, attention
        self.activation, self.leak = activation, leak
        self.slope = slope_of(activation, leak)

    @property
    def truth(self) -> dict[str, Tensor]:
        return {"value": self.value, "attention": self.attention, "slope": self.value.new_tensor(self.slope)}

    @property
    def shapes(self) -> dict[str, int | str | float]:
        leak = {"leak": self.leak} if self.activation == "leaky-relu" else {}
        return {"features": self.value.shape[0], "activation": self.activation, **leak}

    def check_inputs(self, dim: int, tokens: int) -> None:
        own = (self.value.shape[1], self.attention.shape[0])
        if (dim, tokens) != own:
            raise ZooError(
                f"the teacher reads {own[1]} tokens of dimension {own[0]}, the inputs have {tokens} of {dim}; "
                "set `tokens` and `dim` alike on both"
            )

    def __call__(self, inputs: Tensor) -> Tensor:
        value, attention = self.value.to(inputs), self.attention.to(inputs)
        return bilinear(inputs, value, attention, self.slope)


def bilinear(inputs: Tensor, value: Tensor, attention: Tensor, slope: float | Tensor) -> Tensor:
    """`sigma(V X S)`: `[..., d, D], [M, d], [D, D] -> [..., M, D]`."""
    return activate(value @ (inputs @ attention), slope)
