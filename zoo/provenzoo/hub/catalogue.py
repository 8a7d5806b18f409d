"""What others published with this library: the Hub's models of our name, a page at a time."""

import fnmatch
import re
from collections.abc import Iterator

from provenzoo import remote
from provenzoo.errors import ZooError

LIBRARY = "provenzoo"


def published(pattern: str | None = None) -> Iterator[str]:
    """References of the models on the Hub that were published with this library, asked for a page at a time.

    `pattern` is a shell pattern, or a part of the name.
    """
    if remote.offline():
        raise ZooError("the Hub is not to be asked (HF_HUB_OFFLINE); `provenzoo list checkpoints` lists what is here")
    parts = re.split(r"\[[^\]]*\]|[*?]", pattern or "")
    whole = re.search(r"[*?\[]", pattern or "") is not None
    anyone = remote.Reference(f"the Hub ({pattern or 'all'})", "the list of models")
    with remote.told(anyone.text, anyone):
        for model in remote.api().list_models(filter=LIBRARY, search=max(parts, key=len) or None):
            if not (pattern and whole) or fnmatch.fnmatchcase(model.id, pattern):
                yield f"hf:{model.id}"
