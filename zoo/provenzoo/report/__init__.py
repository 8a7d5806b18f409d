"""Figures, page and card of a run."""

from pathlib import Path


def report(run: Path) -> list[Path]:
    """To come."""
    return []
