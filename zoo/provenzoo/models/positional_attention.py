"""Attention whose scores depend on positions alone.

Jelassi, Sander, Li 2022, "Vision Transformers provably learn spatial structure" (arXiv:2210.09221),
Definition 3.2: with positional encodings P `[N, C]`, a head of width d attends with `softmax(P W_Q W_K^T P^T
/ sqrt(d))` and takes its values from the tokens. The scores are the same for every image of a batch, so that
a head is one matrix product with the batch folded into its columns, and the scores of all layers are one
batched computation a forward.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PositionalAttention(nn.Module):
    """Stands in for timm's `Attention` in a block: q, k and v are apart, q and k have no bias.

    Given the scores of its layer in the place of a block's `attn_mask`; of timm's arguments those that do not
    apply are left aside.
    """

    def __init__(self, dim: int, num_heads: int, qkv_bias: bool = True, **_: Any) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, attn_mask: Tensor, is_causal: bool = False) -> Tensor:
        """Tokens `[B, N, C]`, scores `[H, N, N]` -> `[B, N, C]`."""
        return self.proj(mix(attn_mask, self.v(x)))


def mix(scores: Tensor, values: Tensor) -> Tensor:
    """Apply the heads' scores `[H, N, N]` to their parts of the values `[B, N, C]` -> `[B, N, C]`.

    One product `[N, N] @ [N, B * C / H]` a head: against broadcasting over the batch, a third less time
    forward and backward, as neither the scores nor their gradient are ever expanded over the batch.
    """
    (heads, tokens, _), (batch, _, dim) = scores.shape, values.shape
    columns = values.view(batch, tokens, heads, -1).permute(2, 1, 0, 3).reshape(heads, tokens, -1)
    mixed = torch.bmm(scores, columns).view(heads, tokens, batch, -1)
    return mixed.permute(2, 1, 0, 3).reshape(batch, tokens, dim)


def positional_scores(encodings: Tensor, layers: Sequence[PositionalAttention]) -> Tensor:
    """The scores `[L, H, N, N]` of L layers at encodings `[N, C]`, as precise under autocast."""
    heads, width = layers[0].num_heads, encodings.shape[1] // layers[0].num_heads
    with torch.autocast(encodings.device.type, enabled=False):
        q, k = (
            F.linear(encodings, torch.cat(weights)).view(len(encodings), -1, width).transpose(0, 1)
            for weights in ([layer.q.weight for layer in layers], [layer.k.weight for layer in layers])
        )
        scores = torch.bmm(q * width**-0.5, k.transpose(1, 2)).softmax(-1)
    return scores.unflatten(0, (len(layers), heads))


class Kept:
    """A tensor computed from others, computed again only when one of them was changed, moved or replaced.

    While a gradient is wanted nothing is kept. What is kept has no graph, is not copied or pickled with its
    owner, and holds its sources' memory, so that an address cannot come to mean another tensor. An edit
    that PyTorch does not count goes unseen: one through `.data`, or a fused optimiser's step on gradients that
    no call with a gradient gave (`torch._foreach_` edits, as of a moving average, are counted).
    """

    def __init__(self) -> None:
        self._marks: list[tuple] = []
        self._sources: list[Tensor] = []
        self._value: Tensor | None = None

    def get(self, sources: Sequence[Tensor], compute: Callable[[], Tensor]) -> Tensor:
        """`compute()`, which depends on the sources alone."""
        wants_graph = torch.is_grad_enabled() and any(source.requires_grad for source in sources)
        if wants_graph or any(source.is_inference() for source in sources):
            self._value = None  # a training step follows, and fused optimisers do not raise a tensor's version
            return compute()
        marks = [(s.data_ptr(), s._version, s.dtype, s.device) for s in sources]
        if self._value is None or marks != self._marks:
            with torch.inference_mode(False), torch.no_grad():
                self._value = compute()
            self._marks, self._sources = marks, [source.detach() for source in sources]
        return self._value

    def __reduce__(self) -> tuple:
        return Kept, ()
