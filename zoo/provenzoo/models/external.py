"""The models of timm and of torchvision under `timm/<name>` and `torchvision/<name>`: theirs, unchanged, drawn anew."""

from typing import Any

from torch import nn

from provenzoo.errors import UsageError, ZooError
from provenzoo.models.base import Count
from provenzoo.plain import did_you_mean


def names(library: str) -> list[str]:
    """All names of a library, with its prefix. Imports it."""
    if library == "timm":
        import timm

        return [f"timm/{name}" for name in timm.list_models()]
    import torchvision

    return [f"torchvision/{name}" for name in torchvision.models.list_models(module=torchvision.models)]


def timm_model(
    *,
    architecture: str,
    num_classes: Count | None = None,
    image_size: Count | None = None,
    channels: Count = 3,
    drop_path: float | None = None,
) -> nn.Module:
    """A model of timm. `image_size` reaches those that are built for one size (ViTs and the like); None: its own."""
    import timm

    if not timm.is_model(architecture):
        raise UsageError(f"timm has no model {architecture!r}{did_you_mean(architecture, timm.list_models())}")
    given = {"num_classes": num_classes, "drop_path_rate": drop_path}
    given = {name: value for name, value in given.items() if value is not None}
    if image_size is not None and _takes_image_size(architecture):
        given["img_size"] = image_size
    return _build(timm.create_model, f"timm/{architecture}", architecture, in_chans=channels, **given)


def torchvision_model(*, architecture: str, num_classes: Count = 1000) -> nn.Module:
    """A classification model of torchvision, for images of three channels."""
    import torchvision

    known = torchvision.models.list_models(module=torchvision.models)
    if architecture not in known:
        raise UsageError(f"torchvision has no model {architecture!r}{did_you_mean(architecture, known)}")
    name = f"torchvision/{architecture}"
    return _build(torchvision.models.get_model, name, architecture, weights=None, num_classes=num_classes)


def _takes_image_size(architecture: str) -> bool:
    """Whether timm fixes the input size of an architecture when it is built."""
    import timm

    return bool(timm.get_pretrained_cfg_value(architecture, "fixed_input_size"))


def _build(create: Any, name: str, architecture: str, **given: Any) -> nn.Module:
    try:
        return create(architecture, **given)
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        raise ZooError(f"{name} does not build with {given}: {error}") from error
