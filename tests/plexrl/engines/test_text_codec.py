"""Tokenizers of folders from anywhere."""

import json
import shutil
from pathlib import Path

import pytest

from plexrl.engines.text_codec import TextCodec
from plexrl.errors import ModelFolderError


@pytest.fixture
def folder(base_folder, tmp_path):
    """A copy that the test may change."""
    return Path(shutil.copytree(base_folder, tmp_path / "model"))


def beginning_with_bos(folder):
    """Have the tokenizer put its first token before a text, as most do."""
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    (bos,) = (t for t in tokenizer["added_tokens"] if t["content"] == "<bos>")
    first = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [bos["id"]], "tokens": ["<bos>"]}},
    }
    file.write_text(json.dumps(tokenizer))
    return bos["id"]


def test_a_prompt_from_a_chat_template_has_one_first_token(folder):
    bos = beginning_with_bos(folder)
    codec = TextCodec(str(folder), 99)
    plain = codec.encode("12", is_start=True)
    assert plain[0] == bos
    assert codec.encode("<bos>12", is_start=True) == plain
    assert codec.encode("12", is_start=False) == plain[1:]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("tokenizer.json", '{"model": {"type": "?"}}', "has no usable tokenizer"),
        ("generation_config.json", "{", "generation_config.json that cannot be read"),
    ],
)
def test_files_that_the_library_refuses_are_named(folder, name, content, problem):
    (folder / name).write_text(content)
    with pytest.raises(ModelFolderError, match=problem):
        TextCodec(str(folder), 99)
