from pathlib import Path

import pytest

from plexrl.engines import tiny
from plexrl.engines.demonstrations import Mixture
from plexrl.engines.protocol import ModelSource
from plexrl.engines.tiny import KINDS, tiny_base
from plexrl.engines.tiny_model import random_base, tiny_tokenizer
from plexrl.engines.torch_engine import TorchEngine
from plexrl.engines.warmup import warm_up
from plexrl.engines.warmup_settings import WarmupSettings
from plexrl.errors import ConfigError, EngineError

FEW = WarmupSettings(num_steps=3, batch_size=8)


def weights(folder):
    return (Path(folder) / "model.safetensors").read_bytes()


def test_every_character_is_one_token_and_comes_back():
    tokenizer = tiny_tokenizer()
    text = "q12*34=<12*34>408|\n ~"
    token_ids = tokenizer.encode(text)
    assert len(token_ids) == len(text)
    assert tokenizer.decode(token_ids) == text
    assert tokenizer.decode(tokenizer.encode("é")) == "?"
    assert len(tokenizer) == 99


def test_an_untrained_base_is_a_function_of_its_seed(base_folder, other_folder, tmp_path):
    assert weights(random_base(tmp_path / "again", 0)) == weights(base_folder)
    assert weights(other_folder) != weights(base_folder)


def test_the_learning_rate_rises_and_falls_to_zero():
    settings = WarmupSettings(num_steps=100, learning_rate=1.0, num_rise_steps=10)
    rates = [settings.learning_rate_at(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9]
    assert rates[50] == pytest.approx(0.5)
    assert rates[99] < 0.001


def test_settings_survive_json():
    settings = WarmupSettings(seed=3, mixture=Mixture(tool_share=0.125))
    assert WarmupSettings.from_json(settings.to_json()) == settings


@pytest.mark.slow
def test_warming_up_twice_gives_equal_bytes(tmp_path):
    losses = []
    warm_up(str(tmp_path / "a"), FEW, lambda done, total, loss: losses.append((done, total, loss)))
    warm_up(str(tmp_path / "b"), FEW)
    warm_up(str(tmp_path / "c"), FEW.with_seed(1))
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert weights(tmp_path / "a") != weights(tmp_path / "c")
    assert [row[:2] for row in losses] == [(1, 3), (2, 3), (3, 3)]
    assert losses[2][2] < losses[0][2]


@pytest.mark.slow
def test_a_base_is_built_once_and_then_found(tmp_path):
    seen = []
    folder = tiny_base(cache_dir=tmp_path, settings=FEW, progress=lambda *step: seen.append(step))
    assert [step[:2] for step in seen] == [(1, 3), (2, 3), (3, 3)]
    assert TorchEngine(ModelSource(folder), "cpu").vocab_size == 99
    again = tiny_base(cache_dir=tmp_path, settings=FEW, progress=lambda *step: seen.append(step))
    assert (again, len(seen)) == (folder, 3)
    assert [path.name for path in tmp_path.iterdir()] == [Path(folder).name]


@pytest.mark.slow
def test_a_failed_build_shows_why_and_leaves_nothing(tmp_path):
    with pytest.raises(EngineError, match=r"(?s)status 1.*0 samples cannot be split"):
        tiny_base(cache_dir=tmp_path, settings=WarmupSettings(num_steps=1, batch_size=0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_build_that_is_interrupted_leaves_nothing(tmp_path):
    def interrupt(*_step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny_base(cache_dir=tmp_path, settings=FEW, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"'huge'; known are calculator, letters, tiny"):
        tiny_base("huge", cache_dir=tmp_path)


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        tiny_base(cache_dir=tmp_path / "file" / "below", settings=FEW)


def test_one_base_stands_for_all_kinds():
    assert len(set(KINDS.values())) == 1


def test_a_build_that_nobody_watches_tells_a_few_lines(capsys):
    for step in range(1, 401):
        tiny._tell(step, 400, 1.0)
    told = capsys.readouterr().err.splitlines()
    assert told[0].endswith("step 1 of 400")
    assert told[-1].endswith("step 400 of 400")
    assert len(told) == tiny.LINES + 1
