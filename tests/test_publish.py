"""Publishing on the Hub: one commit, only what belongs, nothing that does not; and what a person wrote stays."""

import json
import os
import re
from pathlib import Path

import pytest
from hubserver import HubServer
from huggingface_hub import CommitOperationAdd, HfApi, ModelCard
from safetensors.torch import load_file
from small_run import as_if_written, copied, edit, execute

import provenzoo
from provenzoo import checkpoint
from provenzoo.errors import UsageError, ZooError
from provenzoo.hub.card import BEGIN, END
from provenzoo.hub.publish import publish

REPO = "someone/small"
ALWAYS = {"LICENSE", "README.md", "config.json", "model.safetensors", "run.json"}


def published(hub: HubServer, name: str = REPO) -> set[str]:
    return {path for path in hub.files(name) if path != ".gitattributes"}


def commits(hub: HubServer) -> int:
    return len(hub.repos[REPO].history(hub.head(REPO)))


def test_one_commit_holds_what_belongs_and_nothing_else_of_the_run(
    hub: HubServer, reference: Path, tmp_path: Path
) -> None:
    run = copied(reference, tmp_path)
    (run / "secret-notes.txt").write_text("mine")
    (run / "stages/tune/pickle.bin").write_bytes(b"\x80")
    done = publish(run, REPO, stage="tune")
    assert published(hub) > ALWAYS and all(p in ALWAYS or p.startswith("figures/") for p in published(hub))
    assert commits(hub) == 2 and hub.repos[REPO].fsck() == ""
    assert done.reference == f"hf:{REPO}@{hub.head(REPO)}"
    assert len(done.changes.added) == len(published(hub))


def test_what_is_published_loads_from_the_hub_with_the_same_bits(hub: HubServer, reference: Path) -> None:
    done = publish(reference, REPO, stage="tune")
    for seed in (0, 1):
        theirs = provenzoo.load(done.reference, seed=seed).state_dict()
        ours = provenzoo.load(str(reference / "stages/tune"), seed=seed).state_dict()
        assert theirs.keys() == ours.keys() and all(
            checkpoint.digest({"x": theirs[k]}) == checkpoint.digest({"x": ours[k]}) for k in ours
        )
    about = provenzoo.load(f"hf:{REPO}").provenance
    assert about["revision"] == hub.head(REPO) and about["recipe"] == "small"


def test_the_snippet_on_the_card_runs(hub: HubServer, reference: Path) -> None:
    publish(reference, REPO, stage="tune", tag="v1")
    card = hub.files(REPO)["README.md"].decode()
    snippet = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert snippet and f"hf:{REPO}@v1" in snippet[1]
    names: dict = {}
    exec(snippet[1], names)
    assert not names["model"].training


def test_a_dry_run_lists_exactly_what_would_change_and_sends_nothing(hub: HubServer, reference: Path) -> None:
    done = publish(reference, REPO, stage="tune", dry_run=True)
    assert set(done.changes.added) > ALWAYS and REPO not in hub.repos
    assert {m for _, m, path, _ in hub.seen} <= {"GET", "POST"} and {p for _, m, p, _ in hub.seen if m == "POST"} <= {
        "/api/validate-yaml"
    }
    publish(reference, REPO, stage="tune")
    head = hub.head(REPO)
    again = publish(reference, REPO, stage="train", dry_run=True)
    assert {"README.md", "config.json", "model.safetensors"} <= set(again.changes.changed) and hub.head(REPO) == head
    assert not again.changes.deleted and "LICENSE" in again.changes.unchanged


