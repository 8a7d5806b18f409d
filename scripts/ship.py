"""Ship one seed of a run's stage as a checkpoint of the package: registry/checkpoints/NAME.yaml and NAME/.

    python scripts/ship.py runs/quickstart/<id> finetune positional-vit-mini.quickstart --summary "..."

The seed is the median one in the recipe's first claim unless --seed says otherwise. The numbers of the stage and of
every evaluate stage on it go along, for `provenzoo verify`. With --teacher NAME, a checkpoint of the model `bilinear`,
the teacher that the seed learned from is shipped beside it.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from provenzoo import checkpoint, components
from provenzoo.components import create_model
from provenzoo.metrics.measure import Measure, loss_function, metric_functions
from provenzoo.pipeline.seeds import default_seed, one_of
from provenzoo.plain import dump_yaml, read_json, write_json, write_whole
from provenzoo.stages.work import Measured

TEACHERS = ["loss", "cosine-to-truth", "value-distance", "score-distance"]
"""What is measured of a teacher on the data that it gives targets to."""

CHECKPOINTS = Path(__file__).parents[1] / "registry" / "checkpoints"


def sets_of(run: Path, stage: str, seed: int) -> dict[str, Any]:
    """The sets that a stage, and the evaluate stages on it, were measured on."""
    sets = {}
    for record in read_json(run / "run.json")["stages"]:
        folder = run / "stages" / record["folder"]
        origin = read_json(folder / "stage.json").get("origin")
        own, judged = record["name"] == stage, origin == stage and not (folder / "config.json").exists()
        if own or judged:
            measured = read_json(folder / "metrics.json")["sets"]
            sets |= {label or "held-out": one_of(entry, seed) for label, entry in measured.items()}
    return sets


def ship(run: Path, stage: str, name: str, summary: str, seed: int) -> None:
    """Write the manifest and the folder of a shipped checkpoint."""
    source, target = run / "stages" / stage, CHECKPOINTS / name
    config = read_json(source / "config.json")
    index = config["seeds"].index(seed)
    tensors = {key: value[index : index + 1] for key, value in checkpoint.load(source / "model.safetensors")[0].items()}
    digest = checkpoint.digest(tensors)
    checkpoint.save(target / "model.safetensors", tensors)
    write_json(target / "config.json", config | {"seeds": [seed], "digest": digest})
    write_json(target / "metrics.json", {"sets": sets_of(run, stage, seed)})
    manifest = {"summary": summary, "paper": config["paper"], "license": "apache-2.0", "seed": seed, "digest": digest}
    write_whole(CHECKPOINTS / f"{name}.yaml", dump_yaml(manifest))
    print(f"{name}: seed {seed}, {sum(t.numel() for t in tensors.values()):,} values, digest {digest[:12]}")


def ship_teacher(student: str, name: str, summary: str) -> None:
    """Write the teacher of a shipped student's data: its ground truth, and how well it does on that data."""
    config = read_json(CHECKPOINTS / student / "config.json")
    [seed] = config["seeds"]
    data = components.check("datasets", config["data"], "data").build(seed=seed)
    filled = components.check("models", {"name": "bilinear"}, "model").fill(data.shapes)
    model = create_model("bilinear", **filled)
    model.load_state_dict({key: data.teacher.truth[key] for key in ("value", "attention")})
    functions = metric_functions(TEACHERS, loss_function(data.loss))
    values = Measure(functions, data, data.test, torch.device("cpu"), torch.float32)(model)
    measured = Measured(
        model={"name": "bilinear"},
        data=config["data"],
        values={metric: [value] for metric, value in values.items()},
        n=len(data.test),
        digests=[data.test.digest],
        loss=data.loss,
        dtype="float32",
        seeds=(seed,),
    )
    tensors = checkpoint.stack([model.state_dict()])
    about = {"model": {"name": "bilinear"}, "filled": filled, "digest": checkpoint.digest(tensors)}
    checkpoint.save(CHECKPOINTS / name / "model.safetensors", tensors)
    write_json(CHECKPOINTS / name / "config.json", config | about)
    write_json(CHECKPOINTS / name / "metrics.json", {"sets": {"held-out": measured.plain()}})
    manifest = {"summary": summary, "paper": config["paper"], "license": "apache-2.0", "seed": seed}
    write_whole(CHECKPOINTS / f"{name}.yaml", dump_yaml(manifest | {"digest": about["digest"]}))
    print(f"{name}: the teacher of {student}, digest {about['digest'][:12]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("stage")
    parser.add_argument("name")
    parser.add_argument("--summary", required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--teacher", metavar="NAME", help="ship the seed's teacher too, as bilinear.TAG")
    words = parser.parse_args()
    seeds = read_json(words.run / "stages" / words.stage / "config.json")["seeds"]
    median, _ = default_seed(words.run, words.stage, seeds)
    chosen = median if words.seed is None else words.seed
    ship(words.run, words.stage, words.name, words.summary, chosen)
    if words.teacher:
        ship_teacher(words.name, words.teacher, f"the teacher of {words.name}")
