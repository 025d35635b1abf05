"""Environments: what answers between the turns of an episode, and the node that asks it."""

from dataflow.environments.late import LateEnvironment
from dataflow.environments.node import node, step
from dataflow.environments.protocol import Environment
from dataflow.environments.python_tool import PythonTool
from dataflow.processes import ProcessLimits

__all__ = ["Environment", "LateEnvironment", "ProcessLimits", "PythonTool", "node", "step"]
