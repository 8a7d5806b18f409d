"""Linear attention: its forms and ways of computing agree, seeds train at once, checkpoints hold the loop's block once."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import provenzoo
from provenzoo import checkpoint
from provenzoo.errors import ZooError
from provenzoo.models.linear_attention import LinearAttention, LoopedLinearAttention
from provenzoo.training.replicas import Replicas

FORMS = ("theory", "symmetric", "full")
DIM, N = 4, 12


def looped(loops: int, form: str = "theory", **settings: Any) -> LinearAttention:
    settings = {"diagonal": 0.2, "std": 0.05, **settings}
    model = provenzoo.create_model("looped-linear-attention", dim=DIM, loops=loops, form=form, **settings)
    assert isinstance(model, LinearAttention)
    return model.double()


def layered(layers: int, form: str = "theory", **settings: Any) -> LinearAttention:
    settings = {"diagonal": 0.2, "std": 0.05, **settings}
    model = provenzoo.create_model("linear-attention-layers", dim=DIM, layers=layers, form=form, **settings)
    assert isinstance(model, LinearAttention)
    return model.double()


def draw(count: int = 30) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X with the query `[B, dim, n + 1]`, w `[B, dim]`, prompts and Gram matrices, float64."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(count, DIM, N + 1, generator=draws, dtype=torch.float64)
    w = torch.randn(count, DIM, generator=draws, dtype=torch.float64)
    y = (w[:, None] @ x).clone()
    y[..., -1] = 0
    return x, w, torch.cat([x, y], 1), x[..., :N] @ x[..., :N].mT / N


def by_hand(model: LinearAttention, prompts: Tensor) -> Tensor:
    """Equations 2 to 4, prompt by prompt, from the matrices as the paper writes them."""
    mask = torch.diag(torch.tensor([1.0] * N + [0.0], dtype=torch.float64))
    outputs = []
    for z in prompts:
        for a, second in model.blocks():
            q, p = (torch.zeros(DIM + 1, DIM + 1, dtype=torch.float64) for _ in range(2))
            q[:DIM, :DIM], p[DIM, DIM] = a, 1
            if model.form == "full":
                p[:DIM, :DIM] = second
            else:
                p[DIM, :DIM] = second
            z = z - p @ z @ mask @ (z.mT @ q @ z) / N
        outputs.append(-z[DIM, N])
    return torch.stack(outputs)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loops", range(1, 11))
def test_every_way_of_computing_gives_the_papers_layer(form: str, loops: int) -> None:
    x, w, prompts, gram = draw()
    for model in (looped(loops, form), layered(loops, form)):
        expected = by_hand(model, prompts)
        torch.testing.assert_close(model(prompts), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(model.by_tokens(prompts), expected, rtol=0, atol=1e-12)
        outputs = model(gram)
        m, c = outputs[:, :DIM], outputs[:, DIM]
        error = -((w[:, None] @ m).squeeze(1) + c) * x[..., -1]
        torch.testing.assert_close((w * x[..., -1]).sum(-1) + error.sum(-1), expected, rtol=0, atol=1e-12)


def test_tokens_are_followed_where_asked_for() -> None:
    _, _, prompts, _ = draw()
    torch.testing.assert_close(looped(3, compute="tokens")(prompts), looped(3)(prompts), rtol=0, atol=1e-12)


def test_equation_12_has_the_terms_in_u_with_the_other_sign() -> None:
    """y_t = w^T prod (I - G A_i) X - sum_i u_i^T G A_i prod_(j > i) (I - G A_j) X; the paper prints a plus."""
    x, w, prompts, gram = draw()
    model, identity = layered(3), torch.eye(DIM, dtype=torch.float64)
    (a0, u0), (a1, u1), (a2, u2) = ((a, u[None, None]) for a, u in model.blocks())
    m0, m1, m2 = (identity - gram @ a for a in (a0, a1, a2))
    main = w[:, None] @ m0 @ m1 @ m2
    shifts = u0 @ gram @ a0 @ m1 @ m2 + u1 @ gram @ a1 @ m2 + u2 @ gram @ a2
    y_query = (w * x[..., -1]).sum(-1)

    def prediction(sign: float) -> Tensor:
        return y_query - ((main + sign * shifts).squeeze(1) * x[..., -1]).sum(-1)

    torch.testing.assert_close(model(prompts), prediction(-1), rtol=0, atol=1e-12)
    assert (model(prompts) - prediction(1)).abs().max() > 0.01


def test_the_symmetric_form_is_symmetric_and_starts_where_it_is_told() -> None:
    a = looped(2, "symmetric").named_tensors()["preconditioner"]
    assert a.equal(a.mT)
    diagonal = [0.1, 0.2, 0.3, 0.4]
    start = looped(2, diagonal=diagonal, std=0.0).named_tensors()
    torch.testing.assert_close(start["preconditioner"], torch.tensor(diagonal).diag().double())
    assert (start["shift"] == 0).all() and start["loops"] == 2


@pytest.mark.parametrize("make", [looped, layered])
@pytest.mark.parametrize("form", FORMS)
def test_replicas_at_once_give_what_each_gives_alone(make: Any, form: str) -> None:
    _, _, prompts, gram = draw(6)
    models = [make(3, form, seed=seed) for seed in range(3)]
    alone = [[model(inputs) for model in models] for inputs in (prompts, gram)]
    stacked = Replicas(models, range(3)).module
    for inputs, expected in zip((prompts, gram), alone, strict=True):
        together = stacked(inputs.expand(3, *inputs.shape))
        torch.testing.assert_close(together, torch.stack(expected), rtol=0, atol=1e-12)


def test_every_parameter_is_in_a_group() -> None:
    for form in FORMS:
        names = {name for name, _ in looped(2, form).named_parameters()}
        assert names == {"query", "value" if form == "full" else "u"}


def test_a_loop_is_in_the_checkpoint_once_and_can_be_loaded_with_other_loops(tmp_path: Path) -> None:
    model = looped(5)
    checkpoint.save(tmp_path / "model.safetensors", model.state_dict())
    state, _ = checkpoint.load(tmp_path / "model.safetensors")
    assert sum(tensor.numel() for tensor in state.values()) == DIM**2 + DIM
    longer = looped(9, std=0.0)
    longer.load_state_dict(state)
    _, _, prompts, _ = draw()
    torch.testing.assert_close(longer(prompts), by_hand(longer, prompts), rtol=0, atol=1e-12)


def test_a_block_that_is_held_several_times_is_saved_once_and_comes_back_shared(tmp_path: Path) -> None:
    block = looped(1)
    chain = nn.ModuleList([block] * 4)
    checkpoint.save(tmp_path / "model.safetensors", chain.state_dict())
    state, _ = checkpoint.load(tmp_path / "model.safetensors")
    assert len(state) == 8 and all(state[f"{k}.query"] is state["0.query"] for k in range(4))
    assert (tmp_path / "model.safetensors").stat().st_size < 3 * 8 * (DIM**2 + DIM) + 500


@pytest.mark.parametrize(
    "settings", [{"loops": 0}, {"loops": 2, "dim": 0}, {"loops": 2, "std": -1.0}, {"loops": 2, "diagonal": [1.0, 2.0]}]
)
def test_settings_that_are_no_model_are_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ZooError, match=next(key for key in reversed(settings))):
        provenzoo.create_model("looped-linear-attention", **{"dim": 3, **settings})


@pytest.mark.parametrize("shape", [(4, 4, 7), (4, 3, 7), (4, 6, 6), (4, 3)])
@pytest.mark.parametrize("form", ["theory", "full"])
def test_inputs_of_another_dimension_are_refused_in_one_line(shape: tuple[int, ...], form: Any) -> None:
    model = LoopedLinearAttention(dim=4, loops=2, form=form)
    with pytest.raises(ZooError, match=r"dim 4 reads prompts \[B, 5, n \+ 1\] or Gram") as caught:
        model(torch.zeros(shape))
    assert "\n" not in str(caught.value)


def test_a_diagonal_of_another_size_names_the_model() -> None:
    with pytest.raises(ZooError, match="linear attention: diagonal has 2 values, but dim is 3"):
        LoopedLinearAttention(dim=3, loops=1, diagonal=[1.0, 2.0])
