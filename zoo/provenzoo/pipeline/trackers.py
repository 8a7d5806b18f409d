"""Trackers: a training's numbers as it goes on, in TensorBoard, trackio or Weights & Biases, through Accelerate."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from provenzoo.errors import UsageError
from provenzoo.plain import dump_yaml

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

    from provenzoo.pipeline.points import Point

Name = Literal["tensorboard", "trackio", "wandb"]


def check(names: Sequence[Name]) -> None:
    """A UsageError for a tracker that is not installed."""
    for name in names:
        if missing := [package for package in ("accelerate", name) if find_spec(package) is None]:
            raise UsageError(
                f"trackers: {name} needs {' and '.join(missing)}, not installed here; pip install 'provenzoo[{name}]'"
            )


class Trackers:
    """The trackers of a run, each with one of its own runs a point and seed.

    TensorBoard's files lie in `<run folder>/tensorboard/<point>/seed-<k>`. For the others the recipe is the project,
    the run's id the group and `<point> seed <k>` the name; where they send it is theirs to know. A run that is resumed
    goes on in the same one.
    """

    def __init__(self, names: Sequence[Name], recipe: str, run_id: str, folder: Path):
        self._names, self._project, self._id, self._folder = names, recipe.replace("/", "-"), run_id, folder
        self._open: dict[tuple[str, int], list[GeneralTracker]] = {}

    def log(self, point: "Point", seed: int, step: int, values: Mapping[str, Any]) -> None:
        """The scalars among the values of a step of one seed's training; what is not finite goes along as it is."""
        if not self._names:
            return
        key = (point.name, seed)
        if key not in self._open:
            self._open[key] = [self._start(name, point, seed, step) for name in self._names]
        scalars = {name: value for name, value in values.items() if isinstance(value, int | float)}
        for tracker in self._open[key]:
            tracker.log(scalars, step=step)

    def finish(self) -> None:
        """Close all that is open."""
        for trackers in self._open.values():
            for tracker in trackers:
                tracker.finish()
        self._open.clear()

    def _start(self, name: Name, point: "Point", seed: int, step: int) -> "GeneralTracker":
        from accelerate import PartialState, tracking  # 0.8 s, which only those pay who track

        PartialState(cpu=True)  # without it the trackers do not log
        if name == "tensorboard":
            place = f"{point.folder}/seed-{seed}"
            tracker = tracking.TensorBoardTracker(place, self._folder / "tensorboard", purge_step=step)
        else:
            kind = tracking.TrackioTracker if name == "trackio" else tracking.WandBTracker
            label = f"{point.name} seed {seed}"
            tracker = kind(self._project, name=label, group=self._id, config=point.node, **self._own(name, point, seed))
        tracker.main_process_only = False  # only the process that writes the run comes here
        tracker.start()
        if name == "tensorboard":
            tracker.log({"settings": f"```yaml\n{dump_yaml(point.node)}```"}, step=step)
        return tracker

    def _own(self, name: Name, point: "Point", seed: int) -> dict[str, Any]:
        if name == "trackio":
            return {"resume": "allow", "embed": False}
        own = f"{self._id}-{point.digest[:12]}-{seed}"
        return {"id": own, "resume": "allow", "reinit": "create_new", "dir": self._folder}
