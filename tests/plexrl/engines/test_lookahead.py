"""A rollout that was begun before it was asked for is the one that is asked for, bit for bit."""

import socket
from dataclasses import replace

import pytest

from dataflow.calls import TrainOptions
from plexrl.engines.forward import first_forward
from plexrl.engines.frames import (
    Begin,
    BreakName,
    Cancel,
    Generation,
    GiveUp,
    Request,
    Stop,
    dumps,
    framed,
)
from plexrl.engines.inbox import Inbox
from plexrl.engines.lookahead import LookAhead
from plexrl.engines.protocol import Break, DrawKey, Interrupted, ModelSource
from plexrl.engines.remote import EngineProcess
from plexrl.engines.torch_engine import TorchEngine
from plexrl.errors import EngineStoppedError
from tests.plexrl.engines.conformance import KEY, OPTIONS, PROMPTS, Rig

TRAIN = TrainOptions(learning_rate=1e-3)
FORWARD = first_forward(TRAIN)
AHEAD = Generation("ahead", PROMPTS, OPTIONS, KEY)
ASKED = Request("generate_until", (BreakName("f", "ahead"), PROMPTS, OPTIONS, KEY))
DETACH = Request("detach", ("arena",))


@pytest.fixture(scope="module")
def rig(base_folder, other_folder):
    engine = TorchEngine(ModelSource(base_folder), "cpu")
    return Rig(engine, base_folder, other_folder, lambda arena: arena.view)


class Desk:
    """A look-ahead, and the parent's end of its socket."""

    def __init__(self, engine):
        self.sock, child = socket.socketpair()
        self.inbox = Inbox(child, lambda _frame: None)
        self.ahead = LookAhead(engine, self.inbox)
        self.num_requests = 0
        self.inbox.on_request = self.count

    def count(self):
        self.num_requests += 1

    def send(self, *frames):
        for frame in frames:
            self.sock.sendall(framed(dumps(frame)))

    def taken(self):
        return self.ahead.take(self.inbox.receive())


@pytest.fixture
def desk(rig):
    rig.reset()
    return Desk(rig.engine)


@pytest.fixture
def expected(rig):
    rig.reset()
    return rig.engine.generate(PROMPTS, OPTIONS, KEY)


@pytest.mark.parametrize("is_asked_meanwhile", [False, True])
def test_what_was_drawn_ahead_is_what_is_asked_for(desk, expected, is_asked_meanwhile):
    if is_asked_meanwhile:
        desk.send(ASKED)
    desk.ahead.compute(AHEAD)
    assert desk.num_requests == is_asked_meanwhile
    if not is_asked_meanwhile:
        desk.send(ASKED)
    assert desk.taken() == expected
    assert desk.ahead.drawn_s > 0.0


def test_another_request_gives_up_what_was_drawn_ahead(desk):
    desk.ahead.compute(AHEAD)
    desk.send(Request("memory_bytes", ()), ASKED)
    assert [desk.taken(), desk.taken()] == [None, None]
    assert desk.ahead.drawn_s == 0.0


@pytest.mark.parametrize(
    "frame",
    [
        Request("memory_bytes", ()),
        Request("generate_until", (BreakName("f", "another"), PROMPTS, OPTIONS, KEY)),
        Request("generate_until", (BreakName("ahead"), PROMPTS, OPTIONS, KEY)),
        GiveUp(),
    ],
)
def test_whatever_else_comes_ends_drawing_ahead_at_its_first_token(rig, desk, frame, monkeypatch):
    asked = []
    generate_until = rig.engine.generate_until

    def counted(stop, *args):
        return generate_until(
            replace(stop, is_asked=lambda: asked.append(1) or stop.is_asked()), *args
        )

    monkeypatch.setattr(rig.engine, "generate_until", counted)
    desk.send(frame)
    desk.ahead.compute(AHEAD)
    desk.send(ASKED)
    assert len(asked) == 1
    assert rig.engine._draw.kept_bytes == 0
    assert desk.inbox.receive() == frame
    assert desk.taken() is None


def test_drawing_goes_on_after_a_request_that_changes_nothing(rig, desk, expected):
    desk.send(DETACH)
    desk.ahead.compute(AHEAD)
    assert rig.engine._draw.kept_bytes > 0
    assert desk.inbox.receive() == DETACH
    desk.send(ASKED)
    assert desk.taken() == expected
    assert rig.engine._draw.kept_bytes == 0


def test_what_is_kept_of_an_unfinished_rollout_is_freed_with_it(rig, desk):
    for after in (Request("memory_bytes", ()), None):
        desk.send(DETACH)
        desk.ahead.compute(AHEAD)
        assert desk.inbox.receive() == DETACH
        if after is None:
            desk.ahead.give_up()
        else:
            desk.send(after)
            assert desk.taken() is None
        assert rig.engine._draw.kept_bytes == 0


def test_a_rollout_that_was_begun_ahead_yields_when_it_is_asked_to(rig, desk, expected):
    desk.send(ASKED, Stop("f"))
    desk.ahead.compute(AHEAD)
    found = desk.taken()
    assert isinstance(found, Interrupted)
    assert rig.engine.generate_until(_never(found.name), found, OPTIONS, KEY) == expected


