"""Rewards in a process that can be killed: nothing a policy writes may stop a job."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import cloudpickle

from dataflow.errors import NotReadyError, RewardError
from dataflow.processes import AnsweringProcess, ProcessLimits, Silence, ask_all
from dataflow.rewards.protocol import Verifier
from dataflow.rewards.scoring import shown
from dataflow.samples import Rewards, Sample

_SERVER = r"""
import json, os, pickle, resource, select, struct, sys, threading
memory = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path[:0] = json.loads(sys.argv[2])
source, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)
def leave_with_parent():
    gone = select.poll()
    gone.register(0, 0)
    gone.poll()
    os._exit(0)
threading.Thread(target=leave_with_parent, daemon=True).start()
def read():
    head = source.read(8)
    return pickle.loads(source.read(struct.unpack("<Q", head)[0])) if len(head) == 8 else None
verifier, me = read(), os.getpid()
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
out.write(b'{"ready": true}\n')
while (sample := read()) is not None:
    try:
        value = verifier(sample)
        if isinstance(value, (str, bytes)):
            raise TypeError("it gave %.100r, which is no number" % (value,))
        answer = {"value": float(value)}
    except MemoryError:
        answer = {"at_limit": "MemoryError: it took more than %d bytes" % memory}
    except BaseException as error:
        answer = {"error": (type(error).__name__ + ": " + str(error))[:1000]}
    if os.getpid() != me:
        # A fork of the verifier that came back answers nobody.
        os._exit(0)
    out.write(json.dumps(answer).encode() + b"\n")
"""


@dataclass(frozen=True, slots=True)
class IsolatedReward:
    """A verifier in a child process with a time and a memory limit per sample.

    One process serves all samples of a batch. A sample that hangs or kills it gets
    `failed_reward` and a reason; the rest go on in a new process. The metric
    ``failed_rewards`` counts them. A verifier that *raises* is an error of the job unless
    `is_forgiving`: a fault of the verifier must not look like a wrong answer.
    """

    verifier: Verifier
    """Function of one sample; it travels to the process by cloudpickle."""
    limits: ProcessLimits = field(
        default_factory=lambda: ProcessLimits(wall_s=10.0, memory_bytes=4 << 30)
    )
    """Ten seconds are far above any honest answer; address space, not memory in use, is limited,
    and libraries such as torch reserve gigabytes of it."""
    failed_reward: float = 0.0
    is_forgiving: bool = False

    def judge(self, samples: Sequence[Sample], iteration: int) -> Rewards:
        """Rewards of the samples, with a reason for each that failed."""
        del iteration
        requests = [_frame(sample) for sample in samples]
        start = partial(_start, _frame(self.verifier), self.limits)
        try:
            # A verifier that raises ends this early; its process must not wait for the collector.
            with closing(ask_all(start, requests)) as answers:
                rewards = [self._one(*pair) for pair in zip(answers, samples, strict=True)]
        except NotReadyError as error:
            raise RewardError(
                f"the process of the verifier cannot be used: {error}; check that what it imports "
                "is installed on the worker"
            ) from error
        values, reasons = zip(*rewards, strict=True) if rewards else ((), ())
        num_failed = float(sum(1 for reason in reasons if reason))
        return Rewards(values, reasons, metrics=(("failed_rewards", num_failed),))

    def _one(self, line: bytes | Silence, sample: Sample) -> tuple[float, str]:
        """Reward of one sample, and why it failed if it did."""
        if isinstance(line, Silence):
            return self.failed_reward, line.reason
        answer = json.loads(line)
        if "value" in answer:
            return float(answer["value"]), ""
        if "at_limit" in answer:
            return self.failed_reward, answer["at_limit"]
        if not self.is_forgiving:
            raise RewardError(
                f"the verifier raised {answer['error']} on prompt {sample.prompt.index} "
                f"{shown(sample.prompt.text)}, completion {shown(sample.text)}; repair it, or let "
                "such samples fail with IsolatedReward(…, is_forgiving=True)"
            )
        return self.failed_reward, f"the verifier raised {answer['error']}"


def _start(verifier: bytes, limits: ProcessLimits) -> AnsweringProcess:
    command = [sys.executable, "-c", _SERVER, str(limits.memory_bytes), json.dumps(sys.path)]
    return AnsweringProcess(command, limits, greeting=verifier)


def _frame(value: object) -> bytes:
    payload: bytes = cloudpickle.dumps(value)
    return struct.pack("<Q", len(payload)) + payload
