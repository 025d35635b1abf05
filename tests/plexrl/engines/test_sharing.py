"""Requests dealt out to ranks, and results put together again."""

import pytest

from dataflow.samples import Prompt, Sample
from plexrl.engines.frames import Request
from plexrl.engines.minibatch import share_of
from plexrl.engines.protocol import Interrupted
from plexrl.engines.ranks import Ranks
from plexrl.engines.scoring import Row
from plexrl.engines.sharing import deal, put_together

PROMPTS = tuple(Prompt(index, f"x{index}=") for index in (7, 3, 9))


def drawn(prompts, num_samples):
    return tuple(Sample(prompt, index, (1,)) for prompt in prompts for index in range(num_samples))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_samples_of_prompts_come_back_in_their_order(count):
    request = Request("generate", (PROMPTS, "options", "key"))
    parts = deal(request, count)
    assert all(part.args[1:] == ("options", "key") for part in parts)
    results = [drawn(part.args[0], 2) for part in parts]
    assert put_together(request, results) == drawn(PROMPTS, 2)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_an_interrupted_generation_is_dealt_to_the_ranks_that_keep_it(count):
    samples = drawn(PROMPTS, 2)
    found = Interrupted("name", samples, (1, 2, 5))
    begun = deal(Request("generate_until", ("break", PROMPTS, "o", "k")), count)
    request = Request("generate_until", ("break", found, "o", "k"))
    parts = [part.args[1] for part in deal(request, count)]
    for first, later in zip(begun, parts, strict=True):
        assert {s.prompt.index for s in later.samples} == {p.index for p in first.args[1]}
    unfinished = [part.samples[row] for part in parts for row in part.rows]
    assert sorted((s.prompt.index, s.sample_index) for s in unfinished) == [(3, 0), (7, 1), (9, 1)]
    assert put_together(request, parts) == found


def test_one_rank_that_is_interrupted_interrupts_the_whole():
    request = Request("generate_until", ("break", PROMPTS, "o", "k"))
    parts = [drawn(part.args[1], 2) for part in deal(request, 2)]
    whole = put_together(request, [parts[0], Interrupted("name", parts[1], (1,))])
    assert whole == Interrupted("name", drawn(PROMPTS, 2), (3,))


def test_numbers_of_samples_come_back_in_their_order():
    samples = drawn(PROMPTS, 2)
    request = Request("logprobs", (samples, "options"))
    results = [tuple(s.prompt.index for s in part.args[0]) for part in deal(request, 2)]
    assert put_together(request, results) == tuple(s.prompt.index for s in samples)


def test_nothing_to_do_gives_nothing():
    request = Request("logprobs", ((), "options"))
    assert put_together(request, [(), ()]) == ()
    request = Request("generate", ((), "options", "key"))
    assert put_together(request, [(), ()]) == ()


def test_memory_adds_up_and_other_results_are_those_of_the_first():
    assert put_together(Request("memory_bytes", ()), [3, 4]) == 7
    assert put_together(Request("train", ("batch",)), ["first", "second"]) == "first"


def test_every_rank_computes_as_many_rows_of_each_length():
    lengths = [5, 9, 5, 5, 13, 9]
    rows = [Row(tuple(range(length)), 2) for length in lengths]
    shares = [share_of(rows, Ranks(index, 4)) for index in range(4)]
    assert sorted(row for share in shares for row in share.members) == list(range(6))
    forms = [
        sorted(row.padded_length for row in (*(rows[m] for m in s.members), *s.fillers))
        for s in shares
    ]
    assert all(form == forms[0] for form in forms)
