"""Our training loop against the one that one writes by hand."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from benches.timing import Rows, Side, at_most, calls

STEPS, BATCH = 1000, 256


def loop() -> tuple[Side, Side]:
    """Our loop, measuring ten times and drawing its bar, against the loop that one writes by hand, which does neither.

    An MLP 32-64-10 on 10,240 points with batches of 256, 1,000 steps of the same fused AdamW: one parameter group, so
    with weight decay on biases too.
    """
    import provenzoo

    data = provenzoo.create_dataset("gaussian-clusters", features=32, num_classes=10, train=40 * BATCH)
    return calls(lambda: our_loop(data)), calls(lambda: bare_loop(data.train.inputs, data.train.targets))


def our_loop(data: Any) -> None:
    """As a `pretrain` stage calls it: accuracy and loss on the held-out split, a tenth of the steps apart."""
    import torch

    from provenzoo.metrics.measure import Measure, loss_function, metric_functions
    from provenzoo.training.feed import Feed
    from provenzoo.training.loop import train
    from provenzoo.training.optim import read_optim
    from provenzoo.training.replicas import Replicas
    from provenzoo.training.runtime import Progress

    model = tiny_mlp()
    loss = loss_function("cross-entropy")
    functions = metric_functions(["loss", "accuracy"], loss)
    measure = Measure(functions, data, data.test, torch.device("cpu"), torch.float32)
    with unseen_terminal():
        train(
            Replicas([model], [0]),
            Feed([data.train], [0], BATCH),
            loss,
            read_optim({"name": "adamw", "lr": 1e-3, "decay_vectors": True}, "optim"),
            STEPS,
            log_every=STEPS // 10,
            measure=lambda _: measure(model),
            progress=Progress("bench", STEPS),
        )


def bare_loop(inputs: Any, targets: Any) -> None:
    """The same steps in plain PyTorch: an order an epoch, a gather a batch."""
    import torch
    from torch.nn import functional as F

    model = tiny_mlp()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    batches = len(inputs) // BATCH
    for _ in range(STEPS // batches):
        for rows in torch.randperm(len(inputs)).split(BATCH):
            optimiser.zero_grad()
            loss = F.cross_entropy(model(inputs[rows]), targets[rows])
            loss.backward()
            optimiser.step()


def tiny_mlp() -> Any:
    """The model of both loops."""
    import provenzoo

    return provenzoo.create_model("mlp", features=32, hidden=64, num_classes=10)


@contextlib.contextmanager
def unseen_terminal() -> Iterator[None]:
    """Standard error that nobody sees and that rich (by FORCE_COLOR) takes for a terminal: the bar is drawn."""
    os.environ["FORCE_COLOR"] = "1"
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield


ROWS: Rows = {
    "our loop / bare loop, MLP 32-64-10": (loop, at_most(1.05)),
}
