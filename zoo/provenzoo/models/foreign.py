"""Models of timm's own repositories and folders (config.json with `architecture`), unchanged, filled strictly.

What such a config could make timm do beside building a registered architecture from plain numbers and names (fetch from
elsewhere, load a pickle, call code) is refused.
"""

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from provenzoo import __version__, checkpoint, fetch
from provenzoo.errors import UsageError, ZooError
from provenzoo.models.build import build_empty, fill
from provenzoo.models.load import filled_anew
from provenzoo.plain import did_you_mean
from provenzoo.untrusted import check_config, read_json

CHANGES = {"num_classes": "num_classes", "image_size": "img_size"}
"""What may be asked for, and timm's name of it."""


def load_timm(place: fetch.Place, seed: int | None, adapt: Mapping[str, Any]) -> nn.Module:
    """The model of one of timm's folders, in eval mode; `num_classes` and `image_size` may change."""
    if seed is not None:
        raise UsageError(f"{place.reference}: a model of timm's has no seeds; leave `seed` out")
    file = place.file("config.json")
    config = read_json(file)
    check_config(config, str(file), place.hub.repo if place.hub else None)
    args = _arguments(config, str(file))
    changed = {_timm_name(place.reference, key): value for key, value in adapt.items()}
    state, _ = checkpoint.load(place.file(fetch.WEIGHTS))
    builder = _builder(config, str(file))
    model, told = _filled(
        builder, {**args, **changed}, state, [k for k in adapt if args.get(CHANGES[k]) != adapt[k]], place
    )
    about = {key: config.get(key) for key in ("architecture", "pretrained_cfg", "label_names")}
    told = {"reference": place.reference, "revision": place.revision, "version": __version__, **about, **told}
    model.provenance = told  # pyright: ignore[reportArgumentType]
    return model.eval()


def _builder(config: Mapping[str, Any], where: str) -> Any:
    """timm's builder of the architecture that a config names."""
    import timm

    name = config["architecture"]
    if not isinstance(name, str) or not timm.is_model(name):
        raise ZooError(f"{where}: timm has no architecture {name!r}{did_you_mean(str(name), timm.list_models())}")
    return lambda **args: timm.create_model(name, pretrained=False, **args)


def _arguments(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The plain arguments that a config gives to its architecture."""
    import timm

    pretrained, own = config.get("pretrained_cfg") or {}, config.get("model_args") or {}
    if not isinstance(own, dict) or not isinstance(pretrained, dict):
        raise ZooError(f"{where}: model_args and pretrained_cfg must be mappings")
    taken = {*inspect.signature(timm.create_model).parameters, "pretrained_strict", "pretrained_filter_fn"}
    if wrong := [key for key in own if key in taken]:
        raise ZooError(f"{where}: model_args.{wrong[0]} is no argument of an architecture; refused")
    args = {"num_classes": config.get("num_classes", pretrained.get("num_classes"))}
    if size := pretrained.get("input_size"):
        args["in_chans"] = size[0]
    if config.get("global_pool") and "global_pool" not in own and _takes_pool(config["architecture"]):
        args["global_pool"] = config["global_pool"]
    if pretrained.get("fixed_input_size") and size and "img_size" not in own:
        args["img_size"] = size[1]
    return {**{key: value for key, value in args.items() if value is not None}, **own}


def _takes_pool(architecture: Any) -> bool:
    """Whether timm's ViTs need to be told their pooling, which decides on names of tensors."""
    return isinstance(architecture, str) and architecture.startswith(("vit_", "deit", "eva", "beit"))


def _timm_name(reference: str, key: str) -> str:
    if key not in CHANGES:
        raise ZooError(
            f"{reference}: {key!r} cannot change after training; a model of timm's can adapt: {', '.join(CHANGES)}"
        )
    return CHANGES[key]


def _filled(
    builder: Any, args: dict[str, Any], state: dict[str, Tensor], changed: list[str], place: fetch.Place
) -> tuple[nn.Module, dict[str, Any]]:
    where = place.reference
    empty = build_empty(builder, args, state, where)
    state = _renamed(empty, state)
    try:
        if changed:
            return filled_anew(builder, args, state, 0, changed, where)
        return fill(empty, builder, args, state, 0, where), {}
    except ZooError as error:
        raise ZooError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def _renamed(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state under the architecture's present names, by timm's own rule, where it was saved under older ones."""
    rule = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    own = model.state_dict()
    if rule is None or state.keys() <= own.keys():
        return state
    return {name: tensor for name, tensor in rule(dict(state), model).items() if name in own}
