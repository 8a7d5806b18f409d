"""Verify what a published card says: its model-index, its table of results, and the claims about its checkpoint."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from provenzoo.errors import ZooError
from provenzoo.pipeline.claims import Claim, Difference, Key, Metric, MetricPath, Ratio, Steps, Table, bound, judge
from provenzoo.pipeline.run import summarise
from provenzoo.pipeline.verify import COUNTED, ERRORS, TOLERANCE, Row, agree, slack
from provenzoo.settings import read
from provenzoo.untrusted import check_size

Numbers = dict[str, dict[str, list[Any]]]
"""Where -> metric -> a number a seed."""
_SIX, _FOUR, _TWO = 5e-6, 5e-4, 5e-2
"""Half a unit of the last of so many digits, relative to the number."""


def card_rows(file: Path, sets: dict[str, Any], again: Numbers) -> list[Row]:
    """Every result that a card states, beside the recomputed one."""
    if not file.is_file():
        raise ZooError(f"{file}: the card is not there")
    check_size(file.name, file.stat().st_size, str(file.parent))
    try:
        card = ModelCard.load(file, ignore_metadata_errors=False)
    except Exception as error:  # YAML of any kind, and what cannot be a model-index
        words = str(error).partition("\n")[0].partition(". ")[0]
        raise ZooError(f"{file}: its results cannot be read ({words})") from None
    return [*_index_rows(card, sets, again), *_table_rows(card.text, sets, again)]


def _index_rows(card: ModelCard, sets: dict[str, Any], again: Numbers) -> Iterator[Row]:
    """The model-index: means over seeds, told with six digits."""
    for result in card.data.get("eval_results") or []:
        where, metric, saved = str(result.dataset_config), result.metric_type, result.metric_value
        values = again.get(where, {}).get(metric)
        mean = summarise(values)["mean"] if values else None
        tolerance = _SIX if metric in COUNTED else TOLERANCE
        yield Row(
            f"card: {where}",
            metric,
            None,
            saved,
            mean,
            tolerance,
            agree(saved, mean, tolerance, _slack(where, metric, sets)),
        )


def _slack(where: str, metric: str, sets: dict[str, Any]) -> float:
    return slack(metric, sets[where]) if where in sets else 0.0


def _table_rows(text: str, sets: dict[str, Any], again: Numbers) -> Iterator[Row]:
    """The table of results, in the order of the sets: mean, least and greatest with four digits, spread with two.

    A card of another template, without it, states nothing here.
    """
    table = _section(text, "## Results in and out of distribution")
    if table is None:
        return
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines() if "|" in line
    ]
    stated = iter(lines[2:])
    for where, entry in sets.items():
        for metric in entry["values"]:
            if any(isinstance(value, list) for value in entry["values"][metric]):
                continue
            cells = next(stated, None)
            values = again.get(where, {}).get(metric)
            if values is None:
                continue
            yield from _cell_rows(f"card: {where}", metric, cells or [], summarise(values), slack(metric, entry))
    for cells in stated:
        saved = _number(cells[2]) if len(cells) > 2 else None
        yield Row("card", f"no number of a set: {cells[0]}", None, saved, None, 0.0, False)


def _cell_rows(where: str, metric: str, cells: list[str], summary: dict[str, Any], absolute: float) -> Iterator[Row]:
    for index, (name, digits) in enumerate((("mean", _FOUR), ("std", _TWO), ("min", _FOUR), ("max", _FOUR)), start=2):
        saved, tolerance = _number(cells[index]) if len(cells) > index else None, digits + TOLERANCE
        missing = len(cells) <= index and summary[name] is not None
        same = not missing and (
            agree(saved, summary[name], tolerance, absolute) or (name == "std" and _tiny(saved, summary))
        )
        yield Row(where, f"{metric} ({name})", None, saved, summary[name], tolerance, same)


def _tiny(saved: float | None, summary: dict[str, Any]) -> bool:
    """Whether two spreads are both rounding beside the mean."""
    limit = TOLERANCE * abs(summary["mean"] or 0.0)
    return saved is not None and summary["std"] is not None and max(saved, summary["std"]) <= limit


def _section(text: str, heading: str) -> str | None:
    """What stands below a heading of what we wrote in a card; None where the card does not have it."""
    ours = text.partition("<!-- provenzoo: begin")[2].partition("<!-- provenzoo: end -->")[0]
    _, found, below = (ours or text).partition(heading)
    return below.partition("\n## ")[0] if found else None


def _number(text: str) -> float | None:
    """A number as a card writes it; None for the words of a replica that was not finite."""
    plain = text.replace("\N{MINUS SIGN}", "-")
    return float(plain) if re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", plain) else None


# --- claims -------------------------------------------------------------------------------------------------------


def told_rows(file: Path, record: dict[str, Any]) -> Iterator[Row]:
    """Each claim's value as the card's table tells it, where there is one, beside that in run.json."""
    claims = record["claims"]
    table = _section(ModelCard.load(file, ignore_metadata_errors=True).text, "## Claims")
    if table is None:
        return
    lines = [line.split("|") for line in table.splitlines() if line.startswith("|")][2:]
    stated = [(_number(cells[3].strip()), "✅" in cells[1]) for cells in lines if len(cells) > 4]
    for index, claim in enumerate(claims):
        value, holds = stated[index] if index < len(stated) else (None, None)
        same = agree(value, claim["value"], _FOUR) and holds is claim["holds"]
        yield Row("card: claims", f"{claim['id']} (told)", None, value, claim["value"], _FOUR, same)
    for value, _ in stated[len(claims) :]:
        yield Row("card: claims", "no claim of run.json", None, value, None, _FOUR, False)


def claim_rows(record: dict[str, Any], config: dict[str, Any], again: Numbers) -> tuple[list[Row], list[str]]:
    """The claims that the recomputed numbers decide, and the names of those that need the whole run.

    A claim's value may differ by what the numbers in it may; whether it holds is judged on the value that is told.
    """
    table, slacks = _table(again), _slacks(again, config["sets"])
    rows, left = [], []
    for told in record["claims"]:
        node = {"holds": told["holds_if"]} | {key: told[key] for key in ("says", "source", "metric", "over")}
        try:
            claim = read(Claim, node, f"run.json: claims.{told['id']}")
            [verdict] = judge({told["id"]: claim}, table)
        except ZooError:
            left.append(told["id"])
            continue
        if verdict.matches != told["matches"] or record["seeds"] != len(config["seeds"]):
            left.append(told["id"])
            continue
        absolute = claim_slack(claim.metric, table, slacks)
        judged = told["value"] is not None and bound(claim.holds)(told["value"])[0]
        same = told["holds"] is judged and agree(told["value"], verdict.value, TOLERANCE, absolute)
        rows.append(Row("card: claims", told["id"], None, told["value"], verdict.value, TOLERANCE, same))
    return rows, left


def claim_slack(metric: Metric, table: Table, slacks: Table) -> float:
    """What a claim's value may differ by on another kind of CPU, by what each of its numbers may (`slacks`).

    Rounding is no matter for a ratio, which the relative tolerance covers.
    """

    def most(path: str) -> float:
        return max(value or 0.0 for values in MetricPath.parse(path).find(slacks).values() for value in values)

    def flips(path: str) -> float:
        return most(path) if MetricPath.parse(path).metric in (*COUNTED, *ERRORS) else 0.0

    match metric:
        case str():
            return most(metric)
        case Difference():
            return sum(map(most, metric.difference))
        case Steps():
            return 2 * most(metric.steps[0])
        case Ratio(ratio=(path, int() | float() as number)):
            return flips(path) / abs(number)
        case Ratio(ratio=(above, str() as below)):
            numbers, divisors = (
                [abs(value) for values in MetricPath.parse(path).find(table).values() for value in values if value]
                for path in (above, below)
            )
            least = min(divisors, default=1.0)
            return (flips(above) + max(numbers, default=0.0) / least * flips(below)) / least
        case _:
            return 0.0


def _slacks(again: Numbers, sets: dict[str, Any]) -> Table:
    """The slack of each recomputed number, in its place."""
    allowed = {
        where: {name: [slack(name, sets[where])] * len(values) for name, values in metrics.items()}
        for where, metrics in again.items()
    }
    return _table(allowed)


def _table(again: Numbers) -> Table:
    table: Table = {}
    for where, metrics in again.items():
        for metric, values in metrics.items():
            if not any(isinstance(value, list) for value in values):
                path = MetricPath.parse(f"{where}.{metric}")
                labels = tuple((path.labels or {}).items())
                table[Key(path.stage, labels, path.set, metric, None)] = values
    return table
