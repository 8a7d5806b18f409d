"""A sweep: a run folder a point, what fails alone fails, and only what is missing runs again."""

import json
import signal
import sys
from pathlib import Path

import matplotlib.image
import pytest
from awkward import STAGE, content

import provenzoo
from provenzoo import cli
from provenzoo.pipeline import sweep as home
from provenzoo.pipeline.jobs import Job, in_processes, perform
from provenzoo.pipeline.recipe import plain_recipe
from provenzoo.plain import dump_yaml, read_json
from provenzoo.training.runtime import Stop

MODE = "stages.train.data.mode"
LR = "stages.train.optim.lr"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, where the recipe `awkward` is known to this process and to those that it starts."""
    monkeypatch.setenv("PROVENZOO_PATH", str(content(tmp_path / "content")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The points run in this process, without reports; the names of those that ran."""
    ran: list[str] = []

    def engine(jobs, stop, count):
        for job in jobs:
            if stop.requested:
                return
            ran.append(job.name)
            yield perform(job)

    monkeypatch.setattr(home, "in_processes", engine)
    monkeypatch.setattr("provenzoo.report.report", lambda path: [])
    return ran


# --- the points ---------------------------------------------------------------------------------------------------


def test_each_point_is_the_run_that_its_overrides_make(here, folder):
    done = provenzoo.sweep("awkward", [f"{LR}=0.1,0.5", "stages.train.model.hidden=1,3", "seeds=2"], out="s")
    assert [point["name"] for point in done.points] == [
        "lr=0.1,hidden=1",
        "lr=0.1,hidden=3",
        "lr=0.5,hidden=1",
        "lr=0.5,hidden=3",
    ]
    assert done.record["status"] == "complete" and done.holds and here == [point["name"] for point in done.points]
    last = done.points[-1]
    alone = provenzoo.run("awkward", [f"{LR}=0.5", "stages.train.model.hidden=3", "seeds=2"], out="alone")
    assert last["values"] == {LR: 0.5, "stages.train.model.hidden": 3}
    assert last["metrics"] == {f"train.{name}": alone.metrics["train"][name] for name in ("loss", "accuracy")}
    assert read_json(folder / "s" / last["folder"] / "run.json")["id"] == alone.record["id"]
    assert read_json(folder / "s" / "sweep.json") == done.record


def test_the_same_command_finds_its_sweep_and_runs_only_what_is_missing(here, folder):
    done = provenzoo.sweep("awkward", [f"{LR}=0.1,0.2,0.3"])
    assert done.path.parent == Path("sweeps/awkward")
    (done.path / done.points[1]["folder"] / "run.json").unlink()
    stage = done.path / done.points[2]["folder"] / "stages" / "train"
    (stage / "metrics.json").write_text("{}")
    here.clear()
    again = provenzoo.sweep("awkward", [f"{LR}=0.1,0.2,0.3"])
    assert here == ["lr=0.2", "lr=0.3"] and again.path == done.path and again.points == done.points


def test_with_out_values_can_be_added(here):
    provenzoo.sweep("awkward", [f"{LR}=0.1,0.2"], out="s")
    done = provenzoo.sweep("awkward", [f"{LR}=0.1,0.2,0.4"], out="s")
    assert here == ["lr=0.1", "lr=0.2", "lr=0.4"] and len(done.points) == 3


def test_a_point_that_fails_is_told_and_the_others_finish(here, capsys):
    assert cli.execute(["sweep", "awkward", f"{MODE}=fails,faulty,fine", "--out", "s"]) == 1
    said = capsys.readouterr()
    assert "error: mode=fails: train: the data is bad" in said.err.splitlines()
    assert "error: mode=faulty: RuntimeError: a bug (the traceback is in s/points/mode=faulty/.log)" in said.err
    assert "Traceback" not in said.err and "a bug" in Path("s/points/mode=faulty/.log").read_text()
    rows = [line.split("\t") for line in said.out.splitlines()]
    assert [row[:2] for row in rows[:3]] == [["fails", "failed"], ["faulty", "failed"], ["fine", "complete"]]
    assert read_json(Path("s/sweep.json"))["status"] == "failed"
    assert len(matplotlib.image.imread("s/figure.png"))


def test_a_claim_that_falls_short_at_a_point_gives_three(here, folder, capsys):
    claims = {
        "small": {"says": "little", "metric": "train.loss", "holds": "<= 0"},
        "some": {"says": "more", "metric": "train.loss", "holds": ">= 0"},
    }
    content(folder / "content", claims=claims)
    assert cli.execute(["sweep", "awkward", f"{LR}=0.1,0.2", "--out", "s", "--json"]) == 3
    assert [point["claims"] for point in json.loads(capsys.readouterr().out)["points"]] == [[1, 2], [1, 2]]


def test_stopped_it_says_so_and_goes_on_when_it_is_started_again(here, folder, monkeypatch):
    class Stopped(Stop):
        """Ctrl-C comes while the second point runs."""

        @property
        def requested(self) -> bool:
            self.signal = signal.SIGINT if len(here) > 1 else None
            return self.signal is not None

    with monkeypatch.context() as patch:
        patch.setattr(home.runtime, "Stop", Stopped)
        assert cli.execute(["sweep", "awkward", f"{LR}=0.1,0.2,0.3", "--out", "s"]) == 130
    told = read_json(Path("s/sweep.json"))
    assert told["status"] == "interrupted" and [p["status"] for p in told["points"]][::2] == ["complete", "waiting"]
    here.clear()
    assert provenzoo.sweep("awkward", [f"{LR}=0.1,0.2,0.3"], out="s").holds
    assert "lr=0.1" not in here and here[-1] == "lr=0.3"


# --- the figure ---------------------------------------------------------------------------------------------------


def test_the_figure_shows_means_and_spread_against_the_numbers_with_a_line_for_each_other_value():
    from provenzoo.report.sweep import draw

    axes = {"optim": ["sgd", "adamw"], "a.lr": [0.001, 0.1], "seeds": [3]}
    points = [
        {"values": {"optim": name, "a.lr": lr, "seeds": 3}, "metrics": {"t.loss": {"mean": mean, "std": 0.5}}}
        for name, lr, mean in [("sgd", 0.1, 1.0), ("sgd", 0.001, 2.0), ("adamw", 0.1, 3.0), ("adamw", 0.001, None)]
    ]
    figure, caption = draw(axes, points, ["t.loss"])
    [panel] = figure.axes
    assert panel.get_xscale() == "log" and panel.get_xlabel() == "a.lr" and "t.loss against a.lr" in caption
    sgd, adamw = panel.containers
    assert (sgd.get_label(), adamw.get_label()) == ("sgd", "adamw")
    assert sgd.lines[0].get_xydata().tolist() == [[0.001, 2.0], [0.1, 1.0]]
    assert [bar.tolist() for bar in sgd.lines[2][0].get_segments()] == [
        [[0.001, 1.5], [0.001, 2.5]],
        [[0.1, 0.5], [0.1, 1.5]],
    ]


