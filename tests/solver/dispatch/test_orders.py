from solver.dispatch.events import DispatchPlan, Slot
from solver.dispatch.orders import PlanIndex


def slot(job: str, duration_ticks: int, wait_ticks: int = 0, op: str = "op") -> Slot:
    return Slot(job, op, duration_ticks, wait_ticks)


def test_groups_without_a_common_job_set_each_other_no_pace():
    plan = PlanIndex(
        DispatchPlan(
            {
                "fast": (slot("a", 10, 20), slot("b", 15)),
                "slow": (slot("c", 1000, 500),),
            }
        )
    )
    # The fast group's cycle is its longest job alone: 30 ticks.
    assert (plan.float_ticks("a"), plan.float_ticks("b")) == (0, 15)
    assert plan.spare_ticks("fast") == 5
    assert (plan.float_ticks("c"), plan.spare_ticks("slow")) == (0, 500)


def test_groups_of_one_job_share_a_cycle():
    plan = PlanIndex(
        DispatchPlan(
            {
                "rollouts": (slot("a", 100, op="rollout"),),
                "training": (slot("a", 30, op="train"), slot("b", 20, 10)),
            }
        )
    )
    assert (plan.float_ticks("a"), plan.float_ticks("b")) == (0, 100)
    assert (plan.spare_ticks("rollouts"), plan.spare_ticks("training")) == (30, 80)


def test_a_job_that_runs_ahead_is_as_long_as_its_cycle_alone():
    orders = {
        "rollouts": (slot("a", 100, op="rollout"),),
        "training": (slot("a", 80, op="train"), slot("b", 20, 10)),
    }
    plan = PlanIndex(DispatchPlan(orders, {"a": 100}))
    assert (plan.float_ticks("a"), plan.float_ticks("b")) == (0, 70)
    assert (plan.spare_ticks("rollouts"), plan.spare_ticks("training")) == (0, 0)
