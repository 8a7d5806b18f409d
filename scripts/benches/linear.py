"""Linear attention on prompts of regression (Gatmiry et al. 2024)."""

from typing import Any, cast

from benches.timing import Rows, Side, at_least, at_most, calls

PROMPTS = {"n": 20, "dim": 10}


def regression(loops: int, compute: str) -> tuple[Any, Any, Any]:
    """A looped model, and 1,000 prompts with 20 examples in 10 dimensions."""
    import provenzoo

    model = provenzoo.create_model("looped-linear-attention", dim=PROMPTS["dim"], loops=loops, compute=compute)
    data = cast(Any, provenzoo.create_dataset("linear-regression-prompts", **PROMPTS))
    return model, *data.train.draw(0, 1000)


def linear_training(loops: int) -> tuple[Side, Side]:
    """A step with 1,000 prompts: on the residual, and token by token with dense matrices, as the paper has it."""
    import torch
    from torch.nn import functional as F

    def step(compute: str) -> Side:
        model, prompts, targets = regression(loops, compute)
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

        def once() -> None:
            optimiser.zero_grad()
            F.mse_loss(model(prompts), targets).backward()
            optimiser.step()

        return calls(once, repeat=4)

    return step("residual"), step("tokens")


def linear_evaluation(loops: int) -> tuple[Side, Side]:
    """Predictions for 1,000 prompts: all at once, and in a loop over prompts, token by token."""
    import torch

    ours, prompts, _ = regression(loops, "residual")
    other, _, _ = regression(loops, "tokens")

    @torch.inference_mode()
    def one_by_one() -> None:
        for prompt in prompts:
            other(prompt[None])

    return calls(torch.inference_mode()(lambda: ours(prompts)), repeat=10), calls(one_by_one)


def ten_seeds(batch: int) -> tuple[Side, Side]:
    """50 steps of ten seeds at once against those of one, with the loss that integrates w and the query out."""
    import provenzoo
    from provenzoo.metrics.measure import loss_function
    from provenzoo.training.feed import make_feed
    from provenzoo.training.loop import train
    from provenzoo.training.optim import read_optim
    from provenzoo.training.replicas import Replicas

    def run(seeds: range) -> Side:
        data = [provenzoo.create_dataset("linear-regression-prompts", **PROMPTS, layout="gram", seed=k) for k in seeds]
        splits = [d.train for d in data]
        loss, optim = loss_function("integrated-squared-error"), read_optim({"name": "adamw", "lr": 1e-3}, "optim")

        def once() -> None:
            models = [provenzoo.create_model("looped-linear-attention", dim=10, loops=5, seed=k) for k in seeds]
            train(Replicas(models, seeds), make_feed(splits, seeds, batch), loss, optim, 50)

        return calls(once)

    return run(range(10)), run(range(1))


ROWS: Rows = {
    "linear attention / dense tokens, 1 loop, training": (lambda: linear_training(1), at_least(2.5)),
    "linear attention / dense tokens, 5 loops, training": (lambda: linear_training(5), at_least(5)),
    "linear attention / dense tokens, 10 loops, training": (lambda: linear_training(10), at_least(6)),
    "linear attention / prompt by prompt, 5 loops, evaluation": (lambda: linear_evaluation(5), at_least(100)),
    "linear attention, ten seeds at once / one, batch 64": (lambda: ten_seeds(64), at_most(5)),
}
