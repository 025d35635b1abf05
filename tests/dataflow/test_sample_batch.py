"""A batch of samples: equal to its tuple, and one block of bytes on the way."""

from __future__ import annotations

import pickle

import cloudpickle

from dataflow.sample_batch import SampleBatch, as_batch
from dataflow.samples import EndReason, Prompt, Sample

PROMPT = Prompt(3, "x=", "12", {"symbols": "x"})


def sample(index: int, **changes: object) -> Sample:
    """A sample of two tokens."""
    fields = {"token_ids": (1, 2), "policy_mask": (True, False), "logprobs": (-0.1 * index, 0.0)}
    return Sample(PROMPT, index, (7,), end=EndReason.STOP, **{**fields, **changes})


SAMPLES = (sample(0), sample(1, token_ids=(), policy_mask=(), logprobs=()), sample(2, text="é\0"))


def test_travels_without_loss_however_often() -> None:
    batch = SampleBatch(SAMPLES)
    for _ in range(3):
        batch = pickle.loads(cloudpickle.dumps(batch))
    assert tuple(batch) == SAMPLES


def test_is_not_looked_into_where_it_is_only_passed_on() -> None:
    arrived = pickle.loads(pickle.dumps(SampleBatch(SAMPLES)))
    passed_on = pickle.dumps(arrived)
    assert len(arrived) == 3
    assert arrived._samples is None
    assert tuple(pickle.loads(passed_on)) == SAMPLES


def test_samples_of_one_prompt_share_it_after_the_way() -> None:
    arrived = pickle.loads(pickle.dumps(SampleBatch(SAMPLES)))
    assert arrived[0].prompt is arrived[2].prompt


def test_answers_as_its_tuple_does() -> None:
    batch = SampleBatch(SAMPLES)
    assert batch == SAMPLES
    assert SAMPLES == batch  # noqa: SIM300 (the other way round is another method)
    assert batch != SAMPLES[:2]
    assert batch == SampleBatch(SAMPLES)
    assert (batch[1], batch[-1], batch[1:]) == (SAMPLES[1], SAMPLES[2], SAMPLES[1:])
    assert list(reversed(batch)) == list(reversed(SAMPLES))
    assert batch + SAMPLES == SAMPLES + batch == SAMPLES * 2
    assert batch != 3


def test_an_empty_batch_travels_too() -> None:
    arrived = pickle.loads(pickle.dumps(SampleBatch(())))
    assert tuple(arrived) == ()


def test_values_of_a_class_made_in_a_script_travel() -> None:
    made = type("Answer", (str,), {"__module__": "__main__"})
    batch = SampleBatch((Sample(Prompt(0, "a", made("b")), 0, ()),))
    assert pickle.loads(pickle.dumps(batch))[0].prompt.answer == "b"


def test_only_tuples_of_samples_become_a_batch() -> None:
    assert isinstance(as_batch(SAMPLES), SampleBatch)
    for value in ((), ((1.0,),), [SAMPLES[0]], {"a": 1.0}, None):
        assert as_batch(value) is value


def test_its_size_is_that_of_what_it_holds() -> None:
    assert SampleBatch(SAMPLES * 100).__sizeof__() > SampleBatch(SAMPLES).__sizeof__() + 1000
