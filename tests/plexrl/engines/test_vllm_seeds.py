"""Seeds of rows: a function of what seeded the row and of how many it was asked for."""

import torch

from plexrl.engines.vllm_seeds import RowSeeds


def generators(*seeds):
    return {row: torch.Generator().manual_seed(seed) for row, seed in enumerate(seeds)}


def asked(rows, times):
    seeds = RowSeeds()
    return [seeds(rows).tolist() for _ in range(times)]


def test_seeds_depend_on_no_other_row():
    together = asked(generators(5, 7, 2**63 + 1), 3)
    for row, seed in enumerate((5, 7, 2**63 + 1)):
        assert [found[row] for found in together] == [s for (s,) in asked(generators(seed), 3)]


def test_a_row_goes_on_where_it_was_whatever_its_place():
    seeds, (a, b) = RowSeeds(), generators(5, 7).values()
    begun = seeds({0: a, 1: b}).tolist()
    rest = seeds({1: a, 0: b}).tolist()
    expected = asked(generators(5, 7), 2)
    assert [begun, rest[::-1]] == expected


def test_a_generator_that_is_gone_leaves_nothing_behind():
    seeds = RowSeeds()
    seeds(generators(5))
    assert not seeds._asked
    assert seeds(generators(5)).tolist() == asked(generators(5), 1)[0]


def test_seeds_fill_their_range_and_differ():
    found = torch.tensor(asked(generators(*range(1000)), 20)).flatten()
    assert found.dtype == torch.int64
    assert found.min() >= 0
    assert found.max() < 2**31
    assert len(found.unique()) > 19_990
    assert abs(found.double().mean() / 2**30 - 1) < 0.02
    # Neighbours, whether seeds or tokens, have nothing in common.
    bits = found.reshape(20, 1000)
    for near in (bits[:, 1:] ^ bits[:, :-1], bits[1:] ^ bits[:-1]):
        ones = sum(((near >> bit) & 1).double().mean() for bit in range(31)) / 31
        assert abs(ones - 0.5) < 0.01
