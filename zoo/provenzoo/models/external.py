"""The models of timm and of torchvision under `timm/<name>` and `torchvision/<name>`: theirs, unchanged, drawn anew."""

from typing import Any

import torch
from torch import nn

from provenzoo.errors import UsageError, ZooError
from provenzoo.models.base import Count, Rate
from provenzoo.plain import did_you_mean

ONE_OUTPUT = {
    "googlenet": {"aux_logits": False, "init_weights": True},
    "inception_v3": {"aux_logits": False, "init_weights": True},
}
"""What torchvision is told where a model would give auxiliary logits beside its own as it trains."""


def names(library: str) -> list[str]:
    """All names of a library, with its prefix. Imports it."""
    if library == "timm":
        import timm

        return [f"timm/{name}" for name in timm.list_models()]
    import torchvision

    return [f"torchvision/{name}" for name in torchvision.models.list_models(module=torchvision.models)]


def timm_model(
    architecture: str,
    /,
    *,
    num_classes: Count | None = None,
    image_size: Count | None = None,
    channels: Count = 3,
    drop_path: Rate | None = None,
) -> nn.Module:
    """A model of timm for square images of any number of channels.

    `image_size` reaches those that are built for one size (ViTs and the like); None: its own. `drop_path` is the
    rate of stochastic depth, where the model has it.
    """
    import timm

    if not timm.is_model(architecture):
        raise UsageError(f"timm has no model {architecture!r}{did_you_mean(architecture, timm.list_models())}")
    given = {"num_classes": num_classes, "drop_path_rate": drop_path}
    given = {name: value for name, value in given.items() if value is not None}
    if image_size is not None and _takes_image_size(architecture):
        given["img_size"] = image_size
    name = f"timm/{architecture}"
    model = _build(timm.create_model, name, architecture, in_chans=channels, **given)
    _check_images(model, name, channels, image_size)
    return model


def torchvision_model(
    architecture: str, /, *, num_classes: Count = 1000, image_size: Count | None = None, channels: Count = 3
) -> nn.Module:
    """A classification model of torchvision, for images of three channels.

    `image_size` reaches its ViTs, which are built for one size (None: 224).
    """
    import torchvision

    known = torchvision.models.list_models(module=torchvision.models)
    if architecture not in known:
        raise UsageError(f"torchvision has no model {architecture!r}{did_you_mean(architecture, known)}")
    name = f"torchvision/{architecture}"
    if channels != 3:
        raise ZooError(f"{name}: takes images of 3 channels, not {channels}; the models of timm take any number")
    given = {"weights": None, "num_classes": num_classes, **ONE_OUTPUT.get(architecture, {})}
    if image_size is not None and architecture.startswith("vit_"):
        given["image_size"] = image_size
    model = _build(torchvision.models.get_model, name, architecture, **given)
    _check_images(model, name, channels, image_size)
    return model


timm_model.refits = ("num_classes", "image_size")  # pyright: ignore[reportFunctionMemberAccess]
torchvision_model.refits = ("num_classes",)  # pyright: ignore[reportFunctionMemberAccess]


def _takes_image_size(architecture: str) -> bool:
    """Whether timm fixes the input size of an architecture when it is built."""
    import timm

    return bool(timm.get_pretrained_cfg_value(architecture, "fixed_input_size"))


def _build(create: Any, name: str, architecture: str, **given: Any) -> nn.Module:
    try:
        return create(architecture, **given)
    except (TypeError, ValueError, AssertionError, RuntimeError, ZeroDivisionError) as error:
        told = ", ".join(f"{key} {value}" for key, value in given.items() if value is not None)
        raise ZooError(f"{name}: does not build with {told} ({_first_line(error)})") from error


def _check_images(model: nn.Module, name: str, channels: int, image_size: int | None) -> None:
    """An error unless the model takes images of this shape, whole: found on one image, before anything trains."""
    if image_size is None:
        return
    _check_patches(model, name, image_size)
    training = model.training
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, channels, image_size, image_size))
    except (ValueError, AssertionError, RuntimeError) as error:
        raise ZooError(f"{name}: takes no images of {image_size} x {image_size} ({_first_line(error)})") from error
    model.train(training)


def _check_patches(model: nn.Module, name: str, image_size: int) -> None:
    """timm's patches pass over what is left of an image that they do not tile; that is an error here."""
    from timm.layers.patch_embed import PatchEmbed

    embed = getattr(model, "patch_embed", None)
    if not isinstance(embed, PatchEmbed) or embed.dynamic_img_pad:
        return
    patch = int(embed.patch_size[0])
    if rest := image_size % patch:
        near = " or ".join(str(size) for size in (image_size - rest, image_size - rest + patch) if size)
        raise ZooError(
            f"{name}: patches of {patch} do not tile an image of {image_size}; set the data's `size` to {near}"
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
