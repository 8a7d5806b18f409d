"""The command `provenzoo`: parse, call the API, print, exit.

Exit codes: 0 done and every claim holds; 1 an error; 2 the command's words are off; 3 done, but something falls short;
128 + signal when stopped. What is asked for goes to standard output, messages and progress to standard error.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from provenzoo import registry
from provenzoo.errors import UsageError, ZooError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="A zoo of proved transformers.",
)

FALLS_SHORT = 3
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[path=value ...]", help="Changes to the recipe.")]


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if version:
        from provenzoo import __version__

        print(__version__)
        raise typer.Exit()


@app.command("list")
def list_command(
    kind: Annotated[
        str | None, typer.Argument(help="models, datasets, teachers, metrics, checkpoints, recipes")
    ] = None,
    pattern: Annotated[str | None, typer.Argument(help="A shell pattern, such as 'vit-*' or 'timm/resnet*'")] = None,
    as_json: AsJson = False,
) -> int:
    """The names there are."""
    kinds = [kind] if kind else [*registry.KINDS, "recipes"]
    names = {k: registry.list_names(k, pattern) for k in kinds}
    for problem in registry.problems():
        _say(f"warning: {problem}")
    if as_json:
        _json(names[kind] if kind else names)
    else:
        _print_names(names, with_kind=kind is None)
    return 0


def _print_names(names: dict[str, list[str]], with_kind: bool) -> None:
    for kind, found in names.items():
        for name in found:
            print(f"{name}\t{kind.removesuffix('s')}" if with_kind else name)


@app.command()
def info(name: str, as_json: AsJson = False) -> int:
    """What is known of a name."""
    answer = registry.info(name)
    if as_json:
        _json(answer)
    else:
        from provenzoo.plain import dump_yaml

        print(dump_yaml(json.loads(json.dumps({k: v for k, v in answer.items() if v}, default=str))), end="")
    return 0


@app.command()
def config(recipe: str, overrides: Overrides = None, as_json: AsJson = False) -> int:
    """The recipe that `run` would run, whole and checked."""
    from provenzoo.pipeline.plan import Plan
    from provenzoo.pipeline.recipe import compose, plain_recipe
    from provenzoo.plain import dump_yaml

    data = plain_recipe(compose(recipe, overrides or []))
    plan = Plan.of(data)
    if as_json:
        _json(
            {
                "recipe": data,
                "id": plan.id,
                "points": [{"name": p.name, "node": p.node, "inputs_digest": p.digest} for p in plan.points],
            }
        )
    else:
        print(dump_yaml(data), end="")
        _say(f"{len(plan.points)} points, id {plan.id}")
    return 0


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe, a YAML file, or a pattern such as 'jelassi2022/*'")],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="The run folder (for a pattern, the folder of run folders).")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Drop what an earlier run left in the folder.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run a recipe, or all that match a pattern, and judge the claims."""
    from provenzoo.pipeline.run import run as run_recipe
    from provenzoo.pipeline.select import select

    if not any(mark in recipe for mark in "*?"):
        done = run_recipe(recipe, overrides or [], out=out, fresh=fresh)
        _json(done.record) if as_json else _print_run(done)
        return 0 if done.holds else FALLS_SHORT
    chosen, left_out = select(recipe)
    for name, why in left_out.items():
        _say(f"left out: {name} ({why})")
    runs = [run_recipe(name, overrides or [], out=out / name if out else None, fresh=fresh) for name in chosen]
    if as_json:
        _json({"runs": [done.record for done in runs], "left_out": left_out})
    else:
        for done in runs:
            _print_run(done)
    return 0 if all(done.holds for done in runs) else FALLS_SHORT


def _print_run(done: Any) -> None:
    from provenzoo.pipeline.show import claims_table

    claims_table(done.record)
    print(f"report: {done.path / 'report.html'}")
    print(f"card:   {done.path / 'README.md'}")


@app.command()
def verify(
    target: Annotated[str, typer.Argument(help="A run folder, or a checkpoint's name or folder.")],
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps")] = "auto",
    as_json: AsJson = False,
) -> int:
    """Recompute every saved number and compare."""
    from provenzoo.pipeline.verify import verify as verify_target

    found = verify_target(target, device)
    if as_json:
        _json(found.plain())
    else:
        from provenzoo.pipeline.show import verification_table

        verification_table(found)
    return 0 if found.holds else FALLS_SHORT


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    as_json: AsJson = False,
) -> int:
    """Draw the figures and write the report and the card of a run again."""
    from provenzoo.report import report as write_report

    if not (run / "run.json").is_file():
        raise UsageError(f"{run}: no run there (no run.json)")
    files = write_report(run)
    _json([str(file) for file in files]) if as_json else print("\n".join(str(file) for file in files))
    return 0


# --- around the commands ------------------------------------------------------------------------------------------


def _json(data: Any) -> None:
    print(json.dumps(data, indent=1, ensure_ascii=False, default=str))


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def execute(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code; an error is one or two lines, a traceback only with `--debug`."""
    debug = "--debug" in argv
    try:
        return app([arg for arg in argv if arg != "--debug"], prog_name="provenzoo", standalone_mode=False) or 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        if debug:
            raise
        message, code = _explained(error)
        _say(f"error: {message}")
        return code


def _explained(error: Exception) -> tuple[str, int]:
    """What a user is told of an error, and the exit code."""
    if isinstance(error, ZooError):
        return str(error), 2 if isinstance(error, UsageError) else getattr(error, "exit_code", 1)
    if hasattr(error, "format_message"):  # typer's own: an unknown command or option
        return f"{error.format_message()}; see `provenzoo --help`", 2  # pyright: ignore[reportAttributeAccessIssue]
    return f"{type(error).__name__}: {error} (a fault of provenzoo; run again with --debug and report it)", 1


def main() -> None:
    """Entry point of the command."""
    sys.exit(execute(sys.argv[1:]))
