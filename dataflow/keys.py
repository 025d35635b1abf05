"""Names that depend on nothing but the job: keys of Dask nodes, and keys of random draws.

Node keys are readable and unique per job, iteration, attempt and turn. Their first word is
the phase and the second is never alphabetic, so that Dask's `key_split` groups tasks of all
jobs by phase on the dashboard. Draw keys make every random number a function of its place in
the run, never of scheduling order, batch layout or time.
"""

from __future__ import annotations

from hashlib import blake2b
from uuid import uuid4

from dataflow.phases import Phase

_PERSON_DRAW = b"plexrl.draw"
_PERSON_STREAM = b"plexrl.stream"


def node_key(
    phase: Phase | str,
    *,
    job: str,
    iteration: int,
    attempt: int = 0,
    turn: int = 0,
    model: str = "",
    run: str = "",
) -> str:
    """Key of one node of an iteration's graph.

    Parameters
    ----------
    phase
        First word of the key; Dask groups tasks by it.
    job, iteration, attempt, turn, model
        What the node belongs to; equal arguments give equal keys.
    run
        Tells apart two runs of one job name in one scheduler; empty if names never recur.

    Returns
    -------
    str
        For example ``rollout-i00003.a0.t1.letters.actor``.
    """
    tail = ".".join(part for part in (job, model, run) if part)
    return f"{phase}-i{iteration:05d}.a{attempt}.t{turn}.{tail}"


def unique_key(phase: Phase | str) -> str:
    """Key of an ordinary node that belongs to no known iteration; never the same twice."""
    return f"{phase}-{uuid4().hex}"


def draw_key(seed: int, iteration: int, prompt_index: int, sample_index: int, turn: int) -> int:
    """Key of the draws of one turn of one sample.

    Parameters
    ----------
    seed
        Seed of the call (`dataflow.calls.LLMCall.seed`).
    iteration, prompt_index, sample_index, turn
        Place of the sample in the run; the turn is `dataflow.samples.Sample.turn`.

    Returns
    -------
    int
        128 bits for ``numpy.random.Philox(key=…)`` (Salmon et al., SC 2011); token *i* of the
        turn takes the *i*-th draw of that stream.
    """
    place = b"%d/%d/%d/%d/%d" % (seed, iteration, prompt_index, sample_index, turn)
    return int.from_bytes(blake2b(place, digest_size=16, person=_PERSON_DRAW).digest(), "big")


def stream_seed(seed: int, name: str) -> int:
    """Seed of an independent stream of draws of one job.

    Parameters
    ----------
    seed
        Seed of the job.
    name
        Name of the stream, for example the op ``actor.rollout.1``.

    Returns
    -------
    int
        63 bits, so that it fits a signed 64-bit integer.
    """
    place = b"%d/%b" % (seed, name.encode())
    digest = blake2b(place, digest_size=8, person=_PERSON_STREAM).digest()
    return int.from_bytes(digest, "big") >> 1
