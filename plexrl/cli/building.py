"""Turns job files into jobs: looks names up, loads pipelines, finds models."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from dataflow import advantages, tasks
from dataflow.algorithms import GAE
from dataflow.datasets import JsonlPrompts
from dataflow.errors import DataflowError
from dataflow.evaluating import evaluation_of
from dataflow.jobs import Commit, JobSpec, ModelSpec, TrackerSpec
from dataflow.lora import LORA_TARGETS, LoraSpec
from dataflow.pipelines import grpo
from plexrl.cli.jobfile import JobFile
from plexrl.errors import InputError
from plexrl.spelling import hint
from plexrl.trackers import check_trackers

TINY = "tiny"
"""Word for the warmed-up tiny base model in place of a folder."""

BaseModel = Callable[[], str]
"""Gives the folder of the tiny base model, warming it up if it must."""


def build_job(file: JobFile, tiny: BaseModel) -> JobSpec:
    """The job a file describes.

    Parameters
    ----------
    file
        A file that follows the schema.
    tiny
        Called only if the file names the tiny base model, and only once all else is right.

    Raises
    ------
    JobFileError
        A name in it is not known, or what it names cannot be loaded.
    """
    try:
        build = _own_pipeline(file, tiny) if "pipeline" in file.data else _grpo(file, tiny)
        return build(_folder(file, "model", str(file.data["model"]), tiny))
    except DataflowError as error:
        raise file.error("the job", file.name, str(error)) from error


def _folder(file: JobFile, inside: str, given: str, tiny: BaseModel) -> str:
    if given == TINY:
        return tiny()
    folder = (file.path.parent / given).absolute()
    if not folder.is_dir():
        raise file.error(
            inside, given, f"no folder {folder} is there; name a Hugging Face folder, or {TINY!r}"
        )
    return str(folder)


def _trackers(file: JobFile) -> tuple[TrackerSpec, ...]:
    given: list[dict[str, Any]] = [
        {"name": t} if isinstance(t, str) else t for t in file.data.get("trackers", ())
    ]
    found = tuple(TrackerSpec(t["name"], _placed(file, t.get("options", {}))) for t in given)
    try:
        check_trackers(found)
    except InputError as error:
        raise file.error("trackers", [t["name"] for t in given], str(error)) from error
    return found


def _placed(file: JobFile, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a tracker, its folder taken as relative to the job file."""
    if "folder" not in options:
        return dict(options)
    return {**options, "folder": str((file.path.parent / options["folder"]).absolute())}


def _evaluation(file: JobFile) -> dict[str, Any]:
    given = dict(file.data["evaluation"])
    if "prompts" in given:
        given["prompts"] = JsonlPrompts(str((file.path.parent / given["prompts"]).absolute()))
    return given


def _common(file: JobFile) -> dict[str, Any]:
    keys = (
        "seed",
        "slowdown_limit",
        "weight",
        "staleness",
        "num_prompts",
        "keep_samples",
        "arrangement",
        "groups",
    )
    found = {key: file.data[key] for key in keys if key in file.data}
    return {**found, "trackers": _trackers(file)}


_PATHS = {"chat_of", "held_out", "path"}
"""Options of tasks that name a file or folder, relative to the job file."""


def _task(file: JobFile) -> tuple[str, dict[str, Any]]:
    given = file.data["task"]
    name, options = (given, {}) if isinstance(given, str) else (given["name"], given)
    inside = "task" if isinstance(given, str) else "task.name"
    if name not in tasks.names():
        raise file.error(inside, name, f"no task is called so; {hint(name, tasks.names())}")
    found = dict(options.get("options", {}))
    for key in _PATHS.intersection(found):
        found[key] = str((file.path.parent / str(found[key])).absolute())
    reward = found.get("reward")
    if isinstance(reward, str) and ":" in reward:
        found["reward"] = load_function(file, "task.options.reward", reward)
    return name, found


_SIDE_MODELS = ("reference", "critic")
"""Settings of an algorithm that name a model folder."""


