"""The Hub server of these tests, as huggingface_hub sees it."""

import os
import subprocess
from pathlib import Path

import pytest
from hubserver import HubServer
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

CARD = b"---\nlicense: mit\nlibrary_name: provenzoo\ntags: [provenzoo, 'arxiv:2210.09221']\n---\n# A card\n"
REPO = "someone/model"


@pytest.fixture
def api(hub: HubServer) -> HfApi:
    """A client, and one repository with a commit of a card and 3,000 bytes of weights."""
    client = HfApi()
    client.create_repo(REPO)
    commit(client, {"README.md": CARD, "model.safetensors": bytes(range(250)) * 12, "sub/a.txt": b"a"})
    return client


def commit(client: HfApi, files: dict[str, bytes], **more: object) -> str:
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    return client.create_commit(REPO, operations, commit_message="change", **more).oid  # pyright: ignore[reportArgumentType]


def test_what_is_committed_is_listed_and_downloads_as_it_was(hub: HubServer, api: HfApi) -> None:
    assert api.whoami()["name"] == "someone"
    assert {"README.md", "model.safetensors", ".gitattributes"} < set(api.list_repo_files(REPO))
    for name, content in (("README.md", CARD), ("model.safetensors", bytes(range(250)) * 12), ("sub/a.txt", b"a")):
        file = Path(hf_hub_download(REPO, name))
        assert file.read_bytes() == content and file.parts[-2 - name.count("/")] == hub.head(REPO)
    info = api.model_info(REPO, files_metadata=True)
    sizes = {s.rfilename: (s.size, bool(s.lfs)) for s in info.siblings or []}
    assert sizes["model.safetensors"] == (3000, True) and sizes["README.md"] == (len(CARD), False)
    assert info.card_data and info.card_data.license == "mit" and "arxiv:2210.09221" in (info.tags or [])
    assert hub.repos[REPO].fsck() == ""


def test_the_token_goes_to_the_hub_and_never_to_the_cdn(hub: HubServer, api: HfApi) -> None:
    hf_hub_download(REPO, "model.safetensors")
    sent = {
        place: ["Authorization" in {k.title() for k in headers} for p, _, _, headers in hub.seen if p == place]
        for place in ("hub", "cdn")
    }
    assert any(sent["hub"]) and len(sent["cdn"]) == 2 and not any(sent["cdn"])


def test_a_large_file_goes_in_parts_and_only_once(hub: HubServer, api: HfApi) -> None:
    hub.part_size = 1000
    content = os.urandom(3500)
    commit(api, {"big.safetensors": content})
    assert [path.rsplit("/")[-1] for place, method, path, _ in hub.seen if place == "cdn" and method == "PUT"][
        -4:
    ] == list("1234")
    assert hub.files(REPO)["big.safetensors"] == content
    hub.seen.clear()
    commit(api, {"same.safetensors": content})
    assert [place for place, *_ in hub.seen if place == "cdn"] == [] and hub.repos[REPO].fsck() == ""


def test_an_unchanged_file_makes_no_commit(hub: HubServer, api: HfApi) -> None:
    before = hub.head(REPO)
    assert commit(api, {"README.md": CARD}) == before == hub.head(REPO)


def test_trees_commits_refs_and_paths_are_told_a_page_at_a_time(hub: HubServer, api: HfApi) -> None:
    hub.page = 2
    paths = [entry.path for entry in api.list_repo_tree(REPO, recursive=True)]
    assert paths == [".gitattributes", "README.md", "model.safetensors", "sub", "sub/a.txt"]
    assert [entry.path for entry in api.list_repo_tree(REPO, "sub")] == ["sub/a.txt"]
    assert [entry.last_commit.title for entry in api.list_repo_tree(REPO, "sub", expand=True)] == ["change"]  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    commit(api, {"b.txt": b"b"})
    assert [c.title for c in api.list_repo_commits(REPO)] == ["change", "change", "initial commit"]
    assert [p.path for p in api.get_paths_info(REPO, ["b.txt", "sub", "none"])] == ["b.txt", "sub"]
    api.create_tag(REPO, tag="v1")
    api.create_branch(REPO, branch="x/y", revision="v1")
    refs = api.list_repo_refs(REPO)
    assert [b.name for b in refs.branches] == ["main", "x/y"] and refs.tags[0].target_commit == hub.head(REPO)
    api.delete_tag(REPO, tag="v1")
    api.delete_branch(REPO, branch="x/y")
    assert api.list_repo_refs(REPO).tags == []
    hub.page = 1
    api.create_repo("someone/other")
    assert [m.id for m in api.list_models()] == [REPO, "someone/other"]
    assert [m.id for m in api.list_models(filter="provenzoo", search="MOD")] == [REPO]


