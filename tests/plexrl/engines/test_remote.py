import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from dataflow.calls import TrainOptions
from plexrl.engines import child, process
from plexrl.engines.child_environment import child_environment
from plexrl.engines.frames import dumps, receive, send, send_beat
from plexrl.engines.protocol import Break, ModelSource
from plexrl.engines.remote import EngineProcess
from plexrl.engines.torch_engine import TorchEngine
from plexrl.errors import EngineDiedError, EngineError, EngineStoppedError, ModelFolderError
from tests.plexrl.engines.conformance import *  # noqa: F403
from tests.plexrl.engines.conformance import KEY, OPTIONS, PROMPTS, RemoteRig

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nursery(base_folder):
    """Engine processes for tests to end, which start side by side while others are used."""
    source = ModelSource(base_folder)
    # Long enough for the call that ends a start, whatever else runs.
    kinds = {"plain": {}, "hasty": {"call_timeout_s": 1.0}, "strict": {"heartbeat_timeout_s": 1.0}}
    with ThreadPoolExecutor(2) as pool, ExitStack() as ending:
        started = {
            kind: [pool.submit(EngineProcess, source, **options) for _ in range(count)]
            for (kind, options), count in zip(kinds.items(), (3, 1, 1), strict=True)
        }
        for engine in chain.from_iterable(started.values()):
            ending.callback(lambda engine=engine: engine.result().close())
        yield started


@pytest.fixture(scope="module")
def rig(base_folder, other_folder, nursery):
    del nursery  # It starts first, to be ready when it is needed.
    with EngineProcess(ModelSource(base_folder)) as engine:
        yield RemoteRig(engine, base_folder, other_folder, lambda arena: arena)


@pytest.fixture
def doomed(nursery):
    """An engine process that the test may end."""
    return nursery["plain"].pop().result()


def ends(pid_fd):
    """Wait until a process has ended; False after 30 s."""
    try:
        return bool(select.select([pid_fd], [], [], 30.0)[0])
    finally:
        os.close(pid_fd)


def test_results_are_those_of_an_engine_in_this_process(rig):
    local = TorchEngine(ModelSource(rig.folder), "cpu")
    rig.reset()
    assert rig.engine.generate(PROMPTS, OPTIONS, KEY) == local.generate(PROMPTS, OPTIONS, KEY)
    assert rig.engine.weights_sha256() == local.weights_sha256()


def test_another_engine_goes_on_with_what_a_dead_one_began(rig):
    local = TorchEngine(ModelSource(rig.folder), "cpu")
    rig.reset()
    found = rig.draw_a_token("lost", PROMPTS)
    assert found.rows
    whole = local.generate(PROMPTS, OPTIONS, KEY)
    assert local.generate_until(Break("here", lambda: False), found, OPTIONS, KEY) == whole
    rig.engine.discard("lost")


def test_a_stop_that_comes_too_late_means_nothing(rig):
    rig.reset()
    whole = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    rig.engine.stop("over")
    assert rig.engine.generate_until("next", PROMPTS, OPTIONS, KEY) == whole
    assert rig.engine.generate(PROMPTS, OPTIONS, KEY) == whole


def test_what_is_drawn_is_told_meanwhile_and_ends_once_it_is_cancelled(rig):
    rig.reset()
    # Seconds of work on any machine: an engine tells what it draws once a second.
    options = replace(OPTIONS, num_samples=512, max_new_tokens=450)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(rig.engine.generate_until, "long", PROMPTS[:1], options, KEY)
        while not (drawn := rig.engine.unfinished()):
            assert not found.done()
            time.sleep(0.01)
        rig.engine.cancel("long", frozenset(each.sample for each in drawn))
        samples = found.result(60.0)
    cancelled = {sample.id: len(sample.token_ids) for sample in samples if sample.is_cancelled}
    assert cancelled
    told = {each.sample: each.num_tokens for each in drawn}
    assert all(told[sample] <= num_tokens for sample, num_tokens in cancelled.items())
    assert rig.engine.unfinished() == ()


def test_the_engine_runs_elsewhere_with_one_thread(rig):
    assert rig.engine.pid != os.getpid()
    assert rig.engine.is_alive


def arenas_held(pid):
    """Descriptors and mappings of arenas in a process."""
    links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sum("arena" in link for link in links), sum("arena" in line for line in maps)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
def test_an_arena_is_mapped_once_and_leaves_the_engine_with_its_owner(rig):
    rig.reset()
    rig.engine.memory_bytes()
    before = arenas_held(rig.engine.pid)
    arenas = [rig.new_arena() for _ in range(3)]
    for arena in arenas * 2:
        rig.engine.store(arena)
    assert arenas_held(rig.engine.pid) == tuple(held + 3 for held in before)
    for arena in arenas:
        arena.close()
    rig.engine.memory_bytes()
    assert arenas_held(rig.engine.pid) == before


def test_an_unexpected_error_comes_with_the_childs_traceback(rig):
    with pytest.raises(EngineError, match=r"(?s)generate failed in engine process.*Traceback"):
        rig.engine.generate([object()], OPTIONS, KEY)
    assert rig.engine.is_alive


def test_a_missing_folder_is_the_users_error():
    with pytest.raises(ModelFolderError, match="nowhere"):
        EngineProcess(ModelSource("nowhere"))


def test_a_killed_engine_is_an_error_and_stays_one(doomed):
    os.kill(doomed.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"died during generate \(signal SIGKILL\)"):
        doomed.generate(PROMPTS, OPTIONS, KEY)
    assert not doomed.is_alive
    with pytest.raises(EngineError, match="died"):
        doomed.weights_sha256()


