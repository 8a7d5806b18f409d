"""The fields by which timm builds and loads a ViT of ours from the same config.json and model.safetensors."""

import json
from typing import Any

from provenzoo import registry

POSITIONAL = "provenzoo_positional_vit"
"""The architecture that `import provenzoo.timm` registers."""
_NAMES = {"image_size": "img_size", "patch": "patch_size", "dim": "embed_dim", "heads": "num_heads"}
_SAME = ("depth", "mlp_ratio", "qkv_bias", "num_classes")


def timm_fields(config: dict[str, Any]) -> dict[str, Any]:
    """What timm asks of a config.json; nothing for a model that timm cannot build from plain arguments."""
    from provenzoo.models.vit import ViT
    from provenzoo.settings import parameters

    entry = registry.entry("models", config["model"]["name"])
    if entry.load() is not ViT:
        return {}
    defaults = {k: p.default for k, p in parameters(ViT).items() if p.default is not p.empty}
    args = {**defaults, **entry.args, **config["filled"], **config["model"]}
    if args.get("permute"):
        return {}
    token = args["pool"] == "token"
    own = {new: args[old] for old, new in _NAMES.items()} | {key: args[key] for key in _SAME}
    own |= {"in_chans": args["channels"], "class_token": token, "global_pool": "token" if token else "avg"}
    return {
        "architecture": "vit_tiny_patch16_224" if args["attention"] == "vanilla" else POSITIONAL,
        "num_classes": args["num_classes"],
        "num_features": args["dim"],
        "global_pool": own["global_pool"],
        "model_args": own,
        "pretrained_cfg": _pretrained(args, config["data"], config["license"]),
    }


def timm_loads(config: dict[str, Any], load: str) -> list[str]:
    """The lines by which timm loads a published checkpoint from where provenzoo loads it; none where it cannot."""
    if config.get("layout") != "single":
        return []
    name = load.replace("hf:", "hf-hub:", 1).replace("local:", "local-dir:", 1)
    own = ["import provenzoo.timm"] if config["architecture"] == POSITIONAL else []
    return [*own, "import timm", "", f"model = timm.create_model({json.dumps(name)}, pretrained=True)"]


def timm_note(config: dict[str, Any]) -> str:
    """What to tell who publishes several seeds of a model that timm could load one of; empty where there is nothing."""
    if len(config["seeds"]) == 1 or not timm_fields(config):
        return ""
    return (
        f"timm loads a file of one seed and this one has {len(config['seeds'])}; with --seed {config['seed']} "
        "timm.create_model loads it too"
    )


def _pretrained(args: dict[str, Any], data: dict[str, Any], license: str) -> dict[str, Any]:
    size, channels = args["image_size"], args["channels"]
    return {
        "custom_load": False,
        "input_size": [channels, size, size],
        "fixed_input_size": True,
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "mean": _by_channel(data.get("mean", 0.0), channels),
        "std": _by_channel(data.get("std", 1.0), channels),
        "num_classes": args["num_classes"],
        "first_conv": "patch_embed.proj",
        "classifier": "head",
        "license": license,
    }


def _by_channel(value: Any, channels: int) -> list[float]:
    values = value if isinstance(value, list) else [value]
    return [float(v) for v in (values * channels if len(values) == 1 else values)]
