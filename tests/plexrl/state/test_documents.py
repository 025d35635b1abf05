"""Documents in a folder and at a URL behave alike."""

import pytest

from plexrl.state.documents import BucketDocuments, FolderDocuments, open_documents


@pytest.fixture(params=["folder", "memory"])
def documents(request, tmp_path):
    if request.param == "folder":
        return FolderDocuments(tmp_path / "jobs")
    pytest.importorskip("obstore", reason="needs obstore (plexrl[remote])")
    return BucketDocuments("memory://")


def test_a_document_is_replaced_whole_and_deleted_once(documents):
    assert documents.get("a.spec") is None
    assert documents.names() == ()
    documents.put("a.spec", b"one")
    documents.put("a.spec", b"two")
    assert documents.get("a.spec") == b"two"
    documents.delete("a.spec")
    documents.delete("a.spec")
    assert documents.get("a.spec") is None


def test_names_are_listed_by_whole_folders(documents):
    for name in ("job/actor/2", "job/actor/1", "job/critic/1", "jobs/actor/1", "end"):
        documents.put(name, b"")
    assert documents.names("job/actor/") == ("job/actor/1", "job/actor/2")
    assert documents.names("job/") == ("job/actor/1", "job/actor/2", "job/critic/1")
    assert documents.names() == ("end", *documents.names("job/"), "jobs/actor/1")


def test_a_place_says_which_kind_it_is(tmp_path):
    assert isinstance(open_documents(tmp_path), FolderDocuments)
    pytest.importorskip("obstore", reason="needs obstore (plexrl[remote])")
    assert isinstance(open_documents("memory://"), BucketDocuments)