def test_one_that_stopped_for_a_request_between_yields_too(rig, desk, expected):
    desk.send(DETACH)
    desk.ahead.compute(AHEAD)
    desk.inbox.receive()
    desk.send(Stop("f"), ASKED)
    found = desk.taken()
    assert isinstance(found, Interrupted)
    assert rig.engine.generate_until(_never("f"), found, OPTIONS, KEY) == expected


def test_samples_that_are_cancelled_meanwhile_end(desk, expected):
    victim = expected[0].id
    desk.send(ASKED, Cancel("f", frozenset({victim})))
    desk.ahead.compute(AHEAD)
    found = {sample.id: sample for sample in desk.taken()}
    assert str(found.pop(victim).end) == "cancelled"
    assert found == {sample.id: sample for sample in expected if sample.id != victim}


@pytest.mark.parametrize(
    ("frame", "is_kept"),
    [
        (GiveUp(), False),
        (Begin(FORWARD), False),
        (Request("memory_bytes", ()), False),
        (DETACH, True),
    ],
)
def test_a_forward_pass_of_training_is_given_up_for_whatever_else_comes(rig, desk, frame, is_kept):
    desk.ahead.samples = rig.batch().samples
    desk.send(frame)
    desk.ahead.compute(FORWARD)
    assert (rig.engine._trainer.foresight._kept is not None) == is_kept
    desk.ahead.give_up()
    assert rig.engine._trainer.foresight._kept is None


def test_an_unasked_rollout_is_not_drawn_for_ever(desk, monkeypatch):
    monkeypatch.setattr("plexrl.engines.lookahead.UNASKED_S", 0.0)
    desk.ahead.compute(AHEAD)
    desk.send(ASKED)
    assert desk.taken() is None


def test_an_error_ahead_is_nobodys(desk):
    desk.ahead.compute(replace(AHEAD, options=replace(OPTIONS, num_samples=0)))
    desk.send(ASKED)
    assert desk.taken() is None


def _never(name):
    return Break(name, lambda: False)


@pytest.fixture(scope="module")
def remote(base_folder, other_folder):
    with EngineProcess(ModelSource(base_folder)) as engine:
        yield Rig(engine, base_folder, other_folder, lambda arena: arena)


def drawn(remote, name="f"):
    return remote.engine.generate_foreseen(name, "ahead", PROMPTS, OPTIONS, KEY)


@pytest.mark.slow
def test_a_child_goes_on_from_what_it_was_asked_for(remote):
    arena, batch = remote.new_arena(), remote.batch()
    assert remote.engine.train_and_store(batch, TRAIN, "t", arena).ahead_s == 0.0
    expected = remote.engine.generate(PROMPTS, OPTIONS, KEY)
    remote.reset()
    assert remote.engine.generate_until("r", PROMPTS, OPTIONS, KEY, FORWARD) == batch.samples
    trained = remote.engine.train_and_store(batch, TRAIN, "t", arena, AHEAD)
    assert trained.ahead_s > 0.0
    found = drawn(remote)
    assert found.found == expected
    assert found.ahead_s > 0.0
    # Once only.
    again = drawn(remote)
    assert (again.found, again.ahead_s) == (expected, 0.0)


@pytest.mark.slow
def test_a_child_that_gave_up_or_is_asked_for_something_else_draws_anew(remote):
    arena, batch = remote.new_arena(), remote.batch()
    other = DrawKey(9, 9)
    remote.engine.train(batch, TRAIN)
    expected = [remote.engine.generate(PROMPTS, OPTIONS, key) for key in (KEY, other)]
    remote.reset()
    remote.engine.train_and_store(batch, TRAIN, "t", arena, AHEAD)
    remote.engine.tell(GiveUp())
    found = drawn(remote)
    assert (found.found, found.ahead_s) == (expected[0], 0.0)
    remote.reset()
    remote.engine.train_and_store(batch, TRAIN, "t", arena, AHEAD)
    assert remote.engine.generate(PROMPTS, OPTIONS, other) == expected[1]
    assert drawn(remote).ahead_s == 0.0


@pytest.mark.slow
def test_a_child_does_not_go_on_from_what_failed(remote):
    batch = remote.batch()
    remote.engine.stop("t")
    with pytest.raises(EngineStoppedError):
        remote.engine.train_and_store(batch, TRAIN, "t", remote.new_arena(), AHEAD)
    assert drawn(remote).ahead_s == 0.0


@pytest.mark.slow
def test_a_child_with_other_weights_draws_anew(remote):
    remote.reset(remote.other_folder)
    expected = remote.engine.generate(PROMPTS, OPTIONS, KEY)
    remote.engine.train_and_store(remote.batch(), TRAIN, "u", remote.new_arena(), AHEAD)
    remote.reset(remote.other_folder)
    found = drawn(remote)
    assert (found.found, found.ahead_s) == (expected, 0.0)