def test_a_stopped_engine_is_killed_at_the_time_limit(nursery):
    engine = nursery["hasty"].pop().result()
    os.kill(engine.pid, signal.SIGSTOP)
    with pytest.raises(EngineError, match=r"did not answer weights_sha256 within 1 s"):
        engine.weights_sha256()
    assert not engine.is_alive


def test_a_stopped_engine_is_killed_when_it_gives_no_sign_of_life(nursery):
    engine = nursery["strict"].pop().result()
    os.kill(engine.pid, signal.SIGSTOP)
    with pytest.raises(EngineDiedError, match=r"no sign of life for 1 s during weights_sha"):
        engine.weights_sha256()
    assert not engine.is_alive


def test_signs_of_life_are_no_replies_and_reset_the_patience():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_beat(theirs)
        send_beat(theirs)
        send(theirs, dumps("reply"))
        assert receive(ours, time.monotonic() + 60.0, 10.0) == "reply"
        with pytest.raises(TimeoutError):
            receive(ours, time.monotonic() + 60.0, 0.01)


def test_an_engine_beats_while_it_computes_and_only_then(monkeypatch):
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(process, "BEAT_S", 0.001)
    with ours, theirs:
        heart = process.Heart(theirs)
        heart.begin()
        ours.settimeout(10.0)
        assert ours.recv(8) == bytes(8)
        heart.reply(dumps("reply"))
        assert receive(ours, time.monotonic() + 60.0) == "reply"
        ours.settimeout(0.05)
        with pytest.raises(TimeoutError):
            ours.recv(1)


def test_a_child_that_does_not_come_up_is_killed_at_the_time_limit(base_folder):
    with pytest.raises(EngineError, match=r"did not answer start within 0.001 s"):
        EngineProcess(ModelSource(base_folder), start_timeout_s=0.001)


def test_a_child_that_cannot_start_shows_what_it_printed(base_folder, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch on this machine')\n")
    path = os.pathsep.join([str(tmp_path), child_environment()["PYTHONPATH"]])
    with pytest.raises(EngineError, match=r"(?s)start \(exit status 1\).*no torch on this machine"):
        EngineProcess(ModelSource(base_folder), env={"PYTHONPATH": path})


def test_closing_ends_the_child_and_later_calls_are_errors(doomed):
    pid_fd = os.pidfd_open(doomed.pid)
    doomed.close()
    doomed.close()
    assert ends(pid_fd)
    with pytest.raises(EngineError, match="closed"):
        doomed.weights_sha256()


def test_closing_from_another_thread_ends_a_call_that_hangs(doomed, monkeypatch):
    monkeypatch.setattr(child, "_EXIT_WAIT_S", 0.2)
    os.kill(doomed.pid, signal.SIGSTOP)
    failures = []

    def call():
        try:
            doomed.weights_sha256()
        except EngineError as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    doomed.close()
    thread.join(30.0)
    assert not thread.is_alive()
    assert len(failures) == 1


def test_ctrl_c_is_left_to_the_parent(rig):
    os.kill(rig.engine.pid, signal.SIGINT)
    rig.reset()
    assert len(rig.engine.weights_sha256()) == 64


def test_the_child_ends_with_its_parent(base_folder):
    script = textwrap.dedent(
        """
        import sys, time
        from plexrl.engines.protocol import ModelSource
        from plexrl.engines.remote import EngineProcess
        engine = EngineProcess(ModelSource(sys.argv[1]))
        print(engine.pid, flush=True)
        sys.stdin.read()
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, base_folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(),
    )
    with parent:
        pid_fd = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        assert ends(pid_fd)


def test_a_loss_that_only_this_test_knows_travels_to_the_child(rig):
    batch = rig.batch()
    scale = 0.0

    def loss(logprobs_BT, _old_BT, _advantages_B, mask_BT):
        return scale * (logprobs_BT * mask_BT).sum()

    assert rig.engine.train(batch, TrainOptions(loss=loss))["grad_norm"] == 0.0


def test_training_of_a_name_ends_when_that_name_is_stopped(rig):
    start, batch = rig.reset(), rig.batch()
    rig.engine.stop("early")
    with pytest.raises(EngineStoppedError, match="as they were"):
        rig.engine.train(batch, TrainOptions(), "early")
    assert rig.stored() == bytes(start.view)
    rig.engine.stop("early")
    assert rig.engine.train(batch, TrainOptions(), "another")["grad_norm"] > 0


def test_training_and_storing_in_one_exchange_gives_what_two_do(rig):
    rig.reset()
    batch, found = rig.batch(), rig.new_arena()
    metrics, expected = rig.engine.train(batch, TrainOptions()), rig.stored()
    rig.reset()
    together = rig.engine.train_and_store(batch, TrainOptions(), "both", found)
    assert (together.metrics, bytes(found.view)) == (metrics, expected)
    assert together.store_s > 0


def test_nothing_is_stored_of_training_that_was_stopped(rig):
    rig.reset()
    found = rig.new_arena()
    before = bytes(found.view)
    rig.engine.stop("both")
    with pytest.raises(EngineStoppedError):
        rig.engine.train_and_store(rig.batch(), TrainOptions(), "both", found)
    assert bytes(found.view) == before


def test_arenas_are_told_apart_by_id_not_by_size(rig):
    rig.reset()
    first, second = rig.new_arena(), rig.new_arena()
    rig.engine.store(first)
    rig.engine.read_folder(rig.other_folder, second)
    assert bytes(first.view) != bytes(second.view)
