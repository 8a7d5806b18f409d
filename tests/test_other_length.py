"""A run whose recipe now has another number of steps: refused, or gone on from where asked, and then stated."""

import math
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_run import RECIPE, assert_same_run, execute, killed, same, weights
from torch.optim.optimizer import register_optimizer_step_pre_hook

import provenzoo
from provenzoo import checkpoint
from provenzoo.errors import UsageError, ZooError
from provenzoo.plain import dump_yaml, merge, read_json

pytestmark = pytest.mark.usefixtures("no_report")

CONSTANT = {"name": "adamw", "lr": 0.01, "schedule": "constant"}


def recipe(folder: Path, **train: Any) -> Path:
    """The small recipe's first stage with other settings; None leaves one out."""
    stages = {"train": merge(RECIPE["stages"]["train"], train)}
    file = folder / f"{len(list(folder.glob('*.yaml')))}.yaml"
    file.write_text(dump_yaml({"recipe": "small", "seeds": 2, "device": "cpu", "publish": "train", "stages": stages}))
    return file


def stopped(folder: Path, count: int = 15, **train: Any) -> tuple[Path, int]:
    """A run that was killed as it trained, and the step of the state that it left."""
    run = folder / "run"
    assert killed(recipe(folder, **train), run, count) == -signal.SIGKILL
    [state] = (run / "stages/train").glob(".*.state")
    return run, len(checkpoint.load(state)[0]["losses"][0])


@pytest.fixture
def rates() -> Iterator[list[float]]:
    """The learning rate of every step that an optimiser takes."""
    seen: list[float] = []
    hook = register_optimizer_step_pre_hook(lambda optimiser, *_: seen.append(optimiser.param_groups[0]["lr"]))
    yield seen
    hook.remove()


def files(run: Path) -> dict[str, bytes]:
    return {str(file.relative_to(run)): file.read_bytes() for file in run.rglob("*") if file.is_file()}


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "says"),
    [
        ({"steps": 60}, "has steps 40, log_every 20, the recipe steps 60, log_every 20"),
        ({"steps": 30}, "the recipe steps 30, log_every 20"),
        ({"steps": None, "epochs": 4}, "the recipe epochs 4, log_every 20"),
    ],
)
def test_another_length_is_refused_and_nothing_is_touched(tmp_path: Path, length: dict[str, Any], says: str) -> None:
    run, _ = stopped(tmp_path)
    before = files(run)
    with pytest.raises(ZooError, match=rf"train: its unfinished training in \S+ .*{says}") as found:
        provenzoo.run(recipe(tmp_path, **length), out=run)
    assert "--new-length" in str(found.value) and len(str(found.value).splitlines()) == 2
    assert files(run) == before
    assert provenzoo.run(recipe(tmp_path), out=run).record["stages"][0]["lengths"] == {}


def test_fresh_drops_it(tmp_path: Path) -> None:
    run, _ = stopped(tmp_path)
    whole = provenzoo.run(recipe(tmp_path, steps=60), out=tmp_path / "whole")
    provenzoo.run(recipe(tmp_path, steps=60), out=run, fresh=True)
    assert_same_run(run, whole.path)


@pytest.mark.parametrize("length", [{}, {"optim": {"lr": 0.02}}, {"steps": 60, "batch": 16}])
def test_to_ask_for_it_in_vain_is_told(tmp_path: Path, length: dict[str, Any]) -> None:
    run, _ = stopped(tmp_path)
    with pytest.raises(UsageError, match=r"--new-length: \S+ has no unfinished training of another length"):
        provenzoo.run(recipe(tmp_path, **length), out=run, new_length=True)
    with pytest.raises(UsageError, match="give one of them"):
        provenzoo.run(recipe(tmp_path, steps=60), out=run, new_length=True, fresh=True)


def test_other_settings_start_anew_with_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = stopped(tmp_path)
    changed = recipe(tmp_path, optim={"lr": 0.02}, steps=60)
    whole = provenzoo.run(changed, out=tmp_path / "whole").path
    assert "which goes" not in capsys.readouterr().err
    provenzoo.run(changed, out=run)
    assert "train: its settings are not those of what is there, which goes" in capsys.readouterr().err
    assert_same_run(run, whole)


def test_a_training_that_is_complete_is_done_anew_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = provenzoo.run(recipe(tmp_path), out=tmp_path / "run").path
    again = provenzoo.run(recipe(tmp_path, steps=60), out=run)
    assert "which goes" in capsys.readouterr().err and again.record["stages"][0]["lengths"] == {}


# --- asked for ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"ema": 0.9}], ids=["", "ema"])
@pytest.mark.parametrize("steps", [39, 43, 60])
def test_under_a_constant_rate_it_becomes_the_longer_training_to_the_bit_and_says_so(
    tmp_path: Path, steps: int, more: dict[str, Any]
) -> None:
    settings = {"optim": CONSTANT, "log_every": 5, **more}
    run, step = stopped(tmp_path, **settings)
    whole = provenzoo.run(recipe(tmp_path, **settings, steps=steps), out=tmp_path / "whole")
    longer = provenzoo.run(recipe(tmp_path, **settings, steps=steps), out=run, new_length=True)
    assert_same_run(run, whole.path)
    told = [{"step": step, "was": 40, "now": steps}]
    assert 0 < step < 39
    assert longer.record["stages"][0]["lengths"] == {"0": told, "1": told}
    assert read_json(run / "stages/train/config.json")["lengths"] == {"0": told, "1": told}
    assert whole.record["stages"][0]["lengths"] == {}


