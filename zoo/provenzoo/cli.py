"""The command `provenzoo`: parse, call the API, print, exit.

Exit codes: 0 done and every claim holds; 1 an error; 2 the command's words are off; 3 done, but something falls short;
128 + signal when stopped. What is asked for goes to standard output, messages and progress to standard error.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from provenzoo import __version__, registry
from provenzoo.errors import UsageError, ZooError

FALLS_SHORT = 3

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
overrides_argument = click.argument("overrides", nargs=-1, metavar="[path=value ...]")


@click.group(
    no_args_is_help=False, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.pass_context
@click.version_option(__version__, message="%(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def app(context: click.Context, debug: bool) -> int:
    """A zoo of transformers whose learning is proved in papers."""
    if context.invoked_subcommand is None:
        print(context.get_help())
    return 0


@app.command("list")
@click.argument("kind", required=False)
@click.argument("pattern", required=False)
@click.option("--hub", is_flag=True, help="Checkpoints that others published on the Hub.")
@as_json_option
def list_command(kind: str | None, pattern: str | None, hub: bool, as_json: bool) -> int:
    """The names there are.

    KIND is models, datasets, teachers, metrics, checkpoints or recipes; PATTERN a shell pattern such as 'vit-*' or
    'timm/resnet*'.
    """
    if hub:
        return _list_hub(kind, pattern, as_json)
    kinds = [kind] if kind else [*registry.KINDS, "recipes"]
    names = {k: registry.list_names(k, pattern) for k in kinds}
    for problem in registry.problems():
        _say(f"warning: {problem}")
    if as_json:
        _json(names[kind] if kind else names)
    else:
        _print_names(names, with_kind=kind is None)
    return 0


def _list_hub(kind: str | None, pattern: str | None, as_json: bool) -> int:
    from provenzoo.hub.catalogue import published

    if kind != "checkpoints":
        raise UsageError("--hub lists checkpoints: provenzoo list checkpoints --hub [PATTERN]")
    found = published(pattern)
    if as_json:
        _json(list(found))
    else:
        for reference in found:
            print(reference, flush=True)
    return 0


def _print_names(names: dict[str, list[str]], with_kind: bool) -> None:
    for kind, found in names.items():
        for name in found:
            print(f"{name}\t{kind.removesuffix('s')}" if with_kind else name)


@app.command()
@click.argument("name")
@as_json_option
def info(name: str, as_json: bool) -> int:
    """What is known of a name, a checkpoint's folder or hf:user/repo[@revision]."""
    from provenzoo.describe import info as describe

    answer = describe(name)
    if as_json:
        _json(answer)
    else:
        from provenzoo.plain import dump_yaml

        about = answer.pop("about", "")
        print(dump_yaml(json.loads(json.dumps({k: v for k, v in answer.items() if v}, default=str))), end="")
        if about:
            print(f"\n{about}")
    return 0


