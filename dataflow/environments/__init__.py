"""Environments: what answers between the turns of an episode, and the node that asks it."""

from dataflow.environments.function_tool import FunctionTool
from dataflow.environments.late import LateEnvironment
from dataflow.environments.node import node, step
from dataflow.environments.protocol import Environment
from dataflow.environments.python_tool import PythonTool
from dataflow.processes import ProcessLimits

__all__ = [
    "Environment",
    "FunctionTool",
    "LateEnvironment",
    "ProcessLimits",
    "PythonTool",
    "node",
    "step",
]
