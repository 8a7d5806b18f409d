"""What the Hub asks of a card's front matter: the rules of its `validate-yaml` call that a model card meets."""

import re
from typing import Any

import yaml

LICENSES = {"apache-2.0", "mit", "bsd-3-clause", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "gpl-3.0", "other", "unknown"}
TASKS = {
    "feature-extraction",
    "fill-mask",
    "image-classification",
    "image-feature-extraction",
    "other",
    "tabular-classification",
    "tabular-regression",
    "text-classification",
    "text-generation",
}
_FRONT = re.compile(r"\s*---[ \t]*\r?\n(.*?)\r?\n?---[ \t]*(\r?\n|$)", re.DOTALL)
_LISTS = ("tags", "datasets", "metrics", "language")
EMPTY = "empty or missing yaml metadata in repo card"


def front_matter(content: str) -> tuple[dict[str, Any], list[str], list[str]]:
    """The metadata of a card, what is wrong with it, and what is only odd."""
    match = _FRONT.match(content)
    try:
        data = yaml.safe_load(match[1]) if match else None
    except yaml.YAMLError as error:
        return {}, [f"not valid YAML: {' '.join(str(error).split())}"], []
    if data is None:
        return {}, [], [EMPTY]
    if not isinstance(data, dict):
        return {}, ["the metadata must be a mapping"], []
    return data, list(_faults(data)), []


def _faults(data: dict[str, Any]) -> Any:
    licenses = data["license"] if isinstance(data.get("license"), list) else [data.get("license", "other")]
    if not all(isinstance(name, str) and name in LICENSES for name in licenses):
        yield f'"license" must be one of {sorted(LICENSES)}'
    for key in ("library_name", "pipeline_tag"):
        if key in data and not isinstance(data[key], str):
            yield f'"{key}" must be a string'
    if "pipeline_tag" in data and data["pipeline_tag"] not in TASKS:
        yield f'"pipeline_tag" must be one of {sorted(TASKS)}'
    for key in _LISTS:
        items = data[key] if isinstance(data.get(key), list) else [data[key]] if key in data else []
        yield from (f'"{key}[{i}]" must be a string' for i, item in enumerate(items) if not isinstance(item, str))
    yield from _index_faults(data.get("model-index", []))


def _index_faults(index: Any) -> Any:
    if not isinstance(index, list):
        yield '"model-index" must be an array'
        return
    for i, model in enumerate(index):
        at = f"model-index[{i}]"
        if not isinstance(model, dict) or not isinstance(model.get("name"), str):
            yield f'"{at}.name" is required'
            continue
        for j, result in enumerate(model.get("results", [])):
            yield from _result_faults(result, f"{at}.results[{j}]")


def _result_faults(result: Any, at: str) -> Any:
    for path in ("task.type", "dataset.type", "dataset.name"):
        top, key = path.split(".")
        if not isinstance(result.get(top), dict) or not isinstance(result[top].get(key), str):
            yield f'"{at}.{path}" is required'
    if not isinstance(result.get("metrics"), list) or not result["metrics"]:
        yield f'"{at}.metrics" is required'
    for k, metric in enumerate(result.get("metrics") or []):
        if not isinstance(metric, dict) or not isinstance(metric.get("type"), str):
            yield f'"{at}.metrics[{k}].type" is required'
        elif metric.get("value") is None or metric["value"] != metric["value"]:
            yield f'"{at}.metrics[{k}].value" is required'
