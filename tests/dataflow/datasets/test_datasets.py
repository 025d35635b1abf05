import json
import re

import pytest

from dataflow.datasets import CalculatorPrompts, JsonlPrompts, LetterPrompts, PromptSource
from dataflow.errors import DataError


@pytest.fixture
def jsonl(tmp_path):
    path = tmp_path / "data.jsonl"
    lines = [{"prompt": f"p{n}", "answer": n, "level": "easy"} for n in range(5)]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    return path


@pytest.fixture(params=["letters", "calculator", "jsonl"])
def make_source(request, jsonl):
    return {
        "letters": lambda seed: LetterPrompts(seed=seed),
        "calculator": lambda seed: CalculatorPrompts(seed=seed),
        "jsonl": lambda seed: JsonlPrompts(str(jsonl), seed=seed),
    }[request.param]


def test_a_source_may_be_read_from_any_position_in_any_pieces(make_source):
    whole = make_source(1).batch(0, 12)
    assert [prompt.index for prompt in whole] == list(range(12))
    assert make_source(1).batch(3, 4) + make_source(1).batch(7, 5) == whole[3:]
    assert isinstance(make_source(1), PromptSource)


def test_the_stream_depends_on_the_seed(make_source):
    texts = [[prompt.text for prompt in make_source(seed).batch(0, 12)] for seed in (1, 2)]
    assert texts[0] != texts[1]


def test_letter_prompts_are_different_digits():
    for prompt in LetterPrompts(length=7).batch(0, 50):
        symbols = prompt.meta["symbols"]
        assert prompt.text == f"x{symbols}="
        assert len(set(symbols)) == len(symbols) == 7
        assert symbols.isdigit()


def test_calculator_prompts_know_their_product():
    for prompt in CalculatorPrompts().batch(0, 50):
        left, right = map(int, re.fullmatch(r"q(\d\d)\*(\d\d)=", prompt.text).groups())
        assert prompt.answer == str(left * right)


def test_a_file_gives_each_item_once_per_epoch_in_a_new_order(jsonl):
    prompts = JsonlPrompts(str(jsonl)).batch(0, 15)
    epochs = [[p.text for p in prompts[start : start + 5]] for start in (0, 5, 10)]
    assert all(sorted(epoch) == ["p0", "p1", "p2", "p3", "p4"] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert {(p.text, p.answer, p.meta["level"]) for p in prompts} == {
        (f"p{n}", str(n), "easy") for n in range(5)
    }


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is empty"),
        ('{"prompt": "a"}\nnot json', "line 2: no JSON"),
        ('{"question": "a"}', "line 1: field 'prompt' is None"),
        ('{"prompt": ""}', "line 1: field 'prompt' is ''"),
        ("[1]", "line 1 is \\[1\\]; give a mapping"),
        ("[" * 100_000, "line 1: no JSON"),
        ('{"prompt": [{"role": "user"}]}', "give a chat template for prompts that are messages"),
    ],
)
def test_an_unusable_file_is_named_with_its_line(tmp_path, content, problem):
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"bad\.jsonl.*{problem}"):
        JsonlPrompts(str(path))


def test_lines_end_where_json_lines_end_them(tmp_path):
    path = tmp_path / "separators.jsonl"
    # Written by Windows, with a byte order mark and a text that holds line separators of Unicode.
    path.write_bytes('\ufeff{"prompt": "a\u2028b\u0085", "n": 1}\r\n\r\n'.encode())
    (item,) = JsonlPrompts(str(path)).items
    assert (item.text, item.meta) == ("a\u2028b\u0085", {"n": 1})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.jsonl: cannot be read"):
        JsonlPrompts(str(tmp_path / "gone.jsonl"))


@pytest.mark.parametrize(
    "make", [lambda: LetterPrompts(length=11), lambda: LetterPrompts(length=1)]
)
def test_impossible_letter_prompts_are_refused(make):
    with pytest.raises(DataError, match="from 2 to 10"):
        make()


def test_impossible_calculator_prompts_are_refused():
    with pytest.raises(DataError, match="factors from 9 to 3"):
        CalculatorPrompts(smallest=9, largest=3)
