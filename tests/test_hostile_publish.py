"""Publishing from run folders and into places of every kind: refused in one line, and nothing else is touched."""

import errno
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hubserver import HubServer
from small_run import as_if_written, copied, edit, in_child

import provenzoo
from provenzoo.errors import UsageError, ZooError
from provenzoo.hub import publish as publishing
from provenzoo.hub.publish import publish
from provenzoo.plain import write_whole
from provenzoo.report import report

REPO = "someone/small"


def refused(run: Path, target: str, **words: Any) -> str:
    with pytest.raises(ZooError) as caught:
        publish(run, target, stage="tune", **words)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


# --- where it goes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["local:", "", "local:a\nb", "local:a\0b", "a/b\n", "hf:", "local:" + "a" * 300])
def test_a_target_that_is_none_is_refused_and_the_working_directory_is_left(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        publish(reference, target, stage="tune")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("inside", ["", "stages/tune", "stages", "new", "new/deep"])
def test_a_run_is_not_published_in_a_run(reference: Path, tmp_path: Path, inside: str) -> None:
    run = copied(reference, tmp_path)
    before = files(run)
    for source in (run, reference):
        assert "is a run folder, or in one" in refused(source, f"local:{run / inside}")
    assert files(run) == before


def test_a_name_of_any_letters_is_published_loaded_and_verified(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "m\u00f6del v1.0 \"\u00fc\" 'q' <b> \u6f22"
    done = publish(reference, f"local:{tmp_path}/{name}", stage="tune")
    assert provenzoo.verify(done.reference).holds
    snippet = (tmp_path / name / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(snippet, names := {})
    assert names["model"].provenance["recipe"] == "small"


def test_what_stands_in_the_way_is_named(reference: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "a/README.md").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/README.md").write_bytes(b"\xff\xfe")
    (tmp_path / "c").mkdir()
    (tmp_path / "c/config.json").write_text("{")
    assert "file/LICENSE: cannot be written" in refused(reference, f"local:{tmp_path}/file")
    assert "README.md: cannot be written (Is a directory)" in refused(reference, f"local:{tmp_path}/a")
    assert "the card that is there is no text in UTF-8" in refused(reference, f"local:{tmp_path}/b")
    assert "config.json: not valid JSON" in refused(reference, f"local:{tmp_path}/c")


def test_a_card_on_the_hub_that_is_no_text_is_named(hub: HubServer, reference: Path) -> None:
    hub.create(REPO).commit("main", "by hand", add={"README.md": b"\xff\xfe"})
    assert "the card that is there is no text in UTF-8" in refused(reference, REPO)


def test_links_in_the_target_are_replaced_and_not_followed(reference: Path, tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim.txt"
    victim.write_text("mine")
    out.mkdir()
    for name in ("model.safetensors", "LICENSE"):
        (out / name).symlink_to(victim)
    publish(reference, f"local:{out}", stage="tune")
    assert victim.read_text() == "mine" and not (out / "LICENSE").is_symlink()


def test_a_folder_that_cannot_be_written_is_named(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("provenzoo.plain.os.replace", deny)
    assert "out/LICENSE: cannot be written (Permission denied)" in refused(reference, f"local:{tmp_path}/out")


@pytest.mark.parametrize("count", range(1, 8))
def test_a_publication_in_a_folder_that_is_killed_does_not_load_as_something_else_and_is_completed(
    reference: Path, tmp_path: Path, count: int
) -> None:
    out = tmp_path / "out"
    publish(reference, f"local:{out}", stage="train")

    def work() -> None:
        written = 0

        def write(path: Path, content: bytes | str) -> None:
            nonlocal written
            written += 1
            if written == count:
                path.with_name(f".{path.name}.{os.getpid()}.part").write_bytes(b"half")
                os.kill(os.getpid(), signal.SIGKILL)
            write_whole(path, content)

        publishing.write_whole = write  # pyright: ignore[reportAttributeAccessIssue]
        publish(reference, f"local:{out}", stage="tune")

    changed = publish(reference, f"local:{out}", stage="tune", dry_run=True).changes
    ended = in_child(work)
    assert ended == (-signal.SIGKILL if count <= len(changed.added + changed.changed) else 0)
    try:
        assert provenzoo.load(out).provenance["stage"] in ("train", "tune")
    except ZooError as error:
        assert "not the tensors that were saved" in str(error)
    publish(reference, f"local:{out}", stage="tune")
    publish(reference, f"local:{tmp_path}/whole/out", stage="tune")
    assert files(out) == files(tmp_path / "whole/out")


def test_a_publication_on_the_hub_that_is_killed_leaves_it_as_it_was(hub: HubServer, reference: Path) -> None:
    publish(reference, REPO, stage="train")
    head = hub.head(REPO)

    def work() -> None:
        from huggingface_hub import HfApi

        HfApi.create_commit = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # pyright: ignore
        publish(reference, REPO, stage="tune")

    assert in_child(work) == -signal.SIGKILL and hub.head(REPO) == head
    assert publish(reference, REPO, stage="tune").reference == f"hf:{REPO}@{hub.head(REPO)}"


# --- what it comes from -------------------------------------------------------------------------------------------

RECORDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a folder outside": (lambda r: r["stages"][1].update(folder="../../elsewhere"), "could leave its folder"),
    "an absolute folder": (lambda r: r["stages"][1].update(folder="/etc"), "could leave its folder"),
    "no folder": (lambda r: r["stages"][1].pop("folder"), "could leave its folder"),
    "stages that are a number": (lambda r: r.update(stages=7), "is no record of a run"),
    "a stage that is a number": (lambda r: r.update(stages=[7]), "is no list of a run's stages"),
    "a stage of another recipe": (lambda r: r["stages"][1].update(name="zz"), "has no stage 'zz'"),
    "claims that are a number": (lambda r: r.update(claims=7), "is no record of a run"),
    "an environment that is a number": (lambda r: r.update(environment=7), "is no record of a run"),
    "no status": (lambda r: r.pop("status"), "is no record of a run"),
    "not a number": (lambda r: r["claims"][0].update(value=float("nan")), "nan is no finite number"),
    "a seed that is text": (lambda r: r["stages"][1].update(diverged={"x": 7}), "is no list of a run's stages"),
}


@pytest.mark.parametrize("case", RECORDS)
def test_a_record_that_is_none_is_refused_by_publish_and_report(reference: Path, tmp_path: Path, case: str) -> None:
    change, says = RECORDS[case]
    run = copied(reference, tmp_path)
    edit(run / "run.json", lambda record: change(record) and None)
    assert says in refused(run, f"local:{tmp_path}/out") and not (tmp_path / "out").exists()
    with pytest.raises(ZooError, match=says.replace("'", ".")):
        report(run)


@pytest.mark.parametrize("name", ["config.json", "metrics.json", "model.safetensors"])
def test_a_stage_that_is_not_as_the_run_wrote_it_is_not_published(reference: Path, tmp_path: Path, name: str) -> None:
    run = copied(reference, tmp_path)
    file = run / "stages/tune" / name
    file.write_bytes(file.read_bytes() + b" ")
    assert f"{name}: is not what the run wrote; `provenzoo run` makes the stage again" in refused(
        run, f"local:{tmp_path}/out"
    )
    file.unlink()
    assert f"{name}: is not there as the run left it" in refused(run, f"local:{tmp_path}/out")


def test_numbers_of_an_evaluation_that_were_edited_are_not_published(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    edit(run / "stages/judge/metrics.json", lambda m: m["sets"]["in"]["values"]["accuracy"].__setitem__(0, 1.0))
    assert "judge/metrics.json: is not what the run wrote" in refused(run, f"local:{tmp_path}/out")


@pytest.mark.parametrize("seed", [True, 7, "1"])
def test_a_seed_that_is_none_is_refused(reference: Path, tmp_path: Path, seed: Any) -> None:
    assert f"no seed {seed}; it has 0, 1" in refused(reference, f"local:{tmp_path}/out", seed=seed)


def figure(run: Path) -> Path:
    return next((run / "stages/tune/figures").glob("*.png"))


def test_a_picture_that_links_out_of_the_run_is_not_published(reference: Path, tmp_path: Path) -> None:
    run, secret = copied(reference, tmp_path), tmp_path / "secret.png"
    figure(run).rename(secret)
    place = run / "stages/tune/figures/curves.png"
    place.symlink_to(secret)
    assert "is a link out of the run; nothing was sent" in refused(run, f"local:{tmp_path}/out")
    place.unlink()
    place.symlink_to("/etc/hostname")
    assert "is no picture that can be read" in refused(run, f"local:{tmp_path}/out")


def test_a_record_that_links_out_of_the_run_is_not_published(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    (run / "run.json").rename(tmp_path / "elsewhere.json")
    (run / "run.json").symlink_to(tmp_path / "elsewhere.json")
    assert "run.json: is a link out of the run" in refused(run, f"local:{tmp_path}/out")


def test_a_run_reached_by_a_link_is_published(reference: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(reference)
    assert provenzoo.verify(publish(tmp_path / "latest", f"local:{tmp_path}/out", stage="tune").reference).holds


@pytest.mark.parametrize("where", ["picture", "picture's words", "config", "claim", "name of a claim"])
def test_a_token_in_an_odd_place_is_found(
    hub: HubServer, reference: Path, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, token = copied(reference, tmp_path), hub.token("someone")
    if where.startswith("picture"):
        content = figure(run).read_bytes()
        words = content.replace(b"Description\0", b"Description\0" + token.encode(), 1)
        figure(run).write_bytes(content + token.encode() if where == "picture" else words)
        assert token.encode() in figure(run).read_bytes()
    elif where == "config":
        edit(run / "stages/tune/config.json", lambda config: config.update({token: 1}))
        as_if_written(run / "stages/tune")
    else:
        key = "says" if where == "claim" else "id"
        edit(run / "run.json", lambda record: record["claims"][0].update({key: f"x{token}x"}))
    for target in (REPO, f"local:{tmp_path}/out"):
        told = refused(run, target)
        assert token not in told and "token" in told
    assert REPO not in hub.repos and not (tmp_path / "out").exists()


def test_a_token_of_another_form_is_known_where_it_is_this_accounts(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, token = copied(reference, tmp_path), "api_org_" + "Ab3" * 9
    edit(run / "run.json", lambda record: record.update(note=f"with {token}"))
    monkeypatch.setenv("HF_TOKEN", token)
    told = refused(run, f"local:{tmp_path}/out")
    assert "holds the access token of this account; nothing was sent" in told and token not in told


def test_a_marked_text_in_a_recipe_does_not_end_our_block(hub: HubServer, reference: Path, tmp_path: Path) -> None:
    run, mark = copied(reference, tmp_path), "<!-- provenzoo: end -->"
    edit(run / "run.json", lambda record: record.update(about=f"{mark} ## Claims | a |"))
    for _ in range(2):
        publish(run, REPO, stage="tune")
        card = hub.files(REPO)["README.md"].decode()
        assert card.count(mark) == 1 and provenzoo.verify(f"hf:{REPO}").holds
        edit(run / "run.json", lambda record: record["claims"][0].update(says=mark + "<!-- provenzoo: begin. -->"))


def test_a_folder_needs_no_socket(reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    done = publish(reference, f"local:{tmp_path}/out", stage="tune")
    assert json.loads((tmp_path / "out/config.json").read_text())["files"] == sorted(done.changes.added)
