"""Settings classes and the strict check of plain data against them or against a builder's signature."""

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pydantic

from provenzoo.errors import ZooError
from provenzoo.plain import did_you_mean, kind_of, shortened


class Settings(pydantic.BaseModel):
    """Base of every settings class: no conversions between types, no unknown keys, no NaN or infinity."""

    model_config = pydantic.ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )


T = TypeVar("T", bound=Settings)
R = TypeVar("R")


def read(cls: type[T], node: Any, where: str) -> T:
    """The settings that a node of plain data holds; the first fault is raised with its path and the nearest key."""
    if not isinstance(node, Mapping):
        raise ZooError(f"{where}: {kind_of(node)} where a mapping is needed")
    try:
        return cls.model_validate(dict(node))
    except pydantic.ValidationError as error:
        raise ZooError(_explain(error, cls, where)) from None


def _explain(error: pydantic.ValidationError, cls: Any, where: str) -> str:
    faults = error.errors()  # of these, a misspelt key tells most, then what lies deepest in the branches of a union
    fault = max(faults, key=lambda f: (f["type"] == "extra_forbidden", len(f["loc"])))
    path = [where, *(str(part) for part in fault["loc"] if _is_key(part, error))]
    if fault["type"] == "extra_forbidden":
        owner = _owner(cls, fault["loc"][:-1])
        known = [field.alias or name for name, field in owner.model_fields.items()] if owner else []
        return f"{'.'.join(path[:-1])}: unknown key {path[-1]!r}{did_you_mean(path[-1], known)}"
    if fault["type"] == "missing":
        return f"{'.'.join(path[:-1])}: {path[-1]!r} is missing"
    words = _WORDS.get(fault["type"])
    message = words.format(**fault.get("ctx", {})) if words else fault["msg"].removeprefix("Value error, ")
    message = message.replace("Input should be ", "must be ")
    given = "" if isinstance(fault["input"], Mapping) else f" (it is {shortened(repr(fault['input']))})"
    return f"{'.'.join(path)}: {message}{given}"


_WORDS = {  # pydantic's kinds of error in a reader's words
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "too_short": "must hold at least {min_length}, holds {actual_length}",
    "too_long": "must hold at most {max_length}, holds {actual_length}",
}


def _is_key(part: Any, error: pydantic.ValidationError) -> bool:
    """Whether a part of pydantic's location is a key or index rather than the name of a union's branch."""
    return isinstance(part, int) or (not any(mark in part for mark in "[(") and part not in _BRANCHES)


_SCALARS = ("str", "int", "float", "bool")
_BRANCHES = {*_SCALARS, *(f"constrained-{kind}" for kind in _SCALARS), "none", "lax-or-strict"}


def _owner(cls: Any, loc: tuple) -> type[pydantic.BaseModel] | None:
    """The settings class that a location lies in."""
    for part in loc:
        if not (isinstance(cls, type) and issubclass(cls, pydantic.BaseModel)):
            break
        field = next((f for name, f in cls.model_fields.items() if part in (name, f.alias)), None)
        found = [a for a in _flatten(field.annotation) if isinstance(a, type)] if field else []
        models = [a for a in found if issubclass(a, pydantic.BaseModel)]
        cls = models[0] if models else (cls if field is None else None)
    return cls if isinstance(cls, type) and issubclass(cls, pydantic.BaseModel) else None


def _flatten(annotation: Any) -> list[Any]:
    args = typing.get_args(annotation)
    return [annotation] if not args else [leaf for arg in args for leaf in _flatten(arg)]


def _remembered(function: Callable[[Any], R]) -> Callable[[Any], R]:
    """The function with its answers kept, by what they are about where that can be hashed; none may change them."""
    kept = functools.lru_cache(maxsize=512)(function)

    @functools.wraps(function)
    def ask(about: Any) -> R:
        return kept(about) if _hashes(about) else function(about)

    return ask


def _hashes(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


@_remembered
def parameters(builder: Callable) -> dict[str, inspect.Parameter]:
    """The arguments that a recipe may give to a builder: named ones, without `self` and `seed`."""
    signature = inspect.signature(builder)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in signature.parameters.items() if p.kind in named and name not in ("self", "seed")}


@_remembered
def annotations(builder: Callable) -> dict[str, Any]:
    """The types in a builder's signature by argument."""
    function = getattr(builder, "func", builder)  # of a partial
    target = function.__init__ if isinstance(function, type) else function
    return {name: hint for name, hint in typing.get_type_hints(target, include_extras=True).items() if name != "return"}


def bind(builder: Callable, args: Mapping[str, Any], where: str, partial: bool = False) -> dict[str, Any]:
    """The arguments for a builder, checked by name and by the types of its signature.

    Mappings become the settings classes that the signature asks for. With `partial`, arguments without a default may be
    missing (they are filled in later).
    """
    known = parameters(builder)
    for name in args:
        if name not in known:
            raise ZooError(f"{where}: no argument {name!r}{did_you_mean(name, known)}")
    if not partial:
        for name, parameter in known.items():
            if parameter.default is inspect.Parameter.empty and name not in args:
                raise ZooError(f"{where}: {name!r} is missing")
    hints = annotations(builder)
    return {name: _check(hints.get(name, Any), value, f"{where}.{name}") for name, value in args.items()}


def _check(hint: Any, value: Any, where: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, Settings):
        return read(hint, value, where)
    try:
        return _adapter(hint).validate_python(value, strict=True)
    except pydantic.ValidationError as error:
        models = [leaf for leaf in _flatten(hint) if isinstance(leaf, type) and issubclass(leaf, Settings)]
        if models and isinstance(value, Mapping):
            return read(models[0], value, where)
        raise ZooError(_explain(error, hint, where)) from None


@_remembered
def _adapter(hint: Any) -> pydantic.TypeAdapter:
    """What checks values against a type; made once a type, which costs more than a check."""
    config = None if _has_settings(hint) else pydantic.ConfigDict(strict=True, arbitrary_types_allowed=True)
    return pydantic.TypeAdapter(hint, config=config)


def _has_settings(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, pydantic.BaseModel)
