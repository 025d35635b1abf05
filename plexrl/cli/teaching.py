"""Sorts the commands in the help by what people want to do, and shows how each is typed."""

from __future__ import annotations

import typer

PANELS = {
    "Run jobs": ("demo", "run", "resume", "samples", "store"),
    "See a running cluster": ("status", "top", "drawing", "trace"),
    "Steer a running cluster": (
        "pause",
        "unpause",
        "move",
        "cancel",
        "drain",
        "undrain",
        "replan",
        "apply",
    ),
    "Plan, without a cluster": ("plan", "simulate", "verify", "explain", "profile"),
}
"""Heading → commands under it; the rest stands under the usual heading."""

EXAMPLES = {
    "demo": "plexrl demo --iterations 10",
    "run": "plexrl run --compare examples/ascending.yaml examples/judged.yaml",
    "resume": "plexrl resume plexrl-store --groups 2",
    "samples": "plexrl samples plexrl-store calculator --iteration 3 --limit 5",
    "status": "plexrl status --json tcp://127.0.0.1:8786",
    "top": "plexrl top --every 1 tcp://127.0.0.1:8786",
    "drawing": "plexrl drawing calculator",
    "trace": "plexrl trace tcp://127.0.0.1:8786 --output trace.json",
    "cancel": "plexrl cancel calculator --iteration",
    "pause": "plexrl pause calculator --wait --reason 'a demo needs the group'",
    "unpause": "plexrl unpause calculator",
    "move": "plexrl move calculator group-1 --wait",
    "drain": "plexrl drain group-1 --wait --reason 'new memory'",
    "undrain": "plexrl undrain group-1",
    "replan": "plexrl replan --reason 'the judge was moved'",
    "apply": "plexrl apply plan.json --wait",
    "plan": "plexrl plan problem.yaml --output plan.json --report plan.html",
    "simulate": "plexrl simulate problem.yaml --plan plan.json --heavy-tail",
    "verify": "plexrl verify problem.yaml plan.json",
    "explain": "plexrl explain problem.yaml",
    "profile": "plexrl profile plexrl-output --output problem.yaml",
    "version": "plexrl version",
    "ls": "plexrl store ls plexrl-store",
    "check": "plexrl store check plexrl-store",
    "gc": "plexrl store gc plexrl-store --keep 2",
    "export": "plexrl store export plexrl-store calculator/actor trained",
    "import": "plexrl store import plexrl-store trained mine/actor",
}
"""Command → how it is typed."""


def teach(app: typer.Typer) -> None:
    """Give every registered command its heading and its example.

    Parameters
    ----------
    app
        With all commands and groups of commands added.
    """
    headings = {name: heading for heading, names in PANELS.items() for name in names}
    for command in app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        if name in EXAMPLES:
            command.epilog = f"Example: {EXAMPLES[name]}"
        if name in headings:
            command.rich_help_panel = headings[name]
    for group in app.registered_groups:
        if group.name in headings:
            group.rich_help_panel = headings[group.name]
        if group.typer_instance is not None:
            teach(group.typer_instance)