def test_a_second_publication_changes_only_what_changed(hub: HubServer, reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    publish(run, REPO, stage="tune")
    head = hub.head(REPO)
    assert not publish(run, REPO, stage="tune").changes and hub.head(REPO) == head
    edit(run / "run.json", lambda record: record.update(note="a new note"))
    assert publish(run, REPO, stage="tune").changes.changed == ["run.json"]
    assert commits(hub) == 3


def test_figures_that_are_no_longer_drawn_go_and_files_of_others_stay(
    hub: HubServer, reference: Path, tmp_path: Path
) -> None:
    run = copied(reference, tmp_path)
    publish(run, REPO, stage="tune")
    HfApi().create_commit(REPO, [CommitOperationAdd("notes/mine.md", b"kept")], commit_message="notes")
    [figure] = (run / "stages/tune/figures").glob("*.png")
    figure.unlink()
    done = publish(run, REPO, stage="tune")
    assert done.changes.deleted == [f"figures/tune-{figure.name}"] and done.changes.changed == [
        "README.md",
        "config.json",
    ]
    assert hub.files(REPO)["notes/mine.md"] == b"kept" and done.changes.deleted[0] not in hub.files(REPO)


def test_what_a_person_wrote_in_the_card_stays(hub: HubServer, reference: Path) -> None:
    publish(reference, REPO, stage="tune")
    card = hub.files(REPO)["README.md"].decode()
    head, body = card.split(BEGIN)
    mine = head.replace("---\nlibrary", "---\nlanguage: en\nlibrary").replace("- provenzoo\n", "- provenzoo\n- mine\n")
    mine = f"{mine}Above it.\n\n{BEGIN}{body}\nBelow it, with $x^2$.\n"
    assert "language: en" in mine and "- mine" in mine
    HfApi().create_commit(REPO, [CommitOperationAdd("README.md", mine.encode())], commit_message="mine")
    publish(reference, REPO, stage="train")
    new = hub.files(REPO)["README.md"].decode()
    assert "Above it.\n" in new and new.endswith("Below it, with $x^2$.\n") and new.count(BEGIN) == new.count(END) == 1
    data = ModelCard(new).data
    assert data.language == "en" and data.tags == ["provenzoo", "mine"] and "stage <code>train</code>" in new


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("---\nlicense: apache-2.0\nlanguage: de\n---\n", "language: de"),
        ("---\ndatasets: [null]\nthumbnail: [null, a.png]\n---\nText.\n", "Text."),
        ("No front matter at all.\n", "No front matter at all."),
        ("---\nmodel-index: [{}]\nlanguage: fr\n---\n", "language: fr"),
    ],
)
def test_a_card_of_any_kind_that_is_there_is_taken_up(hub: HubServer, reference: Path, before: str, kept: str) -> None:
    hub.create(REPO).commit("main", "by hand", add={"README.md": before.encode()})
    publish(reference, REPO, stage="tune")
    new = hub.files(REPO)["README.md"].decode()
    assert kept in new and "null" not in new.partition(BEGIN)[0] and ModelCard(new).data.license == "apache-2.0"


def test_a_card_whose_marks_are_broken_is_not_guessed_at(hub: HubServer, reference: Path) -> None:
    hub.create(REPO).commit("main", "by hand", add={"README.md": f"{BEGIN}\nno end\n".encode()})
    with pytest.raises(ZooError, match=r"README\.md: it needs one mark"):
        publish(reference, REPO, stage="tune")


def test_a_repository_that_moved_meanwhile_is_left_as_it_is(hub: HubServer, reference: Path) -> None:
    publish(reference, REPO, stage="tune")
    hub.faults.add("POST", "/commit/", before=lambda: hub.repos[REPO].commit("main", "somebody", add={"x.txt": b"x"}))
    with pytest.raises(ZooError, match="somebody changed it meanwhile; nothing was published"):
        publish(reference, REPO, stage="train")
    assert hub.repos[REPO].history(hub.head(REPO))[0][2] == "somebody"


@pytest.mark.parametrize(
    ("method", "path", "fault"),
    [
        ("POST", "/preupload/", {"status": 500, "times": 9}),
        ("POST", "/objects/batch", {"status": 500, "times": 9}),
        ("PUT", "^/someone/small/", {"status": 503, "times": 9}),
        ("PUT", "^/someone/small/", {"status": 403, "times": 9}),
        ("POST", "/objects/verify", {"status": 500, "times": 9}),
        ("POST", "/complete_multipart/", {"status": 500, "times": 9}),
        ("POST", "/commit/", {"status": 500}),
        ("GET", "/auth-check/write", {"status": 502}),
        ("POST", "/validate-yaml", {"status": 503}),
    ],
)
def test_an_upload_that_breaks_anywhere_changes_nothing_and_running_again_completes_it(
    hub: HubServer, reference: Path, method: str, path: str, fault: dict
) -> None:
    hub.part_size = 1000
    publish(reference, REPO, stage="tune")
    head, before = hub.head(REPO), hub.files(REPO)
    hub.faults.add(method, path, **fault)
    with pytest.raises(ZooError) as caught:
        publish(reference, REPO, stage="train")
    assert str(caught.value).count("\n") == 0 and "hf_" not in str(caught.value)
    assert hub.head(REPO) == head and hub.files(REPO) == before
    hub.faults.clear()
    publish(reference, REPO, stage="train")
    assert commits(hub) == 3 and hub.repos[REPO].fsck() == ""


