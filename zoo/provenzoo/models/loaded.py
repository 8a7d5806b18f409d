"""A checkpoint in a model's place, of any kind that `provenzoo.load` reads, timm's among them: to evaluate as it is."""

from torch import nn

from provenzoo import fetch, remote
from provenzoo.errors import ZooError
from provenzoo.models.load import load


def loaded(*, source: str) -> nn.Module:
    """The model of `source`: a registered name, `hf:user/repo[@revision]`, `local:DIR`; of its default seed.

    For a stage `evaluate` alone: no checkpoint may name another one, so that nothing that was trained could be read.
    """
    return load(source)


def _missing(*, source: str) -> str | None:
    """None where the weights are at hand, else one line; the Hub's are looked for in the cache alone."""
    if not source.startswith("hf:"):
        try:
            fetch.place(source)
        except ZooError as error:
            return str(error).partition("\n")[0]
        return None
    hub = remote.Reference.parse(source)
    if remote.cached(hub, hub.revision or "main", hub.path(fetch.WEIGHTS)):
        return None
    return f"{source}: its weights are not in the cache; ask for the recipe by name to fetch them"


loaded.missing = _missing  # pyright: ignore[reportFunctionMemberAccess]
loaded.only_evaluated = True  # pyright: ignore[reportFunctionMemberAccess]
