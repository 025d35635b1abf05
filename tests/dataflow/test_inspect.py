import xml.etree.ElementTree as ET

import dask
import networkx as nx
import pytest

from dataflow import advantages, environments, rewards, scoring
from dataflow.environments import PythonTool
from dataflow.errors import CycleError, DataError
from dataflow.inspect import critical_path, draw, graph_of, llm_nodes, require_acyclic


@pytest.fixture
def trained(make_job, begin):
    it = begin(make_job(lambda _: None, hints_s={"actor.rollout.0": 0.5, "actor.train.0": 1.5}))
    samples = it.actor.generate(it.prompts)
    judged = rewards.node("ascending", samples, key=it.key("reward"))
    estimated = advantages.node("grpo", judged, samples, key=it.key("advantage"))
    return it.actor.train(samples, dask.delayed(tuple)(estimated))


def test_nodes_know_their_phase(trained):
    graph = graph_of(trained)
    phases = sorted(phase for _, phase in graph.nodes(data="phase"))
    assert phases == ["advantage", "reward", "rollout", "task", "train"]
    assert [graph.nodes[name]["op"] for name in llm_nodes(graph)] == [
        "actor.rollout.0",
        "actor.train.0",
    ]


def test_edges_run_from_input_to_user(trained):
    graph = graph_of(trained)
    (rollout,) = (name for name, phase in graph.nodes(data="phase") if phase == "rollout")
    assert not list(graph.predecessors(rollout))
    assert nx.has_path(graph, rollout, trained.key)
    assert not list(graph.successors(trained.key))


def test_the_critical_path_adds_up_hints(trained):
    path = critical_path(graph_of(trained))
    assert path.seconds == pytest.approx(2.0)
    assert [name.partition("-")[0] for name in path.nodes] == [
        "rollout",
        "reward",
        "advantage",
        "tuple",
        "train",
    ]


def test_the_critical_path_of_nothing_is_empty():
    assert critical_path(nx.DiGraph()).nodes == ()


def test_a_cycle_is_named_in_order():
    with pytest.raises(CycleError, match="'job' has a cycle: a → b → c → a"):
        require_acyclic(nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a")]), "job")


def test_the_picture_is_one_svg_that_loads_nothing(trained, tmp_path):
    path = draw(trained, tmp_path / "graph.svg", "job <1>")
    tree = ET.fromstring(path.read_text())
    texts = [element.text for element in tree.iter() if element.tag.endswith("text")]
    assert "actor.rollout.0" in texts
    assert "job <1>" in texts
    boxes = [e for e in tree.iter() if e.tag.endswith("}g")]
    assert len(boxes) == 5
    assert "href" not in path.read_text()


def test_the_picture_as_a_page(trained, tmp_path):
    assert draw(trained, tmp_path / "graph.html").read_text().startswith("<!doctype html>")


def test_other_endings_are_refused(trained, tmp_path):
    with pytest.raises(DataError, match=r"graph\.png ends in '\.png'"):
        draw(trained, tmp_path / "graph.png")


def test_built_in_nodes_without_a_key_still_show_their_phase(make_job, begin):
    it = begin(make_job(lambda _: None))
    samples = environments.node(PythonTool(), it.actor.generate(it.prompts))
    judged = rewards.node("ascending", samples)
    graph = graph_of(advantages.node("grpo", judged, samples))
    assert sorted(phase for _, phase in graph.nodes(data="phase")) == [
        "advantage",
        "reward",
        "rollout",
        "task",
    ]
    assert graph_of(scoring.node("copy", "grpo", samples)).number_of_nodes() == 3