@app.command()
@click.argument("recipe")
@overrides_argument
@as_json_option
def config(recipe: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """The recipe that `run` would run, whole and checked."""
    from provenzoo.pipeline.plan import prepare
    from provenzoo.plain import dump_yaml

    data, plan = prepare(recipe, overrides)
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
@click.argument("recipe")
@overrides_argument
@click.option("--out", type=click.Path(path_type=Path), help="The run folder (for a pattern, that of the run folders).")
@click.option("--fresh", is_flag=True, help="Drop what an earlier run left in the folder.")
@click.option("--new-length", is_flag=True, help="Go on from an unfinished training that had other steps or epochs.")
@click.option("--jobs", type=click.IntRange(min=1), help="Recipes of a pattern at once (default: in turn).")
@as_json_option
def run(
    recipe: str,
    overrides: tuple[str, ...],
    out: Path | None,
    fresh: bool,
    new_length: bool,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Run a recipe, or all that match a pattern, and judge the claims.

    RECIPE is a name, a YAML file (a run's config.yaml among them) or a pattern such as 'jelassi2022/*'.
    """
    if not any(mark in recipe for mark in "*?"):
        if jobs is not None:
            raise UsageError(
                "--jobs is for a pattern of recipes, such as 'jelassi2022/*'; values side by side: provenzoo sweep"
            )
        from provenzoo.pipeline.run import run as run_recipe
        from provenzoo.training import parallel

        done = run_recipe(recipe, overrides, out=out, fresh=fresh, new_length=new_length)
        if not parallel.speaks():
            return 0
        _json(done.record) if as_json else _print_run(done)
        return 0 if done.holds else FALLS_SHORT
    if new_length:
        raise UsageError("--new-length is for one recipe, not for a pattern of them")
    from provenzoo.pipeline.select import run_matching

    runs, left_out = run_matching(recipe, overrides, out=out, fresh=fresh, jobs=jobs)
    for name, why in left_out.items():
        _say(f"left out: {name} ({why})")
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
@click.argument("recipe")
@click.argument("words", nargs=-1, metavar="path=value,value ...")
@click.option("--out", type=click.Path(path_type=Path), help="The sweep's folder.")
@click.option("--jobs", type=click.IntRange(min=1), help="Points at once (default: a core each; on a GPU one).")
@click.option("--ray", metavar="ADDRESS", help="Run on a Ray cluster: auto, host:port or ray://host:port.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="For table and figure: stage.accuracy, ...")
@as_json_option
def sweep(
    recipe: str,
    words: tuple[str, ...],
    out: Path | None,
    jobs: int | None,
    ray: str | None,
    metrics: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run a recipe at every combination of values; a table and a figure at the end.

    A value is a list (1,2,3), range(0,10,2), log(1e-4,1e-1,7) or random(5,0,1); a key with one value holds for every
    point. Given again, the same command runs only what is missing.
    """
    from provenzoo.pipeline.show import sweep_table
    from provenzoo.pipeline.sweep import sweep as run_sweep

    done = run_sweep(recipe, words, out=out, jobs=jobs, ray=ray, metrics=metrics)
    for point in done.failed:
        _say(f"error: {point['name']}: {point['error'] or point['status']}")
    if as_json:
        _json(done.record)
    else:
        sweep_table(done.record)
        print(f"sweep: {done.path}")
    return 1 if done.failed else 0 if done.holds else FALLS_SHORT


@app.command()
@click.argument("target")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps")
@as_json_option
def verify(target: str, device: str, as_json: bool) -> int:
    """Recompute every saved number and compare.

    TARGET is a run folder, a checkpoint's name or folder, or hf:user/repo[@revision].
    """
    from provenzoo.pipeline.verify import verify as verify_target

    found = verify_target(target, device)
    if as_json:
        _json(found.plain())
    else:
        from provenzoo.pipeline.show import verification_table

        verification_table(found)
    return 0 if found.holds else FALLS_SHORT


@app.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("target", metavar="USER/REPO|local:DIR")
@click.option("--stage", help="The stage to publish (default: the recipe's `publish`, or the only one).")
@click.option("--seed", type=int, help="Only this seed (default: all, in one file).")
@click.option("--teacher", is_flag=True, help="The teacher that the stage learned from, in its place.")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@click.option("--tag", help="Tag the commit, such as v1.")
@click.option("--license", help="Such as mit (default: the recipe's `license`, or apache-2.0).")
@click.option("--dry-run", is_flag=True, help="Tell what would be added, changed and deleted; send nothing.")
@as_json_option
def publish(
    run: Path,
    target: str,
    stage: str | None,
    seed: int | None,
    teacher: bool,
    private: bool,
    tag: str | None,
    license: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Publish a stage of a run: weights, config, card, record, figures and licence, in one commit.

    RUN is its folder, or the name of a shipped checkpoint or teacher. The token is the one that `hf auth login`
    keeps, or that HF_TOKEN holds.
    """
    from provenzoo.hub.publish import publish as publish_run

    words = {"stage": stage, "seed": seed, "private": private or None, "tag": tag, "license": license}
    done = publish_run(run, target, teacher=teacher, **words, dry_run=dry_run)
    if as_json:
        _json(done.plain())
        return 0
    for word in ("added", "changed", "deleted"):
        for name in getattr(done.changes, word):
            print(f"{word}\t{name}")
    if not done.changes:
        print("nothing changed")
    if done.note:
        _say(done.note)
    print(f"would be loaded as\t{done.reference}" if dry_run else f"loads as\t{done.reference}")
    return 0


@app.command()
@click.argument("name")
@as_json_option
def pull(name: str, as_json: bool) -> int:
    """Fetch a checkpoint ahead of going offline.

    NAME is a registered checkpoint or hf:user/repo[@revision].
    """
    from provenzoo.fetch import pull as pull_checkpoint

    found = pull_checkpoint(name)
    _json(found) if as_json else print(f"{found['reference']}\t{found['folder']}")
    return 0


@app.command()
@click.argument("run", type=click.Path(path_type=Path))
@as_json_option
def report(run: Path, as_json: bool) -> int:
    """Write the figures, report and card of a run again, or the page of a paper.

    RUN is its folder, or one that holds a paper's runs.
    """
    from provenzoo.report import report as write_report

    files = write_report(run)
    _json([str(file) for file in files]) if as_json else print("\n".join(str(file) for file in files))
    return 0


@app.command()
@as_json_option
def doctor(as_json: bool) -> int:
    """What this machine has for the zoo, and what is wrong with the content that was found.

    Nothing is downloaded.
    """
    from provenzoo.doctor import examine, lines

    found = examine()
    _json(found) if as_json else print("\n".join(lines(found)))
    return FALLS_SHORT if found["problems"] else 0


@app.command("new")
@click.argument("kind")
@click.argument("name")
@click.option("--into", default=".", show_default=True, type=click.Path(path_type=Path), help="The project's folder.")
@as_json_option
def new_command(kind: str, name: str, into: Path, as_json: bool) -> int:
    """Write a working skeleton with its test into a project of your own.

    KIND is model, dataset, teacher or recipe.
    """
    from provenzoo.new import new

    files = [str(file) for file in new(kind, name, into)]
    if as_json:
        _json(files)
    else:
        print("\n".join(files))
        _say(f"test it: pytest {files[-1]}; use it: export PROVENZOO_PATH={into.resolve()} PYTHONPATH={into.resolve()}")
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
    except (KeyboardInterrupt, click.Abort):
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
    if isinstance(error, click.ClickException):
        return f"{error.format_message().rstrip('.')}; see `provenzoo --help`", error.exit_code
    return f"{type(error).__name__}: {error} (a fault of provenzoo; run again with --debug and report it)", 1


def main() -> None:
    """Entry point of the command."""
    sys.exit(execute(sys.argv[1:]))
