"""Ship one seed of a run's stage as a checkpoint of the package: registry/checkpoints/NAME.yaml and NAME/.

    python scripts/ship.py runs/quickstart/<id> finetune positional-vit-mini.quickstart --summary "..."

The seed is the median one in the recipe's first claim unless --seed says otherwise. The numbers of the stage and of
every evaluate stage on it go along, for `provenzoo verify`. With --teacher NAME, a checkpoint of the model `bilinear`,
the teacher that the seed learned from is shipped beside it.
"""

import argparse
from pathlib import Path
from typing import Any

from provenzoo import checkpoint
from provenzoo.hub.ground_truth import kept
from provenzoo.pipeline.seeds import default_seed, one_of
from provenzoo.plain import dump_yaml, read_json, write_json, write_whole

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
    config, tensors = kept(read_json(CHECKPOINTS / student / "config.json"), name)
    checkpoint.save(CHECKPOINTS / name / "model.safetensors", tensors)
    write_json(CHECKPOINTS / name / "metrics.json", {"sets": config.pop("sets")})
    write_json(CHECKPOINTS / name / "config.json", config)
    manifest = {"summary": summary, "paper": config["paper"], "license": "apache-2.0", "seed": config["seeds"][0]}
    write_whole(CHECKPOINTS / f"{name}.yaml", dump_yaml(manifest | {"digest": config["digest"]}))
    print(f"{name}: the teacher of {student}, digest {config['digest'][:12]}")


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
