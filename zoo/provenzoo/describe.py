"""What is known of a name: its kind, what it is, its arguments, and where it comes from."""

import inspect
import re
import typing
from typing import Any

from provenzoo.errors import UsageError
from provenzoo.models.base import groups_of
from provenzoo.plain import read_yaml
from provenzoo.registry import KINDS, Entry, entry, list_names, names_held, recipe_file, unknown
from provenzoo.settings import parameters


def info(name: str, kind: str | None = None) -> dict[str, Any]:
    """What is known of a name: kind, summary, paper, builder, arguments with types and defaults, groups, origin."""
    kinds = [k for k in (*KINDS, "recipes") if name in names_held(k) and kind in (None, k)]
    if not kinds and kind in (None, "models") and name in list_names("models", name):
        kinds = ["models"]  # of timm or torchvision, which listing imports
    if not kinds:
        raise UsageError(unknown(kind or "models", name).replace("no model ", "no name ", 1 if kind is None else 0))
    return _describe_recipe(name) if kinds[0] == "recipes" else _describe(entry(kinds[0], name))


def _describe_recipe(name: str) -> dict[str, Any]:
    file = recipe_file(name)
    data = read_yaml(file)
    stages, claims = (found if isinstance(found := data.get(key), dict) else {} for key in ("stages", "claims"))
    return {
        "kind": "recipes",
        "name": name,
        "about": data.get("about", ""),
        "extends": data.get("extends"),
        "stages": list(stages),
        "claims": {key: claim.get("says", "") for key, claim in claims.items() if isinstance(claim, dict)},
        "file": str(file),
    }


def _describe(found: Entry) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "kind": found.kind,
        "name": found.name,
        "summary": found.summary,
        "paper": found.paper,
        "origin": found.origin,
    }
    if found.kind == "checkpoints":
        return answer | {"manifest": dict(found.args)}
    builder = found.load()
    arguments = {name: _describe_argument(found, name, p) for name, p in parameters(builder).items()}
    traits = {key: value for key in ("adaptable", "refits", "replicable") if (value := getattr(builder, key, None))}
    if found.kind == "models":
        traits["groups"] = groups_of(builder, found.args)
    about = inspect.getdoc(getattr(builder, "func", builder)) or ""
    summary = found.summary or about.partition("\n")[0]
    where = found.builder if isinstance(found.builder, str) else found.origin
    return answer | {"summary": summary, "about": about, "builder": where, "arguments": arguments} | traits


def _describe_argument(found: Entry, name: str, parameter: Any) -> dict[str, Any]:
    """An argument's type, in the words of the signature, and its default; none where it must be given or is filled."""
    hint = parameter.annotation
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    kind = hint.__name__ if isinstance(hint, type) else _type_text(str(hint))
    if name in found.args:
        return {"type": kind, "default": found.args[name]}
    return {"type": kind} | ({} if parameter.default is parameter.empty else {"default": parameter.default})


def _type_text(text: str) -> str:
    """`int | None` of `Optional[Annotated[int, ...]]` and the like."""
    plain = re.sub(r"typing\.|Annotated\[(\w+), .*?\)\]\)?\]", r"\1", text)
    return re.sub(r"Optional\[(.*)\]", r"\1 | None", plain)
