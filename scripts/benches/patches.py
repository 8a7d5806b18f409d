"""Patch attention (Jelassi et al. 2022): seeds at once, our loop, gradients by hand."""

from typing import Any

from benches.timing import Rows, Side, at_least, at_most, calls


def patch_attention_data(patches: int, seeds: int = 1) -> list[Any]:
    """The training data of `jelassi2022/realistic` and its kin, drawn ahead of any clock."""
    import provenzoo

    q = {16: 0.4, 36: 0.3, 64: 0.25}[patches]
    sets = [
        provenzoo.create_dataset("patch-structured", seed=k, patches=patches, q=q, samples=4000) for k in range(seeds)
    ]
    return [data.train for data in sets]


def patch_attention(patches: int) -> Any:
    """The model of a size."""
    import provenzoo

    return provenzoo.create_model("patch-attention", patches=patches, dim=patches)


def train_patch_attention(splits: list[Any], patches: int, batch: int, steps: int) -> None:
    """So many seeds through our loop, at once or in turn as the stage would."""
    from provenzoo.metrics.binary import logistic
    from provenzoo.training.feed import Feed
    from provenzoo.training.loop import train
    from provenzoo.training.optim import read_optim
    from provenzoo.training.replicas import Replicas, at_once_pays

    model = patch_attention(patches)
    all_seeds = list(range(len(splits)))
    at_once = at_once_pays(type(model), sum(p.numel() for p in model.parameters()), batch)
    optim = read_optim({"name": "sgd", "groups": {"attention": {"lr": 20.0}, "value": {"lr": 0.1}}}, "optim")
    for seeds in [all_seeds] if at_once else [[seed] for seed in all_seeds]:
        replicas = Replicas([patch_attention(patches) for _ in seeds], seeds)
        train(replicas, Feed([splits[k] for k in seeds], seeds, batch), logistic, optim, steps)


def seeds_together(patches: int, batch: int, steps: int) -> tuple[Side, Side]:
    """Ten seeds against one."""
    splits = patch_attention_data(patches, seeds=10)
    return (
        calls(lambda: train_patch_attention(splits, patches, batch, steps)),
        calls(lambda: train_patch_attention(splits[:1], patches, batch, steps)),
    )


def patch_attention_loop() -> tuple[Side, Side]:
    """Our loop against one by hand with the formula written out for autograd, D = 36, batch 256, 400 steps."""
    [split] = patch_attention_data(36)
    return (
        calls(lambda: train_patch_attention([split], 36, 256, 400)),
        calls(lambda: bare_patch_attention(split.inputs, split.targets, 400)),
    )


def bare_patch_attention(inputs: Any, targets: Any, steps: int, by_hand: bool = False) -> None:
    """Plain PyTorch: SGD with a rate for A and one for v, an order an epoch; gradients by autograd or by hand."""
    import torch
    from torch.nn import functional as F

    model = patch_attention(36)
    a, v = model.attention, model.value
    optimiser = torch.optim.SGD([{"params": [a], "lr": 20.0}, {"params": [v], "lr": 0.1}], fused=True)
    done = 0
    while done < steps:
        for rows in torch.randperm(len(inputs)).split(256):
            x, y = inputs[rows], targets[rows]
            if by_hand:
                a.grad, v.grad = patch_attention_gradients(x, y, a.detach(), v.detach(), model)
            else:
                optimiser.zero_grad()
                scores = (x @ v) @ a.masked_fill(model.diagonal, model.sigma_a).softmax(-1).T
                F.softplus(-y * (scores * ((scores * scores) ** 2 + model.nu)).sum(-1)).mean().backward()
            optimiser.step()
            done += 1
            if done == steps:
                return


def patch_attention_gradients(x: Any, y: Any, a: Any, v: Any, model: Any) -> tuple[Any, Any]:
    """The logistic loss's gradients in A and v, written out (App. H), for p = 5."""
    import torch

    along = x @ v
    shares = a.masked_fill(model.diagonal, model.sigma_a).softmax(-1)
    scores = along @ shares.T
    fourth = (scores * scores) ** 2
    outer = -y * torch.sigmoid(-y * (scores * (fourth + model.nu)).sum(-1)) / len(y)
    slopes = outer.unsqueeze(-1) * (5 * fourth + model.nu)
    in_shares = slopes.T @ along
    in_a = shares * (in_shares - (in_shares * shares).sum(-1, keepdim=True))
    return in_a.masked_fill(model.diagonal, 0.0), (slopes @ shares).flatten() @ x.flatten(0, 1)


def patch_attention_by_hand() -> tuple[Side, Side]:
    """Gradients written out against autograd, both in a bare loop: what the model would gain."""
    [split] = patch_attention_data(36)
    return (
        calls(lambda: bare_patch_attention(split.inputs, split.targets, 400, by_hand=True)),
        calls(lambda: bare_patch_attention(split.inputs, split.targets, 400)),
    )


ROWS: Rows = {
    "patch-attention, D 16, batch 64: ten seeds / one": (lambda: seeds_together(16, 64, 400), at_most(3)),
    "patch-attention, D 36, batch 256: ten seeds / one": (lambda: seeds_together(36, 256, 50), at_most(10)),
    "patch-attention, D 64, batch 256: ten seeds / one": (lambda: seeds_together(64, 256, 60), at_most(10)),
    "our loop / bare loop, patch-attention D 36": (patch_attention_loop, at_most(1.1)),
    "gradients by hand / autograd, patch-attention D 36": (patch_attention_by_hand, at_least(None)),
}
