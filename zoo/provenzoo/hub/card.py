"""The card that is published: ours between two marks, and around it what a person wrote, kept."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.repocard_data import model_index_to_eval_results

from provenzoo.errors import UsageError, ZooError
from provenzoo.hub.alone import Alone
from provenzoo.hub.bundle import Bundle
from provenzoo.hub.timm_fields import timm_loads
from provenzoo.pipeline.run import summarise
from provenzoo.plain import plain_data, shortened
from provenzoo.report.card import Source, render, render_alone
from provenzoo.report.figures import drawn

BEGIN = "<!-- provenzoo: begin. `provenzoo publish` writes anew what stands from here to its end mark -->"
END = "<!-- provenzoo: end -->"
OURS = ("license", "license_name", "license_link", "library_name", "pipeline_tag", "datasets", "metrics", "model-index")
"""The keys of the front matter that are ours; tags are joined, all others are a person's."""


def card(parcel: Bundle | Alone, load: str, before: str | None) -> str:
    """README.md of what will load by a reference, around what a person wrote in the one there is.

    A licence that nobody chose does not take the place of another that is there.
    """
    config = parcel.config
    seeds, rows, license = config["seeds"], results(config), config["license"]
    default = f"{config['seed']}, {config['seed_is']}" if len(seeds) > 1 else ""
    if before is not None and not parcel.license_chosen:
        _check_license(license, before)
    timm = timm_loads(config, load)
    if isinstance(parcel, Alone):
        source = Source(load, seeds, None, rows, [], config["digest"], default, license, timm, published=True)
        return merged(render_alone(parcel.name, parcel.summary, config, source), before)
    figures = [(figure, quote(parcel.figures[figure.path])) for figure in drawn(parcel.view)]
    source = Source(load, seeds, None, rows, figures, config["digest"], default, license, timm, published=True)
    return merged(render(parcel.view, parcel.stage, source), before)


def _check_license(ours: str, before: str) -> None:
    data = _read(before).data.to_dict()
    theirs = data.get("license")
    theirs = data.get("license_name", theirs) if theirs == "other" else theirs
    if theirs not in (None, ours):
        raise UsageError(
            f"README.md: the licence there is {shortened(str(theirs))}, and {ours}, which nobody chose, would take its "
            "place; name one with --license, or by `license:` in the recipe"
        )


def results(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a card: what was measured of a published checkpoint, summarised over its seeds."""
    return [
        {
            "where": where,
            "label": _label(where, config),
            "entry": entry,
            "metrics": {
                name: summarise(values) | {"n": entry["n"]}
                for name, values in entry["values"].items()
                if not any(isinstance(value, list) for value in values)
            },
        }
        for where, entry in config["sets"].items()
    ]


def _label(where: str, config: dict[str, Any]) -> str:
    """What a card calls a set: the label of one beside a stage's own, or of a shipped checkpoint's."""
    if "." in where:
        return where.rpartition(".")[2]
    return "held out" if "run.json" in config["files"] else where.replace("-", " ")


def merged(ours: ModelCard, before: str | None) -> str:
    """Our card with what a person wrote in an earlier one: keys of the front matter, and text outside the marks."""
    data, text = ours.data.to_dict(), f"{BEGIN}\n{ours.text.strip()}\n{END}"
    if before is None:
        return _whole(data, text)
    theirs = _read(before)
    kept = {key: _without_nulls(value) for key, value in theirs.data.to_dict().items() if key not in OURS}
    tags = kept.pop("tags", None)
    tags = [tag for tag in (tags if isinstance(tags, list) else [tags]) if isinstance(tag, str)]
    data["tags"] = list(dict.fromkeys([*data.get("tags", []), *tags]))
    return _whole(
        {**data, **{key: value for key, value in kept.items() if value is not None}}, _around(theirs.text, text)
    )


def _read(content: str) -> ModelCard:
    """A card that somebody wrote, whatever its front matter says of results."""
    try:
        return ModelCard(content, ignore_metadata_errors=True)
    except Exception as error:  # YAML that cannot be read, of any kind
        raise ZooError(
            f"README.md: its front matter cannot be read ({str(error).partition(chr(10))[0]}); mend it first"
        ) from None


def _around(theirs: str, ours: str) -> str:
    """A person's text with our block in its place; above it, where there is no place yet."""
    begin, end = theirs.count(BEGIN[:20]), theirs.count(END)
    if (begin, end) == (0, 0):
        return f"{ours}\n\n{theirs.strip()}" if theirs.strip() else ours
    start, stop = theirs.find(BEGIN[:20]), theirs.find(END)
    if (begin, end) != (1, 1) or stop < start:
        raise ZooError(f"README.md: it needs one mark `{BEGIN[:20]}...` and one `{END}` after it; mend it first")
    return f"{theirs[:start].strip()}\n\n{ours}\n\n{theirs[stop + len(END) :].strip()}".strip()


def _whole(data: dict[str, Any], text: str) -> str:
    front = ModelCardData(ignore_metadata_errors=True, **data).to_yaml()
    return f"---\n{front}\n---\n\n{text.strip()}\n"


def _without_nulls(value: Any) -> Any:
    """A value with nulls and numbers that are none taken out of its lists and mappings."""
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None and item == item]
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None and item == item}
    return value


# --- checks -------------------------------------------------------------------------------------------------------


def check_card(content: str, online: bool) -> None:
    """An error where the card's results do not read back, or where the Hub finds a fault in it (`online`)."""
    data = _read(content).data.to_dict()
    plain_data({key: data.get(key) for key in OURS}, "README.md")
    try:
        model_index_to_eval_results(data["model-index"]) if "model-index" in data else None
        if online:
            ModelCard(content, ignore_metadata_errors=True).validate()
    except HfHubHTTPError as error:
        raise ZooError(f"README.md: the Hub did not look at it ({error.response.status_code})") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ZooError(f"README.md: the card has a fault: {' '.join(str(error).split())[:300]}") from None


def read_card(file: Path) -> ModelCard:
    """A published card, read."""
    return _read(file.read_text(encoding="utf-8"))