def test_files_and_folders_are_deleted_and_a_missing_one_is_told(hub: HubServer, api: HfApi) -> None:
    api.create_commit(REPO, [CommitOperationDelete("sub/", is_folder=True)], commit_message="gone")
    assert "sub/a.txt" not in hub.files(REPO)
    with pytest.raises(HfHubHTTPError):
        api.create_commit(REPO, [CommitOperationDelete("sub/a.txt")], commit_message="gone")


def test_a_commit_on_a_branch_that_moved_is_refused(hub: HubServer, api: HfApi) -> None:
    old = hub.head(REPO)
    new = commit(api, {"b.txt": b"b"}, parent_commit=old)
    with pytest.raises(HfHubHTTPError, match="412"):
        commit(api, {"c.txt": b"c"}, parent_commit=old)
    assert hub.head(REPO) == new


def test_a_card_with_a_fault_is_refused_before_anything_is_sent(hub: HubServer, api: HfApi) -> None:
    before = hub.head(REPO)
    for bad in (b"---\nlicense: my own\n---\n", b"---\ndatasets: [null]\n---\n", b"---\nmodel-index: [{}]\n---\n"):
        with pytest.raises(ValueError, match=r"Invalid metadata in README\.md"):
            commit(api, {"README.md": bad, "new.safetensors": b"x" * 99})
    assert hub.head(REPO) == before and "PUT" not in {m for p, m, *_ in hub.seen[-3:]}


def test_who_may_see_and_write_what(hub: HubServer, api: HfApi) -> None:
    reader, stranger = hub.token("someone", "read"), hub.token("other")
    api.auth_check(REPO, write=True)
    with pytest.raises(HfHubHTTPError, match="403"):
        api.auth_check(REPO, write=True, token=reader)
    with pytest.raises(HfHubHTTPError, match="write token"):
        commit(HfApi(token=reader), {"b.txt": b"b"})
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        HfApi(token="wrong").whoami()
    hub.repos[REPO].private = True
    for token in (stranger, False):
        with pytest.raises(RepositoryNotFoundError):
            hf_hub_download(REPO, "README.md", token=token)
    hub.repos[REPO].private, hub.repos[REPO].gated = False, True
    assert api.model_info(REPO, token=stranger).gated == "manual"
    with pytest.raises(GatedRepoError):
        hf_hub_download(REPO, "README.md", token=stranger)
    hub.repos[REPO].gated = False
    assert api.create_repo(REPO, exist_ok=True).repo_id == REPO
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_repo(REPO)
    api.update_repo_settings(REPO, visibility="private")
    assert hub.repos[REPO].private
    api.delete_repo(REPO)
    assert not api.repo_exists(REPO)


def test_what_is_not_there_is_told_apart(api: HfApi) -> None:
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("someone/none")
    with pytest.raises(RevisionNotFoundError):
        hf_hub_download(REPO, "README.md", revision="none")
    with pytest.raises(RemoteEntryNotFoundError):
        hf_hub_download(REPO, "none.txt")


def test_faults_come_on_demand(hub: HubServer, api: HfApi) -> None:
    hub.faults.add("GET", r"^/someone/model/[0-9a-f]{64}", cut=1000)
    assert Path(hf_hub_download(REPO, "model.safetensors")).stat().st_size == 3000
    hub.faults.add("PUT", r"^/someone/model/", status=503, times=2)
    commit(api, {"retried.safetensors": os.urandom(99)})
    hub.faults.add("POST", r"/commit/", status=500)
    before = hub.head(REPO)
    with pytest.raises(HfHubHTTPError, match="500"):
        commit(api, {"lost.txt": b"c"})
    assert hub.head(REPO) == before
    hub.flip(REPO, "model.safetensors", 100)
    assert "damaged object" in hub.repos[REPO].fsck()


def test_git_itself_finds_nothing_wrong_in_the_stored_repository(hub: HubServer, api: HfApi, tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", hub.repos[REPO].git_dir, tmp_path / "clone"], check=True)
    assert (tmp_path / "clone/README.md").read_bytes() == CARD
    assert (tmp_path / "clone/model.safetensors").read_text().startswith("version https://git-lfs.github.com/spec/v1")