def _grpo(file: JobFile, tiny: BaseModel) -> Callable[[str], JobSpec]:
    name, options = _task(file)
    data = file.data
    algorithm = dict(data.get("algorithm", {}))
    published = algorithm.pop("name", None)
    if algorithm.get("advantage", GAE) != GAE:
        try:
            advantages.resolve(algorithm["advantage"])
        except DataflowError as error:
            raise file.error("algorithm.advantage", algorithm["advantage"], str(error)) from error
    for key in _SIDE_MODELS:
        if algorithm.get(key, TINY) != TINY:
            algorithm[key] = _folder(file, f"algorithm.{key}", algorithm[key], tiny)
    if "betas" in algorithm:
        algorithm["betas"] = tuple(algorithm["betas"])
    own = ("num_samples", "max_new_tokens", "hints_s", "rollout_engine")
    extra = {key: data[key] for key in own if key in data} | {"lora": _lora(file)}
    if "evaluation" in data:
        extra["evaluation"] = _evaluation(file)

    def build(model: str) -> JobSpec:
        warmed = {key: tiny() for key in _SIDE_MODELS if model and algorithm.get(key) == TINY}
        job = grpo(
            model=model,
            task=name,
            task_options=options,
            iterations=data["iterations"],
            algorithm=published,
            name=file.name,
            commit_every=data.get("commit", {}).get("every_iterations", 1),
            **_common(file),
            **extra,
            **{**algorithm, **warmed},
        )
        return replace(job, description=data.get("description", job.description))

    # Everything but the model is looked up now: a wrong name must not cost a warm-up.
    build("")
    return build


def _own_pipeline(file: JobFile, tiny: BaseModel) -> Callable[[str], JobSpec]:
    data = file.data
    pipeline = load_function(file, "pipeline", str(data["pipeline"]))
    seed = int(data.get("seed", 0))
    prompts: object = None
    evaluation = None
    if "task" in data:
        name, options = _task(file)
        task = tasks.task(name, **options)
        prompts = task.prompts(seed)
        if "evaluation" in data:
            evaluation = evaluation_of(task, seed, _evaluation(file))
    elif "prompts" in data:
        prompts = JsonlPrompts(str((file.path.parent / data["prompts"]).absolute()), seed=seed)
    frozen = data.get("frozen_models", {})
    if "actor" in frozen:
        remedy = "give it another name: 'actor' is the model that is trained"
        raise file.error("frozen_models.actor", frozen["actor"], remedy)

    def build(model: str) -> JobSpec:
        engine = data.get("rollout_engine", "torch")
        models = {"actor": ModelSpec(model, rollout_engine=engine, lora=_lora(file))}
        for name, given in frozen.items():
            folder = _folder(file, f"frozen_models.{name}", given, tiny)
            models[name] = ModelSpec(folder, is_trainable=False)
        return JobSpec(
            name=file.name,
            models=models,
            pipeline=pipeline,
            iterations=data["iterations"],
            prompts=prompts,
            commit=Commit(**data.get("commit", {})),
            hints_s=dict(data.get("hints_s", {})),
            evaluation=evaluation,
            description=str(data.get("description", data["pipeline"])),
            **_common(file),
        )

    return build


def _lora(file: JobFile) -> LoraSpec | None:
    given = file.data.get("lora")
    if given is None:
        return None
    return LoraSpec(**{**given, "targets": tuple(given.get("targets", LORA_TARGETS))})


def load_function(file: JobFile, inside: str, given: str) -> Callable[..., object]:
    """A function that a job file names.

    Parameters
    ----------
    file
        Whose folder files are looked for in.
    inside
        Where in the file it is named.
    given
        ``file.py:function`` or ``module:function``.

    Raises
    ------
    JobFileError
        The module cannot be imported, or has no such function.
    """
    where, _, name = given.rpartition(":")
    try:
        module = _module(file.path.parent, where)
    except (Exception, SystemExit) as error:
        # A module that ends the interpreter must not end this one without a word.
        remedy = f"it cannot be imported: {type(error).__name__}: {error}"
        raise file.error(inside, given, remedy) from error
    found = getattr(module, name, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        remedy = f"{where} has no function {name!r}; {hint(name, known)}"
        raise file.error(inside, given, remedy)
    return found  # type: ignore[no-any-return]


def _module(folder: Path, where: str) -> ModuleType:
    if not where.endswith(".py"):
        return importlib.import_module(where)
    path = (folder / where).absolute()
    # A name of its own, so that two files called alike stay apart.
    name = f"plexrl_job_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    # Workers cannot import it by name: its functions travel by value.
    cloudpickle.register_pickle_by_value(module)
    return module