def test_a_part_that_fails_once_is_sent_again(hub: HubServer, reference: Path) -> None:
    hub.part_size = 1000
    hub.faults.add("PUT", r"/2$", status=503, times=2)
    publish(reference, REPO, stage="tune")
    assert provenzoo.load(f"hf:{REPO}").provenance["recipe"] == "small"


def test_a_fault_in_the_card_is_found_before_anything_is_sent(
    hub: HubServer, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provenzoo.report.card.HUB_METRICS", {"accuracy"})
    monkeypatch.setattr("provenzoo.report.card._arxiv_tags", lambda *_: [7])
    with pytest.raises(ZooError, match=r"README\.md: the card has a fault: .*tags"):
        publish(reference, REPO, stage="tune")
    assert REPO not in hub.repos


def test_who_may_not_write_is_told_in_one_line(
    hub: HubServer, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(reference, REPO, stage="tune")
    monkeypatch.setenv("HF_TOKEN", hub.token("someone", "read"))
    with pytest.raises(ZooError, match=r"403 .*the token needs the right to write"):
        publish(reference, REPO, stage="train")
    monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 34)
    with pytest.raises(ZooError, match=r"401 .*log in") as caught:
        publish(reference, "someone/new", stage="train")
    assert "xxxx" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", hub.token("other"))
    with pytest.raises(ZooError, match="rights to create a model under this namespace"):
        publish(reference, "someone/new", stage="train")


def test_a_private_repository_is_made_private_and_a_tag_names_the_commit(hub: HubServer, reference: Path) -> None:
    publish(reference, REPO, stage="tune", private=True, tag="v1")
    assert hub.repos[REPO].private and hub.repos[REPO].refs("tags") == {"v1": hub.head(REPO)}
    assert provenzoo.load(f"hf:{REPO}@v1").provenance["revision"] == hub.head(REPO)
    with pytest.raises(ZooError, match="the tag v1 is there already"):
        publish(reference, REPO, stage="train", tag="v1")


@pytest.mark.parametrize("where", ["stages/tune/config.json", "run.json", "config.yaml"])
def test_a_token_in_anything_that_would_leave_stops_it(
    hub: HubServer, reference: Path, tmp_path: Path, where: str
) -> None:
    run, token = copied(reference, tmp_path), hub.token("someone")
    if where == "config.yaml":
        (run / where).write_text((run / where).read_text().replace("recipe: small", f"recipe: small\nabout: {token}"))
        edit(run / "run.json", lambda record: record.update(about=token))
    else:
        edit(run / where, lambda data: data.update(note=f"see {token}"))
        as_if_written(run / "stages/tune")
    with pytest.raises(ZooError, match="holds an access token") as caught:
        publish(run, REPO, stage="tune")
    assert token not in str(caught.value) and REPO not in hub.repos


def test_no_token_reaches_a_file_a_log_or_the_storage(
    hub: HubServer, reference: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    token = os.environ["HF_TOKEN"]
    assert execute("publish", reference, REPO, "--stage", "tune") == 0
    out, err = capfd.readouterr()
    assert token not in out + err and not any(token.encode() in content for content in hub.files(REPO).values())
    assert not [h for place, _, _, h in hub.seen if place == "cdn" and "authorization" in {k.lower() for k in h}]


def test_several_candidates_and_none_named_is_an_error_that_lists_them(reference: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"which stage\? Name one with --stage: train, tune"):
        publish(reference, f"local:{tmp_path}/out")
    with pytest.raises(UsageError, match="no stage 'tun' with a checkpoint; did you mean 'tune'"):
        publish(reference, f"local:{tmp_path}/out", stage="tun")
    with pytest.raises(UsageError, match="no seed 7; it has 0, 1"):
        publish(reference, f"local:{tmp_path}/out", stage="tune", seed=7)


def test_a_run_that_is_not_complete_is_not_published(reference: Path, tmp_path: Path) -> None:
    run = copied(reference, tmp_path)
    edit(run / "run.json", lambda record: record.update(status="interrupted"))
    with pytest.raises(ZooError, match="the run is interrupted; finish it"):
        publish(run, f"local:{tmp_path}/out", stage="tune")


@pytest.mark.parametrize(
    "name",
    ["a--b/c", "someone/x.", "someone/a--b", "someone", "a/b/c", "someone/.x", "some one/x", "../x", "someone/x.git"],
)
def test_a_name_that_no_repository_can_have_is_refused(hub: HubServer, reference: Path, name: str) -> None:
    with pytest.raises(UsageError):
        publish(reference, name, stage="tune")
    assert not hub.seen


# --- a folder -----------------------------------------------------------------------------------------------------


def test_a_folder_gets_the_same_layout_with_no_network(reference: Path, tmp_path: Path) -> None:
    done = publish(reference, f"local:{tmp_path}/out", stage="tune")
    files = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert files > ALWAYS and files == set(done.changes.added)
    assert provenzoo.load(done.reference, seed=1).provenance["seed"] == 1
    assert provenzoo.verify(done.reference.removeprefix("local:")).holds


def test_stale_files_in_a_reused_folder_go_and_those_of_others_stay(reference: Path, tmp_path: Path) -> None:
    run, out = copied(reference, tmp_path), tmp_path / "out"
    publish(run, f"local:{out}", stage="tune")
    (out / "mine.txt").write_text("kept")
    figures = sorted((run / "stages").glob("*/figures/*.png"))
    figures[0].unlink()
    done = publish(run, f"local:{out}", stage="tune")
    assert len(done.changes.deleted) == 1 and not (out / done.changes.deleted[0]).exists()
    assert (out / "mine.txt").read_text() == "kept"


def test_a_hostile_list_of_earlier_files_deletes_nothing_outside(reference: Path, tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim.txt"
    victim.write_text("mine")
    publish(reference, f"local:{out}", stage="tune")
    edit(out / "config.json", lambda config: config.update(files=["../victim.txt", str(victim), 7, None]))
    publish(reference, f"local:{out}", stage="tune")
    assert victim.read_text() == "mine"


def test_a_run_folder_is_no_place_to_publish_in(reference: Path) -> None:
    with pytest.raises(UsageError, match="is a run folder"):
        publish(reference, f"local:{reference}", stage="tune")


def test_one_seed_has_its_own_tensors_and_digest(reference: Path, tmp_path: Path) -> None:
    publish(reference, f"local:{tmp_path}/out", stage="tune", seed=1)
    whole = load_file(reference / "stages/tune/model.safetensors")
    tensors = load_file(tmp_path / "out/model.safetensors")
    assert all(tensors[name].equal(whole[name][1:2]) for name in whole)
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["digest"] == checkpoint.digest({name: tensor[1:2] for name, tensor in whole.items()})
    assert provenzoo.load(f"local:{tmp_path}/out").provenance["seed"] == 1
    assert provenzoo.verify(f"local:{tmp_path}/out").holds


def test_the_same_weights_give_the_same_bytes_on_every_save(reference: Path, tmp_path: Path) -> None:
    for turn in "ab":
        publish(reference, f"local:{tmp_path}/{turn}", stage="tune")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_command_tells_what_it_did(hub: HubServer, reference: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute("publish", reference, REPO, "--stage", "tune", "--dry-run") == 0
    assert "added\tmodel.safetensors" in capsys.readouterr().out
    assert execute("publish", reference, REPO, "--stage", "tune", "--json") == 0
    assert json.loads(capsys.readouterr().out)["reference"] == f"hf:{REPO}@{hub.head(REPO)}"
    assert execute("publish", reference, REPO) == 2
    assert "Name one with --stage" in capsys.readouterr().err
