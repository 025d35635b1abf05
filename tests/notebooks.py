"""Runs a notebook's cells in a fresh process, without Jupyter: `python -m tests.notebooks FILE`.

Prints one JSON list, for every code cell what it printed and how its last value shows itself.
"""

import ast
import io
import json
import sys
import types
from contextlib import redirect_stdout
from pathlib import Path


def cells(path):
    """Code cells of a notebook, as text."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def run_cell(code, names):
    """What a cell prints, and its last value as markup or text; empty if it has none."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, shown = io.StringIO(), ""
    with redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            show = getattr(value, "_repr_html_", value.__repr__)
            shown = "" if value is None else show()
    return {"printed": printed.getvalue(), "shown": shown}


def main(path):
    # As in a kernel: functions of the notebook travel by value, and no child imports a script.
    kernel = types.ModuleType("__main__")
    sys.modules["__main__"] = kernel
    sys.stdout.write(json.dumps([run_cell(code, vars(kernel)) for code in cells(path)]))


if __name__ == "__main__":
    main(sys.argv[1])
