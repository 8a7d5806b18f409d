"""The licence of what is published: the LICENSE file, the card and config.json agree, and none is changed unasked."""

import json
from pathlib import Path

import pytest
from hubserver import HubServer
from huggingface_hub import CommitOperationAdd, HfApi, ModelCard
from small_run import RECIPE, copied, execute

import provenzoo
from provenzoo import registry
from provenzoo.errors import UsageError, ZooError
from provenzoo.hub.publish import publish
from provenzoo.pipeline.plan import prepare

REPO = "someone/small"
SHIPPED = ["apache-2.0", "bsd-3-clause", "cc0-1.0", "mit"]


def named(reference: Path, tmp_path: Path, license: str) -> Path:
    """A copy of the run whose recipe names a licence."""
    run = copied(reference, tmp_path)
    with open(run / "config.yaml", "a") as file:
        file.write(f"license: {license}\n")
    return run


def told(hub: HubServer) -> tuple[str, str, bytes]:
    """What the card and config.json say, and the text."""
    files = hub.files(REPO)
    card = ModelCard(files["README.md"].decode())
    assert f"<code>{json.loads(files['config.json'])['license']}</code>; its text is in the file" in card.text
    return card.data.license, json.loads(files["config.json"])["license"], files["LICENSE"]


@pytest.mark.parametrize("license", SHIPPED)
def test_the_recipes_licence_is_that_of_file_card_and_config(
    hub: HubServer, reference: Path, tmp_path: Path, license: str
) -> None:
    publish(named(reference, tmp_path, license), REPO, stage="tune")
    assert told(hub) == (license, license, registry.license_file(license).read_bytes())
    assert provenzoo.info(f"hf:{REPO}")["license"] == license


def test_the_commands_licence_goes_before_the_recipes(hub: HubServer, reference: Path, tmp_path: Path, capsys) -> None:
    run = named(reference, tmp_path, "mit")
    assert execute("publish", run, REPO, "--stage", "tune", "--license", "cc0-1.0") == 0
    assert told(hub)[:2] == ("cc0-1.0", "cc0-1.0") and b"CC0 1.0 Universal" in told(hub)[2]
    assert execute("publish", run, REPO, "--stage", "tune", "--license", "cco-1.0") == 1
    assert "license: no text 'cco-1.0' in cards/licenses/ of a content folder; did you mean 'cc0-1.0'?" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("license", ["gpl", "MIT", "../mit", "/etc/passwd", "mit.txt", ""])
def test_an_unknown_licence_is_one_line_and_nothing_is_sent(
    hub: HubServer, reference: Path, tmp_path: Path, license: str
) -> None:
    with pytest.raises(ZooError, match="license: no text") as caught:
        prepare({**RECIPE, "license": license})
    assert "\n" not in str(caught.value)
    if license:
        with pytest.raises(ZooError, match="license: no text"):
            publish(reference, REPO, stage="tune", license=license)
        assert REPO not in hub.repos


def test_a_licence_does_not_make_another_run() -> None:
    ids = {prepare({**RECIPE, **more})[1].id for more in ({}, {"license": "mit"})}
    assert len(ids) == 1


def test_a_licence_of_ones_own_is_told_as_other_with_its_name(
    hub: HubServer, reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "mine/cards/licenses"
    place.mkdir(parents=True)
    (place / "our-lab.txt").write_text("Ask us.")
    (place / "mit.txt").write_text("not the text of ours")
    monkeypatch.setenv("PROVENZOO_PATH", str(tmp_path / "mine"))
    publish(reference, REPO, stage="tune", license="our-lab")
    assert told(hub) == ("other", "our-lab", b"Ask us.")
    data = ModelCard(hub.files(REPO)["README.md"].decode()).data
    assert (data.license_name, data.license_link) == ("our-lab", "LICENSE")
    publish(reference, REPO, stage="tune", license="mit")
    data = ModelCard(hub.files(REPO)["README.md"].decode()).data.to_dict()
    assert data["license"] == "mit" and not {"license_name", "license_link"} & data.keys()


@pytest.mark.parametrize(
    "front", ["license: mit", "license: other\nlicense_name: our-lab\nlicense_link: x", "license: [mit, cc0-1.0]"]
)
def test_a_licence_that_is_there_is_not_changed_by_one_that_nobody_chose(
    hub: HubServer, reference: Path, tmp_path: Path, front: str
) -> None:
    before = f"---\n{front}\n---\n"
    hub.create(REPO).commit("main", "by hand", add={"README.md": before.encode()})
    with pytest.raises(UsageError, match=r"README\.md: the licence there is .*--license"):
        publish(reference, REPO, stage="tune")
    assert hub.files(REPO)["README.md"].decode() == before
    publish(reference, REPO, stage="tune", license="apache-2.0")
    assert told(hub)[0] == "apache-2.0"
    publish(reference, REPO, stage="train")
    publish(named(reference, tmp_path, "mit"), REPO, stage="tune")
    assert told(hub)[0] == "mit"


def test_a_folder_keeps_its_licence_too(reference: Path, tmp_path: Path) -> None:
    publish(reference, f"local:{tmp_path}/out", stage="tune", license="mit")
    with pytest.raises(UsageError, match="the licence there is mit"):
        publish(reference, f"local:{tmp_path}/out", stage="tune")
    assert "MIT License" in (tmp_path / "out/LICENSE").read_text()


def test_a_card_with_no_licence_takes_ours(hub: HubServer, reference: Path) -> None:
    hub.create(REPO)
    HfApi().create_commit(REPO, [CommitOperationAdd("README.md", b"Hello.\n")], commit_message="by hand")
    publish(reference, REPO, stage="tune")
    assert told(hub)[0] == "apache-2.0"
