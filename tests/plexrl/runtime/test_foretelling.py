"""Services hear of a rollout that waits for nothing but the training they are sent."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from dataflow.calls import GenerateOptions, LLMCall, TrainOptions, VersionToken
from dataflow.phases import Phase
from dataflow.samples import Prompt
from plexrl.runtime.foretelling import Foretelling
from plexrl.services.lookahead import Foretold

TRAIN = LLMCall("job", "actor", Phase.TRAIN, 0, 0, 0, 0, TrainOptions())
ROLLOUT = LLMCall("job", "actor", Phase.ROLLOUT, 1, 0, 1, 0, GenerateOptions())
PROMPTS = (Prompt(0, "a"), Prompt(1, "b"))
LOGPROB = replace(ROLLOUT, function=Phase.LOGPROB)
TOKEN = VersionToken("job", "actor", 1, "")
ALONE = {"rollout": (ROLLOUT, TOKEN, PROMPTS)}


@dataclass
class Scheduler:
    """What foretelling asks the scheduler side."""

    following: dict = field(default_factory=lambda: dict(ALONE))
    """Functions that depend on training → arguments of those that wait for nothing else."""
    group: str = "g"
    num_waiting: int = 0
    ahead: str = ""
    sent: list = field(default_factory=list)

    def admit(self, key="train"):
        ops = dict.fromkeys(self.following, "actor.rollout.0") | {"train": "actor.train.0"}
        lease = SimpleNamespace(function=SimpleNamespace(id=self.ahead)) if self.ahead else None
        coordinator = SimpleNamespace(
            ledger={name: SimpleNamespace(op=op) for name, op in ops.items()},
            arbiter=SimpleNamespace(
                num_waiting=lambda _group: self.num_waiting, ahead=lambda _group: lease
            ),
            groups_for=lambda _key: (self.group,),
        )
        gate = SimpleNamespace(
            dependents=lambda _key: (*self.following, "keep"),
            arguments=lambda key, given: self.following[key] if given == "train" else (),
        )
        outbox = SimpleNamespace(foretell=lambda *what: self.sent.append(what))
        Foretelling(gate, coordinator, outbox).admitted(key, "g", "worker")
        return self.sent


def test_the_rollout_after_training_is_foretold():
    expected = [("worker", Foretold("rollout", ROLLOUT, PROMPTS))]
    assert Scheduler().admit() == expected
    # What waits for more than training comes later.
    assert Scheduler(following={"next train": (), **ALONE}).admit() == expected


def test_only_training_foretells():
    assert Scheduler().admit("rollout") == []


@pytest.mark.parametrize(
    "scheduler",
    [
        Scheduler(following={}),
        Scheduler(following=ALONE | {"evaluate": (ROLLOUT, TOKEN, PROMPTS)}),
        Scheduler(following={"logprob": (LOGPROB, TOKEN, PROMPTS)}),
        Scheduler(following={"rollout": (ROLLOUT, TOKEN, PROMPTS, "more")}),
        Scheduler(following={"rollout": (ROLLOUT, TOKEN, ["no prompt"])}),
        Scheduler(group="another"),
        Scheduler(num_waiting=1),
        Scheduler(num_waiting=2, ahead="train"),
    ],
)
def test_what_may_not_be_next_or_runs_elsewhere_is_not_foretold(scheduler):
    assert scheduler.admit() == []


def test_training_that_was_admitted_ahead_is_not_in_its_own_way():
    assert len(Scheduler(num_waiting=1, ahead="train").admit()) == 1
