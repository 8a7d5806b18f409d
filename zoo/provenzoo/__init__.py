"""A zoo of transformers whose learning is proved in papers: load by name, compose from config, verify by command."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from provenzoo.components import create_dataset, create_model, create_teacher
    from provenzoo.describe import info
    from provenzoo.hub.publish import publish
    from provenzoo.models.load import load
    from provenzoo.pipeline.recipe import compose
    from provenzoo.pipeline.run import Run, run
    from provenzoo.pipeline.sweep import Sweep, sweep
    from provenzoo.pipeline.verify import verify
    from provenzoo.registry import list_names, register

__version__ = "0.1.0"

_HOMES = {
    "Run": "provenzoo.pipeline.run",
    "Sweep": "provenzoo.pipeline.sweep",
    "compose": "provenzoo.pipeline.recipe",
    "create_dataset": "provenzoo.components",
    "create_model": "provenzoo.components",
    "create_teacher": "provenzoo.components",
    "info": "provenzoo.describe",
    "list_names": "provenzoo.registry",
    "load": "provenzoo.models.load",
    "publish": "provenzoo.hub.publish",
    "register": "provenzoo.registry",
    "run": "provenzoo.pipeline.run",
    "sweep": "provenzoo.pipeline.sweep",
    "verify": "provenzoo.pipeline.verify",
}

__all__ = [
    "Run",
    "Sweep",
    "compose",
    "create_dataset",
    "create_model",
    "create_teacher",
    "info",
    "list_names",
    "load",
    "publish",
    "register",
    "run",
    "sweep",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a public function's home when it is first used: `import provenzoo` itself imports no torch (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'provenzoo' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
