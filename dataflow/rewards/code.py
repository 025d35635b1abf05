"""Python programs as answers, run against tests in a process that can be killed."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field

from dataflow.processes import ProcessLimits, kill_group
from dataflow.rewards.answers import gold_of
from dataflow.samples import Rewards, Sample

_FENCED = re.compile(r"```(?:python|py)?\n(.*?)```", re.DOTALL)
_LIMITED = r"""
import fcntl, resource, signal, sys, termios
memory, cpu = int(sys.argv[1]), int(sys.argv[2])
signal.alarm(int(sys.argv[4]))
try:
    with open("/dev/tty") as terminal:
        fcntl.ioctl(terminal, termios.TIOCNOTTY)
except OSError:
    pass  # there is none
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
try:
    exec(compile(sys.stdin.read(), "<answer>", "exec"), {"__name__": "__main__"})
except Exception as error:
    print("\n%s: %.150s" % (type(error).__name__, str(error).replace("\n", " ")))
    sys.exit(1)
print(sys.argv[3])
"""
_TAIL_BYTES = 1024
"""The word or what was raised, and what may follow it."""
_MAX_REASON = 200
"""Characters."""


@dataclass(frozen=True, slots=True)
class CodeTests:
    """1 where a program and its tests run to their end, else 0.

    The program is the last fenced block of the completion, or all of it; the gold answer of the
    prompt is the test code that runs after it, e.g. assertions. The process has no environment
    variables, an empty folder of its own, and limits of time, memory and file size. It is no
    security boundary: a program may still open sockets and read what this user may read.
    """

    limits: ProcessLimits = field(
        default_factory=lambda: ProcessLimits(wall_s=5.0, cpu_s=5, memory_bytes=512 << 20)
    )
    """What one program may use."""

    def __call__(self, sample: Sample) -> float:
        """Reward of one sample."""
        return float(not self._failure(sample))

    def judge(self, samples: Sequence[Sample], iteration: int) -> Rewards:
        """Rewards of the samples, with the reason why a program did not pass."""
        del iteration
        reasons = tuple(self._failure(sample) for sample in samples)
        return Rewards(tuple(float(not reason) for reason in reasons), reasons)

    def _failure(self, sample: Sample) -> str:
        """Why a program did not pass its tests; empty where it did."""
        blocks = _FENCED.findall(sample.text)
        program = blocks[-1] if blocks else sample.text
        # Known to this run only: an answer that exits early cannot claim to have passed.
        word = os.urandom(16).hex()
        limits = self.limits
        command = [sys.executable, "-S", "-I", "-c", _LIMITED]
        # The kernel ends it should this process be gone.
        left_alone_s = str(math.ceil(limits.wall_s) + 1)
        # A file, not a pipe: its size has a limit, and nobody waits for what holds it open.
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as out:
            with subprocess.Popen(
                [*command, str(limits.memory_bytes), str(limits.cpu_s), word, left_alone_s],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={},
                process_group=0,
            ) as child:
                try:
                    child.communicate(f"{program}\n{gold_of(sample)}\n".encode(), limits.wall_s)
                except subprocess.TimeoutExpired:
                    return f"killed after {limits.wall_s:g} s"
                finally:
                    kill_group(child)
            out.seek(max(0, os.fstat(out.fileno()).st_size - _TAIL_BYTES))
            told = out.read().decode(errors="replace").rstrip()
        if child.returncode == 0:
            return "" if told.endswith(word) else "it ended before its tests did"
        if child.returncode < 0:
            return f"killed by signal {-child.returncode}"
        raised = told.rpartition("\n")[2][:_MAX_REASON].removesuffix(":")
        return raised or f"exit status {child.returncode}"