def test_values_that_are_no_numbers_stand_side_by_side():
    from provenzoo.report.sweep import draw

    points = [{"values": {"name": n}, "metrics": {"loss": {"mean": 1.0, "std": 0.0}}} for n in ("b", "a")]
    figure, _ = draw({"name": ["b", "a"]}, points, ["loss"])
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["b", "a"]


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("awkward stages.train.optim.lt=1,2", 2, "sgd has no setting 'lt'; there are: name, lr,"),
        ("awkward stages.trian.steps=1,2", 2, "no stage 'trian'; did you mean 'train'"),
        ("awkward lr=1,2", 2, "did you mean 'stages.train.optim.lr'"),
        ("awkward stages.train.steps=range(3,3)", 2, "stages.train.steps: range(3,3) is empty"),
        ("awkward stages.train.steps=1,many", 2, "stages.train.steps: must be a whole number (it is 'many')"),
        ("awkward stages.train.steps=1,2 stages.train.steps=3", 2, "'stages.train.steps' is given twice"),
        ("awkward", 2, "a sweep needs a key with several values"),
        ("awkwart seeds=1,2", 2, "did you mean 'awkward'"),
        (
            "awkward seeds=1,2 --metric train.acuracy",
            2,
            "no metric 'train.acuracy' in the recipe; did you mean 'train.accuracy'",
        ),
        ("awkward seeds=1,2 --jobs 0", 2, "--jobs"),
        ("awkward seeds=1,2 --out things", 1, "things: is no folder of a sweep (it holds 'thesis.tex')"),
        ("awkward seeds=1,2 --out other", 1, "other: holds another sweep, of 'other' over seeds"),
        ("awkward seeds=1,2 --out steps", 1, "steps: holds another sweep, of 'awkward' over stages.train.steps"),
        ("awkward seeds=1,2 device=cuda", 2, "no cuda"),
        ("awkward seeds=1,2 --ray nonsense", 1, "an address is auto, host:port or ray://host:port"),
    ],
)
def test_bad_input_is_told_before_anything_runs(words, code, says, here, folder, capsys, monkeypatch):
    for name, axes, recipe in (("other", ["seeds"], "other"), ("steps", ["stages.train.steps"], "awkward")):
        (folder / name).mkdir()
        (folder / name / "sweep.json").write_text(json.dumps({"recipe": recipe, "axes": {axis: [1] for axis in axes}}))
    (folder / "things").mkdir()
    (folder / "things" / "thesis.tex").touch()
    monkeypatch.setitem(sys.modules, "ray", Ray)
    before = sorted(folder.rglob("*"))
    assert cli.execute(["sweep", *words.split()]) == code
    said = capsys.readouterr()
    assert says in said.err and len(said.err.splitlines()) <= 2 and said.out == "" and here == []
    assert sorted(folder.rglob("*")) == before


class Ray:
    """In the place of Ray: nothing is asked of it before its address answers."""

    @staticmethod
    def is_initialized() -> bool:
        return False


# --- processes ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_process_that_dies_fails_its_point_alone_and_is_replaced(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    done = provenzoo.sweep("awkward", [f"{MODE}=dies,fine"], out="s", jobs=1)
    assert [point["status"] for point in done.points] == ["failed", "complete"]
    assert "its process was ended by SIGKILL" in done.points[0]["error"]
    assert (folder / "s" / done.points[1]["folder"] / "report.html").is_file()
    assert "train: done in" in (folder / "s" / done.points[1]["folder"] / ".log").read_text()


@pytest.mark.slow
def test_stopped_processes_save_and_end_and_nothing_more_is_begun(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    told = folder / "told"
    told.mkdir()
    slow = {"name": "awkward", "mode": "slow", "told": str(told), "seconds": 0.5}
    recipe = plain_recipe(provenzoo.compose("awkward"))
    recipe["stages"]["train"]["data"] = slow
    jobs = [Job(str(i), recipe, str(folder / "runs" / str(i))) for i in range(3)]
    stop, ended = Stop(), []
    for end in in_processes(jobs, stop, 1):
        ended.append(end)
        stop.signal = signal.SIGTERM
    assert ended[0].status == "complete" and len(ended) <= 2 and not (folder / "runs" / "2").exists()


@pytest.mark.slow
def test_recipes_of_a_pattern_run_side_by_side_and_one_that_fails_lets_the_others_finish(folder, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    recipe = {"device": "cpu", "threads": 1, "stages": {"train": STAGE}}
    for name, mode in (("mine/fine", "fine"), ("mine/wrong", "fails")):
        stage = {**STAGE, "data": {"name": "awkward", "mode": mode}}
        file = folder / "content" / "pipelines" / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(dump_yaml({**recipe, "stages": {"train": stage}}))
    assert cli.execute(["run", "mine/*", "--jobs", "1", "--out", "all"]) == 1
    said = capsys.readouterr().err
    assert "mine/wrong: train: the data is bad" in said and "error: 1 of 2 recipes failed" in said
    assert read_json(folder / "all" / "mine" / "fine" / "run.json")["status"] == "complete"