def test_of_one_published_seed_its_own_is_told(tmp_path: Path) -> None:
    run, step = stopped(tmp_path)
    provenzoo.run(recipe(tmp_path, steps=60), out=run, new_length=True)
    execute("publish", run, f"local:{tmp_path}/out", "--seed", "1")
    assert read_json(tmp_path / "out/config.json")["lengths"] == {"1": [{"step": step, "was": 40, "now": 60}]}
    row = f"| schedule of seed 1 | of 40 steps up to step {step}, of 60 from there on |"
    card = (tmp_path / "out/README.md").read_text()
    assert row in card and "schedule of seed 0" not in card


def test_the_rate_follows_the_new_length_from_there_on(tmp_path: Path, rates: list[float]) -> None:
    """A cosine from .01 without warm-up: Loshchilov and Hutter 2017, Eq. 5."""
    run, step = stopped(tmp_path, optim={"schedule": {"name": "cosine", "warmup": 0.0}})
    longer = recipe(tmp_path, optim={"schedule": {"name": "cosine", "warmup": 0.0}}, steps=60)
    provenzoo.run(longer, out=run, new_length=True)
    assert rates == pytest.approx([0.01 * (1 + math.cos(math.pi * k / 60)) / 2 for k in range(step, 60)])


def test_a_state_saved_at_the_old_end_goes_on_too(tmp_path: Path) -> None:
    """The end of 43 steps was measured, and is no step at which 60 steps measure."""
    settings = {"optim": CONSTANT, "log_every": 5}
    run, step = stopped(tmp_path, count=46, **settings, steps=43)
    assert step == 43
    provenzoo.run(recipe(tmp_path, **settings, steps=60), out=run, new_length=True)
    whole = provenzoo.run(recipe(tmp_path, **settings, steps=60), out=tmp_path / "whole")
    assert_same_run(run, whole.path)


def test_killed_again_it_goes_on_without_the_word_and_tells_of_every_length(tmp_path: Path) -> None:
    settings = {"optim": CONSTANT, "log_every": 5}
    run, first = stopped(tmp_path, **settings)
    longer, longest = (recipe(tmp_path, **settings, steps=steps) for steps in (60, 80))
    from provenzoo.pipeline import lengths

    check = lengths.check
    lengths.check = lambda folder, points, asked: check(folder, points, True)  # in the child
    assert killed(longer, run, 9) == -signal.SIGKILL
    lengths.check = check
    [state] = (run / "stages/train").glob(".*.state")
    second = len(checkpoint.load(state)[0]["losses"][0])
    assert first < second < 60
    done = provenzoo.run(longest, out=run, new_length=True)
    told = [{"step": first, "was": 40, "now": 60}, {"step": second, "was": 60, "now": 80}]
    assert done.record["stages"][0]["lengths"]["0"] == told
    whole = provenzoo.run(longest, out=tmp_path / "whole")
    assert same(weights(run), weights(whole.path))


@pytest.mark.parametrize(
    ("length", "says"),
    [
        ({"steps": 5}, r"train: \d+ steps are done, and the recipe has 5; give more"),
        ({"steps": 60, "log_every": None}, "train: what was measured up to step .* write `log_every: 20`"),
    ],
)
def test_what_cannot_be_gone_on_from_is_told_and_kept(tmp_path: Path, length: dict[str, Any], says: str) -> None:
    run, step = stopped(tmp_path)
    for _ in range(2):
        with pytest.raises(ZooError, match=says):
            provenzoo.run(recipe(tmp_path, **length), out=run, new_length=True)
    with pytest.raises(ZooError, match="has steps 40, log_every 20, the recipe steps 61, log_every 20"):
        provenzoo.run(recipe(tmp_path, steps=61), out=run)
    done = provenzoo.run(recipe(tmp_path, steps=60), out=run, new_length=True)
    assert done.record["stages"][0]["lengths"]["0"] == [{"step": step, "was": 40, "now": 60}]


def test_log_every_spelled_out_as_it_was_goes_on(tmp_path: Path) -> None:
    run, _ = stopped(tmp_path, log_every=None)
    whole = provenzoo.run(recipe(tmp_path, log_every=4), out=tmp_path / "whole")
    with pytest.raises(ZooError, match="has steps 40, the recipe steps 40, log_every 4"):
        provenzoo.run(recipe(tmp_path, log_every=4), out=run)
    done = provenzoo.run(recipe(tmp_path, log_every=4), out=run, new_length=True)
    assert_same_run(run, whole.path)
    assert done.record["stages"][0]["lengths"] == {}


def test_the_command_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, step = stopped(tmp_path)
    longer = recipe(tmp_path, steps=60)
    assert execute("run", longer, "--out", run) == 1
    assert "--new-length" in capsys.readouterr().err
    assert execute("run", longer, "--out", run, "--new-length") == 0
    said = f"train: goes on from step {step} under the schedule of 60 steps; up to there it was of 40"
    assert said in capsys.readouterr().err
    assert execute("run", "jelassi2022/*", "--new-length") == 2
