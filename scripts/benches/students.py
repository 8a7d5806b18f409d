"""Students of a teacher (Zhang et al. 2026)."""

from collections.abc import Callable
from typing import Any

from benches.timing import Rows, Side, at_least, at_most, calls


def student_data(tokens: int, dim: int, seed: int = 0) -> Any:
    """The graph convolution's data, drawn afresh each step, with noise."""
    import provenzoo

    inputs = {"name": "gaussian-tokens", "tokens": tokens, "dim": dim}
    teacher = {"name": "graph-conv", "tokens": tokens, "dim": dim, "features": dim}
    return provenzoo.create_dataset("taught", seed=seed, inputs=inputs, teacher=teacher, noise=1.0)


def our_students(data: Any, batch: int, steps: int, rates: list[float] | None = None) -> None:
    """A student, or one at each of so many learning rates at once, by the loop that a stage calls."""
    from provenzoo.metrics.recovery import half_squared_error
    from provenzoo.models.one_layer import PositionAttention
    from provenzoo.training.feed import Repeated, make_feed
    from provenzoo.training.loop import train
    from provenzoo.training.optim import read_optim
    from provenzoo.training.replicas import Replicas

    times = len(rates or [0])
    replicas = Replicas([PositionAttention(**data.shapes) for _ in range(times)], [0] * times)
    feed = make_feed([data.train], [0], batch)
    optim = read_optim({"name": "sgd", "lr": 0.1}, "optim")
    train(replicas, Repeated(feed, times) if rates else feed, half_squared_error, optim, steps, rates=rates)


def bare_student(data: Any, batch: int, steps: int) -> None:
    """The same student, draws and steps in plain PyTorch, with autograd's gradient."""
    import torch

    value, attention = data.teacher.value, data.teacher.attention
    positions, _ = torch.linalg.qr(torch.randn(len(attention), len(attention)))
    student = [torch.zeros_like(value, requires_grad=True), torch.zeros_like(attention, requires_grad=True)]
    optimiser = torch.optim.SGD(student, lr=0.1, fused=True)
    for _ in range(steps):
        x = torch.randn(batch, value.shape[1], len(attention))
        y = (value @ (x @ attention)).relu()
        y = y + torch.randn_like(y)
        scores = (positions.T @ student[1] @ positions / len(attention) ** 0.5).softmax(0)
        z = student[0] @ (x @ scores)
        optimiser.zero_grad()
        ((torch.where(z >= 0, z, 0.0) - y).square().sum() / (2 * batch)).backward()
        optimiser.step()


def student_step() -> tuple[Side, Side]:
    """A training of graph-relu at the paper's size, draws and all, also of the two blocks drawn ahead in vain."""
    data = student_data(20, 10)
    return calls(lambda: our_students(data, 100, 2000)), calls(lambda: bare_student(data, 100, 2000))


def student_gradient() -> tuple[Side, Side]:
    """Forward and backward alone: the gradient by hand against autograd's."""
    import torch

    from provenzoo.models.activations import activate
    from provenzoo.models.one_layer import bilinear

    x, value, scores = torch.randn(100, 10, 20), torch.randn(10, 10), torch.randn(20, 20).softmax(0)
    value, scores = value.requires_grad_(), scores.requires_grad_()
    outer = torch.randn(100, 10, 20)

    def backward(forward: Callable[[], Any]) -> Side:
        return calls(lambda: forward().backward(outer), repeat=200)

    return backward(lambda: bilinear(x, value, scores, 0.0)), backward(lambda: activate(value @ (x @ scores), 0.0))


def many_students() -> tuple[Side, Side]:
    """A student of a tiny teacher at 32 learning rates, batch 10, at once and one after another."""
    data, rates = student_data(20, 5), [0.01 * (i + 1) for i in range(32)]
    return (
        calls(lambda: our_students(data, 10, 100, rates)),
        calls(lambda: [bare_student(data, 10, 100) for _ in rates]),
    )


ROWS: Rows = {
    "our / bare loop with autograd, student of a graph convolution": (student_step, at_most(1.1)),
    "gradient by hand / autograd, the same student": (student_gradient, at_least(None)),
    "32 learning rates of a tiny student at once / one after another": (many_students, at_least(8)),
}
