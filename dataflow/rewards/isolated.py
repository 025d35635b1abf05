"""Rewards in a process that can be killed: nothing a policy writes may stop a job.

Requests and answers alternate on the pipes of the process, so that it is always known which
sample hangs. The parent waits with a selector rather than a signal: it works in any thread.
"""

from __future__ import annotations

import json
import os
import selectors
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from dataflow.environments.python_process import ProcessLimits
from dataflow.errors import RewardError
from dataflow.rewards.protocol import Verifier
from dataflow.samples import Rewards, Sample

_SERVER = r"""
import json, os, pickle, resource, struct, sys
memory = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path[:0] = json.loads(sys.argv[2])
source, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)
def read():
    head = source.read(8)
    return pickle.loads(source.read(struct.unpack("<Q", head)[0])) if len(head) == 8 else None
verifier = read()
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
out.write(b'{"ready": true}\n')
while (sample := read()) is not None:
    try:
        answer = {"value": float(verifier(sample))}
    except BaseException as error:
        answer = {"error": type(error).__name__ + ": " + str(error)}
    out.write(json.dumps(answer).encode() + b"\n")
"""

_START_TIMEOUT_S = 120.0
_READ_BYTES = 65536


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
        values: list[float] = []
        reasons: list[str] = []
        while len(values) < len(samples):
            with _Process(self.verifier, self.limits) as process:
                while process.is_alive and len(values) < len(samples):
                    value, reason = self._one(process, samples[len(values)])
                    values.append(value)
                    reasons.append(reason)
        num_failed = float(sum(1 for reason in reasons if reason))
        return Rewards(tuple(values), tuple(reasons), metrics=(("failed_rewards", num_failed),))

    def _one(self, process: _Process, sample: Sample) -> tuple[float, str]:
        """Reward of one sample, and why it failed if it did."""
        answer = process.ask(sample)
        if answer is None:
            return self.failed_reward, process.death
        if "value" in answer:
            return float(answer["value"]), ""
        if not self.is_forgiving:
            raise RewardError(
                f"the verifier raised {answer['error']} on prompt {sample.prompt.index} "
                f"{sample.prompt.text!r}, completion {sample.text!r}; repair it, or let such "
                "samples fail with IsolatedReward(…, is_forgiving=True)"
            )
        return self.failed_reward, f"the verifier raised {answer['error']}"


class _Process:
    """One child process; a context manager that leaves nothing running."""

    def __init__(self, verifier: Verifier, limits: ProcessLimits) -> None:
        self._limits = limits
        self._buffer = b""
        self.death = ""
        command = [sys.executable, "-c", _SERVER, str(limits.memory_bytes), json.dumps(sys.path)]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._send(cloudpickle.dumps(verifier))
        if self._answer(_START_TIMEOUT_S) is None:
            self.close()
            raise RewardError(
                f"the process of the verifier did not get ready: {self.death}; check that what it "
                "imports is installed on the worker"
            )

    @property
    def is_alive(self) -> bool:
        """Whether it can take another sample."""
        return self._child.poll() is None

    def ask(self, sample: Sample) -> dict[str, Any] | None:
        """What the verifier says; None if the process is dead now, `death` says of what."""
        try:
            self._send(cloudpickle.dumps(sample))
        except BrokenPipeError:
            self._end(f"the process died with exit status {self._child.wait()}")
            return None
        return self._answer(self._limits.wall_s)

    def close(self) -> None:
        """Kill the process and wait for it."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, payload: bytes) -> None:
        pipe = self._child.stdin
        assert pipe is not None
        pipe.write(struct.pack("<Q", len(payload)) + payload)
        pipe.flush()

    def _end(self, reason: str) -> None:
        self.death = reason
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()

    def _answer(self, timeout_s: float) -> dict[str, Any] | None:
        """Next answer, or None at the time limit or the end of the process."""
        pipe = self._child.stdout
        assert pipe is not None
        deadline_s = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not selector.select(left_s):
                    self._end(f"killed after {timeout_s:g} s")
                    return None
                read = os.read(pipe.fileno(), _READ_BYTES)
                if not read:
                    self._end(f"the process died with exit status {self._child.wait()}")
                    return None
                self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer
