"""Verifiers of text and code, isolated processes, penalties and TRL's reward functions."""

import importlib.util
import os
import pty
import subprocess
import sys
import threading
import time

import pytest

from dataflow.datasets import ReasoningGymPrompts
from dataflow.environments import ProcessLimits
from dataflow.errors import DataError, MissingExtraError, RewardError
from dataflow.extras import load_extra
from dataflow.rewards import (
    CodeTests,
    ExactAnswer,
    IsolatedReward,
    JsonSchemaReward,
    MathReward,
    OverlongPenalty,
    ReasoningGymReward,
    RegexReward,
    TrlReward,
    score,
)
from dataflow.samples import EndReason, Sample


def needs(library):
    absent = importlib.util.find_spec(library) is None
    return pytest.mark.skipif(absent, reason=f"{library} is not installed (plexrl[tasks])")


def test_a_missing_library_is_named_with_the_command_that_installs_it():
    with pytest.raises(MissingExtraError, match=r"pip install 'plexrl\[tasks\]'"):
        load_extra("no_such_library", "tasks", "a puzzle")


def test_a_pattern_may_name_the_answer(make_sample):
    reward = RegexReward(r"<answer>(?P<answer>.*?)</answer>")
    right = make_sample("so <answer>3</answer> no, <answer> 4 </answer>", answer="4")
    assert score(reward, [right, make_sample("4", answer="4")]).values == (1.0, 0.0)
    assert RegexReward(r"^\d+$")(make_sample("12")) == 1.0
    assert reward(make_sample("<answer>4</answer>", answer=" 4 ")) == 1.0
    for pattern in ("(", None):
        with pytest.raises(DataError, match="no regular expression"):
            RegexReward(pattern)


def test_a_schema_tells_valid_json_from_json_from_text(make_sample):
    reward = JsonSchemaReward({"type": "object", "required": ["x"]})
    assert [reward(make_sample(text)) for text in ('{"x": 1}', "{}", "{x")] == [1.0, 0.5, 0.0]
    # What a policy writes ends no job: Python reads neither of these.
    assert [reward(make_sample(text)) for text in ("[" * 10**5, "1" * 10**5)] == [0.0, 0.0]
    with pytest.raises(DataError, match=r"is no JSON schema .*'objekt'"):
        JsonSchemaReward({"type": "objekt"})


@needs("math_verify")
def test_mathematics_is_compared_by_value_in_any_thread(make_sample):
    samples = [
        make_sample(text, answer="1/2") for text in (r"so $\frac{1}{2}$", "$0.5$", "$2$", "$${{")
    ]
    found = []
    thread = threading.Thread(target=lambda: found.append(score(MathReward(), samples).values))
    thread.start()
    thread.join()
    assert found == [(1.0, 1.0, 0.0, 0.0)]


@needs("reasoning_gym")
def test_puzzles_are_a_function_of_seed_and_cursor_and_know_their_scorer():
    source = ReasoningGymPrompts("chain_sum", seed=3, config={"max_terms": 2, "max_digits": 1})
    prompts = source.batch(4, 3)
    assert prompts == (*source.batch(4, 1), *source.batch(5, 2))
    assert prompts != ReasoningGymPrompts("chain_sum", seed=4).batch(4, 3)
    samples = [Sample(prompts[0], 0, (), text=text) for text in (prompts[0].answer, "x")]
    assert score(ReasoningGymReward(), samples).values[0] == 1.0
    assert score(ReasoningGymReward(), samples).values[1] < 1.0
    with pytest.raises(DataError, match="cannot make 'no_such'"):
        ReasoningGymPrompts("no_such")


@needs("reasoning_gym")
def test_the_known_quirks_of_puzzles_are_handled():
    prompt = ReasoningGymPrompts("prime_factorization").batch(0, 1)[0]
    assert ReasoningGymReward()(Sample(prompt, 0, (), text="garbage × 1")) == 0.0
    prompt = ReasoningGymPrompts("number_sorting").batch(0, 1)[0]
    assert ReasoningGymReward(is_exact=True)(Sample(prompt, 0, (), text=prompt.answer)) == 1.0
    assert ReasoningGymReward(is_exact=True)(Sample(prompt, 0, (), text="['1']")) == 0.0
    prompt = ReasoningGymPrompts("propositional_logic").batch(0, 1)[0]
    assert prompt.answer == ""
    assert 0.0 <= ReasoningGymReward()(Sample(prompt, 0, (), text="P")) <= 1.0
    with pytest.raises(DataError, match="has no gold answer"):
        ReasoningGymReward(is_exact=True)(Sample(prompt, 0, (), text="P"))


@pytest.mark.slow
def test_a_program_passes_where_its_tests_run_to_the_end(make_sample):
    test = "assert double(4) == 8"
    programs = [
        "Here:\n```python\ndef double(x):\n    return 2 * x\n```",
        "def double(x):\n    return x",
        "import sys; sys.exit(0)",
        "while True: pass",
        "x = ' ' * 10**10",
        "while True: print('x' * 10**6)",
        # What it leaves running holds its output open, and is killed with it.
        "import os, time\nos.fork() or time.sleep(60)\ndef double(x): return 2 * x",
        "import os; os.close(1); raise ValueError",
    ]
    reward = CodeTests(ProcessLimits(wall_s=2.0, cpu_s=1))
    judged = score(reward, [make_sample(p, answer=test) for p in programs])
    assert judged.values == (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    told = list(judged.reasons)
    # Which limit a busy loop meets first is the machine's affair.
    assert told.pop(3) in {"killed after 2 s", "killed by signal 24", "killed by signal 9"}
    assert told[:4] == ["", "AssertionError", "it ended before its tests did", "MemoryError"]
    assert told[5] == ""
    assert told[6].startswith("exit status ")
    assert reward(make_sample(programs[0], answer=test)) == 1.0


_AT_A_TERMINAL = """
import fcntl, os, sys, termios
from dataflow.rewards import CodeTests
from dataflow.samples import Prompt, Sample
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
program = "open('/dev/tty').close()"
exec(program)
print(CodeTests()(Sample(Prompt(0, "", program), 0, (), text=program)))
"""


def test_a_program_does_not_reach_the_terminal_of_who_scores_it():
    ours, theirs = pty.openpty()
    with os.fdopen(ours), os.fdopen(theirs) as terminal:
        shown = subprocess.run(
            [sys.executable, "-c", _AT_A_TERMINAL],
            stdin=terminal,
            capture_output=True,
            text=True,
            check=True,
            start_new_session=True,
        )
    assert shown.stdout == "0.0\n"


def picky(sample):
    """A verifier that hangs, dies, raises or judges, as the completion asks."""
    if sample.text == "hang":
        time.sleep(60)
    if sample.text == "text":
        return "1.0"
    if sample.text == "die":
        raise SystemExit
    if sample.text == "raise":
        raise ValueError("odd")
    if sample.text == "eat":
        return float(len(" " * 10**11))
    if sample.text == "fork":
        os.fork()
    sys.stdout.write("noise on the standard output" * 10**5)
    return float(len(sample.text))


@pytest.mark.slow
def test_a_sample_that_hangs_or_eats_its_verifier_fails_alone(make_sample):
    limits = ProcessLimits(wall_s=1.0, memory_bytes=2 << 30)
    reward = IsolatedReward(picky, limits, failed_reward=-1.0)
    samples = [make_sample(t) for t in ("four", "hang", "fork", "eat", "twelve")]
    rewards = score(reward, samples)
    assert rewards.values == (4.0, -1.0, 4.0, -1.0, 6.0)
    assert rewards.reasons[1] == "killed after 1 s"
    assert "MemoryError" in rewards.reasons[3]
    assert dict(rewards.metrics)["failed_rewards"] == 2


@pytest.mark.slow
def test_a_verifier_that_raises_is_an_error_and_no_silent_zero(make_sample):
    with pytest.raises(RewardError, match="the verifier raised ValueError: odd"):
        score(IsolatedReward(picky), [make_sample("raise")])
    with pytest.raises(RewardError, match=r"it gave '1\.0', which is no number"):
        score(IsolatedReward(picky), [make_sample("text")])
    rewards = score(IsolatedReward(picky, is_forgiving=True), [make_sample("raise")])
    assert "ValueError: odd" in rewards.reasons[0]


def test_an_error_repeats_no_megabytes(make_sample):
    def long(sample):
        raise ValueError(sample.text * 10)

    with pytest.raises(RewardError) as caught:
        score(long, [make_sample("x" * 10**6, prompt="y" * 10**6)])
    assert len(str(caught.value)) < 3000


def test_length_costs_up_to_one_near_the_limit(make_sample):
    reward = OverlongPenalty(lambda _: 1.0, max_tokens=10, buffer_tokens=4)
    samples = [make_sample(policy_mask=(True,) * n) for n in (6, 8, 10)]
    rewards = score(reward, samples)
    assert rewards.values == pytest.approx((1.0, 0.5, 0.0))
    assert dict(rewards.metrics)["overlong_penalty"] == pytest.approx(0.5)
    with pytest.raises(DataError, match="over the last 11 of 10"):
        OverlongPenalty(ExactAnswer(), 10, 11)


def length_reward(completions, **kwargs):
    assert kwargs["prompts"][0] == "x31524="
    return [float(len(text)) for text in completions]


def answer_reward(prompts, completions, answer, **kwargs):
    assert len(prompts) == len(kwargs["completion_ids"])
    return [None if not a else float(c == a) for c, a in zip(completions, answer, strict=True)]


def test_reward_functions_of_trl_run_unchanged(make_sample):
    samples = [make_sample("ab", answer="ab"), make_sample("abc")]
    reward = TrlReward((length_reward, answer_reward), weights=(0.5, 2.0))
    rewards = score(reward, samples)
    assert rewards.values == (3.0, 1.5)
    metrics = dict(rewards.metrics)
    assert (metrics["reward/length_reward"], metrics["reward/answer_reward"]) == (2.5, 1.0)


def test_a_sample_that_no_function_judges_is_an_error(make_sample):
    with pytest.raises(RewardError, match="no reward function judged row 0"):
        score(TrlReward((lambda prompts, **_: [None] * len(prompts),)), [make_sample()])
    with pytest.raises(RewardError, match="gave 0 values for 1 samples"):
        score(TrlReward((lambda **_: [],)), [make_sample()])


def test_a_batch_tells_how_much_it_can_teach(make_sample):
    samples = [
        make_sample("a", index=0, policy_mask=(True, False), end=EndReason.LENGTH),
        make_sample("a", index=0, sample=1, policy_mask=(True, True)),
        make_sample("a", index=1, policy_mask=(True,)),
        make_sample("bb", index=1, sample=1, policy_mask=(True,)),
    ]
    metrics = dict(score(lambda s: float(len(s.text)), samples).metrics)
    assert metrics == {
        "reward_std": pytest.approx(0.4330127),
        "equal_groups": 0.5,
        "truncated": 0.25,
        "num_tokens_mean": 1.25,
    }
    samples.append(make_sample("bb", index=1, sample=2, end=EndReason.CANCELLED))
    assert dict(score(lambda _: 0.0, samples).metrics)["cancelled"] == 1.0
