"""The two-layer CNN of Zhang, Zhao, Gu, Cao, Sec. 4.2: convolution, average pooling, activation, linear layer."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from provenzoo.errors import ZooError
from provenzoo.models.activations import Activation, Leak, activate, slope_of
from provenzoo.models.base import Count, Groups, Model
from provenzoo.models.mlp import Linear


class PooledCNN(Model, nn.Module):
    """`width` kernels of `patch` x `patch` at that stride, `pool` x `pool` average pooling, activation, a linear head.

    The convolution has no bias, so that with its pooling it is a teacher `sigma(V* X S*)`: `named_tensors` gives V*
    `[width, C * patch^2]` as `value` and S* `[D, D]` as `attention`, every column the mean of its patch's pool.
    """

    groups: Groups = {"conv": ["conv.*"], "head": ["head.*"]}
    replicable: ClassVar[bool] = True

    def __init__(
        self,
        *,
        image_size: Count,
        channels: Count,
        num_classes: Count,
        width: Count = 16,
        patch: Count = 3,
        pool: Count = 3,
        activation: Activation = "relu",
        leak: Leak = 0.1,
    ) -> None:
        super().__init__()
        if image_size % (patch * pool):
            raise ZooError(
                f"pooled-cnn: pools of {pool} x {pool} patches of {patch} x {patch} do not tile an image of "
                f"{image_size} x {image_size}; choose a `size` that {patch * pool} divides"
            )
        self.side, self.pool = image_size // patch, pool
        self.activation: Activation = activation
        self.leak, self.slope = leak, slope_of(activation, leak)
        self.conv = nn.Conv2d(channels, width, patch, stride=patch, bias=False)
        self.head = Linear(width * (self.side // pool) ** 2, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, C, H, W] -> [B, num_classes]`, or with replicas `[R, B, ...]`.

        Pooling and convolution commute: the patches of a pool are averaged first, which leaves one product a pool.
        """
        kernels = self.conv.weight.flatten(-3).unsqueeze(-3)
        hidden = activate(kernels @ self._pooled_patches(x), self.slope)
        return self.head(hidden.flatten(-2))

    def _pooled_patches(self, x: Tensor) -> Tensor:
        """The mean patch of each pool: `[..., C, H, W] -> [..., C * patch^2, pools]`."""
        channels, width, patch, pools = x.shape[-3], x.shape[-1], self.conv.kernel_size[0], self.side // self.pool
        rows = x.reshape(-1, channels, pools, self.pool, patch, width).mean(3)
        mean = rows.view(-1, channels, pools, patch, pools, self.pool, patch).mean(5)
        return mean.permute(0, 1, 3, 5, 2, 4).reshape(*x.shape[:-3], channels * patch**2, -1)

    def named_tensors(self) -> dict[str, Tensor]:
        return {
            "value": self.conv.weight.detach().flatten(1),
            "attention": pooling_scores(self.side, self.pool).to(self.conv.weight),
        }


def pooling_groups(side: int, pool: int) -> Tensor:
    """The pool of each patch of a grid, row by row: `[side * side]`."""
    at = torch.arange(side) // pool
    return (at.unsqueeze(1) * (side // pool) + at).flatten()


def pooling_scores(side: int, pool: int) -> Tensor:
    """S* `[D, D]` of average pooling over pools of `pool` x `pool` patches: 1 / pool^2 within a pool."""
    group = pooling_groups(side, pool)
    return (group.unsqueeze(0) == group.unsqueeze(1)).float() / pool**2
