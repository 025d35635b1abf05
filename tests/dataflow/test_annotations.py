import pytest

from dataflow.annotations import annotation_of, read_annotation
from dataflow.calls import LLMCall
from dataflow.errors import PipelineError
from dataflow.phases import Phase

CALL = LLMCall("job", "actor", Phase.TRAIN, 2, 0, 2, 7, hint_s=0.2)


def test_an_annotation_reads_back():
    found = read_annotation({"plexrl": annotation_of(CALL)})
    assert found is not None
    assert (found["op"], found["version"], found["hint_s"]) == ("actor.train.0", 2, 0.2)


def test_tasks_without_our_annotation_have_none():
    assert read_annotation({"priority": 3}) is None
    assert read_annotation(None) is None


@pytest.mark.parametrize(
    "broken",
    [
        "text",
        {**annotation_of(CALL), "version": "2"},
        {**annotation_of(CALL), "function": "reward"},
    ],
)
def test_an_annotation_made_by_hand_is_refused(broken):
    with pytest.raises(PipelineError, match="annotation"):
        read_annotation({"plexrl": broken})
