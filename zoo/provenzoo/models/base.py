"""What a model tells the zoo of itself before it is built: its parameter groups and what may be done with it.

A group (`attention`, `head`) is a name for patterns over parameter names, so that `freeze: [attention]`
means the same in every recipe. Groups are disjoint. Models of timm and torchvision get theirs here.
"""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field
from torch import Tensor, nn

from provenzoo.errors import ZooError

Groups = dict[str, list[str]]
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]


class Model:
    """The defaults of a model class, mixed in before `nn.Module`."""

    groups: Groups = {}
    adaptable: ClassVar[tuple[str, ...]] = ()
    """Arguments that may change at evaluation without touching the weights."""
    refits: ClassVar[tuple[str, ...]] = ()
    """Arguments that may change when a checkpoint is loaded (models/refit.py): `num_classes` draws the head anew,
    `image_size` resizes the positional encodings of a ViT."""
    replicable: ClassVar[bool] = False
    """Parameters may carry leading replica dimensions `[R, ...]` and inputs `[R, B, ...]`."""
    split: ClassVar[dict[str, tuple[int, ...]]] = {}
    """Patterns of modules whose parameters' rows are fused, and their proportions (models/split.py)."""

    @classmethod
    def groups_for(cls, args: Mapping[str, Any]) -> Groups:
        """The groups of a model that is built with these arguments."""
        return cls.groups

    def named_tensors(self) -> dict[str, Tensor]:
        """Detached tensors that metrics ask for by name and the report draws."""
        return {}


def timm_vit_groups() -> Groups:
    """The groups of timm's `VisionTransformer`, once its fused qkv is split (models/split.py)."""
    return {
        "attention": [
            "blocks.*.attn.qkv.parametrizations.*.original0",
            "blocks.*.attn.[qk]_norm.*",
            "blocks.*.attn.lambda_*",
        ],
        "value": [
            "blocks.*.attn.qkv.parametrizations.*.original1",
            "blocks.*.attn.proj.*",
            "blocks.*.attn.norm.*",
            "blocks.*.attn.sub_norm.*",
            "blocks.*.attn.gate.*",
        ],
        "positions": ["pos_embed"],
        "embedding": ["patch_embed.*", "cls_token", "dist_token", "reg_token", "norm_pre.*"],
        "mlp": ["blocks.*.mlp.*", "blocks.*.norm[12].*", "blocks.*.ls[12].*", "norm.*", "fc_norm.*"],
        "head": ["head.*", "head_dist.*", "attn_pool.*"],
    }


def groups_of(builder: Callable, args: Mapping[str, Any]) -> Groups:
    """The groups of the model that `builder(**args)` gives; empty where only the built model can tell."""
    groups_for = getattr(builder, "groups_for", None)
    return groups_for(args) if groups_for else getattr(builder, "groups", {})


def trait(builder: Callable, name: str) -> tuple[str, ...]:
    """What a builder declares of itself under a name, such as `adaptable`; nothing where it does not."""
    return getattr(getattr(builder, "func", builder), name, ())


def model_groups(model: nn.Module) -> Groups:
    """The groups of a built model, ours or another library's."""
    if isinstance(model, Model):
        return model.groups
    if not is_timm_vit(model):
        return _head_and_body(model)
    names = [name for name, _ in model.named_parameters()]  # parts of the fused qkv among them, once it is split
    return {
        group: patterns
        for group, patterns in timm_vit_groups().items()
        if group in ("attention", "value") or any(_matches(name, patterns) for name in names)
    }


def model_split(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """The fused modules of a built model: pattern of module names -> proportions of the rows."""
    if isinstance(model, Model):
        return model.split
    return {"blocks.*.attn.qkv": (2, 1)} if is_timm_vit(model) else {}


def members(model: nn.Module, group: str) -> list[str]:
    """The names of the parameters in a group, or of those that a pattern such as `blocks.0.*` matches.

    A name or pattern that matches no parameter is an error that lists the groups there are.
    """
    groups = model_groups(model)
    patterns = groups.get(group, [group])
    found = [name for name, _ in model.named_parameters() if _matches(name, patterns)]
    if not found:
        raise no_group(group, groups)
    return found


def no_group(group: str, groups: Iterable[str]) -> ZooError:
    """The error for a group that a model does not have."""
    return ZooError(f"no parameters in a group {group!r}; the model's groups are: {', '.join(groups)}")


def is_timm_vit(model: nn.Module) -> bool:
    """Whether a model is one of timm's `VisionTransformer` class, told without importing timm.

    Not one whose blocks are of another make, with several attentions or one projection for all.
    """
    module = "timm.models.vision_transformer"
    if not any(c.__name__ == "VisionTransformer" and c.__module__ == module for c in type(model).__mro__):
        return False
    return all(hasattr(getattr(block, "attn", None), "qkv") for block in cast(Iterable, model.blocks))


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The detached tensors that metrics ask a model for; of timm's ViTs its `positional_encodings` `[N, C]`."""
    if isinstance(model, Model) or hasattr(model, "named_tensors"):
        return cast(Model, model).named_tensors()
    if is_timm_vit(model) and model.pos_embed is not None:
        prefix = 0 if model.no_embed_class else cast(int, model.num_prefix_tokens)
        return {"positional_encodings": cast(Tensor, model.pos_embed)[0, prefix:].detach().clone()}
    return {}


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _head_and_body(model: nn.Module) -> Groups:
    """`head` (what the library calls the classifier) and `body` (all else), by parameter name."""
    config = getattr(model, "default_cfg", {})
    own = config.get("classifier") or ("fc", "classifier", "heads", "head")
    heads = (own,) if isinstance(own, str) else own
    names = [name for name, _ in model.named_parameters()]
    head = [name for name in names if name.startswith(tuple(f"{h}." for h in heads))]
    groups = {"head": head, "body": [name for name in names if name not in set(head)]}
    return {group: found for group, found in groups.items() if found}
