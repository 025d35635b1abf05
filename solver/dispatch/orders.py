"""A dispatch plan, indexed: what comes next in a cyclic order, and how much delay a job bears."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import networkx as nx

from solver.dispatch.events import DispatchPlan, Slot
from solver.dispatch.views import Rule


class PlanIndex:
    """Look-ups in a dispatch plan, made once when it is adopted."""

    def __init__(self, plan: DispatchPlan) -> None:
        self.plan = plan
        self._slots: dict[tuple[str, str], Slot] = {}
        self._next_op: dict[tuple[str, str], str] = {}
        self._float: dict[str, int] = {}
        self._spare: dict[str, int] = {}
        self._groups: dict[str, list[str]] = {}
        self._index()

    def _index(self) -> None:
        chains: dict[str, dict[str, list[Slot]]] = defaultdict(lambda: defaultdict(list))
        alone: dict[str, int] = {}
        for group, order in self.plan.orders.items():
            for slot in order:
                chains[slot.job][group].append(slot)
                if (slot.job, slot.op) not in self._slots:
                    alone[slot.job] = alone.get(slot.job, 0) + slot.duration_ticks + slot.wait_ticks
                self._slots[slot.job, slot.op] = slot
        for job, by_group in chains.items():
            self._groups[job] = list(by_group)
            # Over several groups an order does not tell which op follows which.
            if len(by_group) == 1:
                (chain,) = by_group.values()
                for slot, following in zip(chain, [*chain[1:], chain[0]], strict=True):
                    self._next_op[job, slot.op] = following.op
        alone |= self.plan.alone_ticks
        loads = {
            group: sum(slot.duration_ticks for slot in order)
            for group, order in self.plan.orders.items()
        }
        # Groups without a job in common need no common cycle: the slowest of them sets no pace.
        for jobs, groups in _components(chains):
            cycle = max([loads[group] for group in groups] + [alone[job] for job in jobs])
            self._float |= {job: cycle - alone[job] for job in jobs}
            self._spare |= {group: cycle - loads[group] for group in groups}

    def groups_of(self, job: str) -> list[str]:
        """Groups whose order has an op of the job."""
        return self._groups.get(job, [])

    def wait_ticks(self, job: str, op: str) -> int | None:
        """Planned ticks without a group after the op; None if the plan does not know it."""
        slot = self._slots.get((job, op))
        return None if slot is None else slot.wait_ticks

    def next_op(self, job: str, op: str) -> str | None:
        """Op that follows in the job's iteration, as far as the plan tells."""
        return self._next_op.get((job, op))

    def float_ticks(self, job: str) -> int:
        """Ticks per cycle the job can be delayed without lengthening the cycle."""
        return self._float.get(job, 0)

    def rule(self, group: str, default: Rule) -> Rule:
        """Who is next on the group: the plan's rule for it, else the default."""
        return self.plan.rules.get(group, default)

    def spare_ticks(self, group: str) -> int:
        """Ticks per cycle the group can stand idle without lengthening the cycle."""
        return self._spare.get(group, 0)


class Cursor:
    """Position in the cyclic order of one group.

    A slot whose op ran before its turn is skipped once when its turn comes.
    """

    def __init__(self, slots: tuple[Slot, ...], after: tuple[str, str] | None) -> None:
        self.slots = slots
        self._position = 0
        self._served: set[int] = set()
        for index, slot in enumerate(slots):
            if (slot.job, slot.op) == after:
                self._position = (index + 1) % len(slots)
                break

    def pending(self) -> Iterator[tuple[int, Slot]]:
        """Slots whose turn is still to come this round, in order, with their index."""
        num = len(self.slots)
        for offset in range(num):
            index = (self._position + offset) % num
            if index not in self._served:
                yield index, self.slots[index]

    def is_next(self, index: int) -> bool:
        """Whether the slot is the very next one, with no other passed over."""
        return index == self._position

    def advance(self, index: int) -> None:
        """Go on behind the slot that is served in its turn; what was passed over waits a round."""
        num = len(self.slots)
        while True:
            passed = self._position
            self._served.discard(passed)
            self._position = (passed + 1) % num
            if passed == index:
                break
        self._skip_served()

    def serve(self, job: str, op: str) -> None:
        """Note that the op runs before its turn; at the position itself that is its turn."""
        for index, slot in self.pending():
            if (slot.job, slot.op) == (job, op):
                self._served.add(index)
                break
        self._skip_served()

    def _skip_served(self) -> None:
        while self._position in self._served:
            self._served.discard(self._position)
            self._position = (self._position + 1) % len(self.slots)


def _components(
    chains: Mapping[str, Mapping[str, list[Slot]]],
) -> Iterator[tuple[list[str], list[str]]]:
    """Jobs and groups that depend on each other, through however many others."""
    graph = nx.Graph(
        ((True, job), (False, group)) for job, by_group in chains.items() for group in by_group
    )
    for component in nx.connected_components(graph):
        jobs = [name for is_job, name in component if is_job]
        groups = [name for is_job, name in component if not is_job]
        yield jobs, groups
