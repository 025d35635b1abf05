"""Records, Parquet, Hugging Face data sets and chat templates as prompt sources."""

import importlib.util
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataflow.datasets import (
    ChatTemplate,
    Fields,
    JsonlPrompts,
    hub_prompts,
    parquet_prompts,
    prompts_at,
    prompts_of,
)
from dataflow.errors import DataError

RECORDS = [{"q": f"{i}+1=", "a": i + 1, "level": "easy"} for i in range(5)]
FIELDS = Fields("q", "a")
TEMPLATE = ChatTemplate(
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'tool' %}"
    "{{ raise_exception('no tools') }}{% endif %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}",
    {"bos_token": "<s>"},
)
CHAT = [{"role": "user", "content": "hi"}]


def test_records_are_shuffled_anew_in_every_epoch_and_read_by_cursor():
    source = prompts_of(RECORDS, fields=FIELDS, seed=1)
    first, second = source.batch(0, 5), source.batch(5, 5)
    assert sorted(p.text for p in first) == sorted(p.text for p in second)
    assert [p.text for p in first] != [p.text for p in second]
    assert source.batch(3, 4) == (*source.batch(3, 2), *source.batch(5, 2))
    assert [p.index for p in second] == [5, 6, 7, 8, 9]
    assert first[0].answer == str(int(first[0].text[0]) + 1)
    assert first[0].meta == {"level": "easy", "a": int(first[0].answer)}


def test_a_parquet_file_gives_the_prompts_of_its_rows(tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.Table.from_pylist(RECORDS), path)
    assert parquet_prompts(path, fields=FIELDS, seed=1).batch(0, 7) == prompts_of(
        RECORDS, fields=FIELDS, seed=1
    ).batch(0, 7)
    assert prompts_at(path, fields=FIELDS).items == prompts_of(RECORDS, fields=FIELDS).items
    path.write_text("no table")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        parquet_prompts(path)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("datasets") is None,
    reason="datasets is not installed (plexrl[tasks])",
)
def test_a_hugging_face_data_set_is_read_from_memory_and_disk(tmp_path):
    import datasets

    data = datasets.Dataset.from_list(RECORDS)
    wanted = prompts_of(RECORDS, fields=FIELDS).batch(0, 5)
    assert hub_prompts(data, fields=FIELDS).batch(0, 5) == wanted
    datasets.DatasetDict({"test": data}).save_to_disk(str(tmp_path / "d"))
    assert hub_prompts(tmp_path / "d", split="test", fields=FIELDS).batch(0, 5) == wanted
    data.save_to_disk(str(tmp_path / "e"))
    assert prompts_at(tmp_path / "e", fields=FIELDS).batch(0, 5) == wanted
    with pytest.raises(DataError, match="'train'"):
        hub_prompts(tmp_path / "d", fields=FIELDS)


def test_an_empty_data_set_and_a_record_without_a_prompt_are_told():
    with pytest.raises(DataError, match="data set mine is empty"):
        prompts_of([], source="mine")
    with pytest.raises(DataError, match="record 0: field 'prompt' is None"):
        prompts_of(RECORDS)
    with pytest.raises(DataError, match="give a chat template"):
        prompts_of([{"prompt": CHAT}])


def test_answers_that_are_nowhere_are_told_before_any_reward_is_asked(tmp_path):
    file = tmp_path / "data.jsonl"
    file.write_text("\n".join(json.dumps(record) for record in RECORDS))
    problem = r"no record has the field 'gold', .*; the first one has q, a, level"
    with pytest.raises(DataError, match=problem):
        prompts_of(RECORDS, fields=Fields("q", "gold"))
    with pytest.raises(DataError, match=problem):
        JsonlPrompts(str(file), prompt_field="q", answer_field="gold")
    # Some records may lack it, and those that nobody asked for answers all of them.
    some = prompts_of([*RECORDS, {"q": "?"}], fields=FIELDS)
    assert sorted(prompt.answer for prompt in some.batch(0, 6)) == ["", "1", "2", "3", "4", "5"]
    assert prompts_of([{"prompt": "?"}]).batch(0, 1)[0].answer == ""


def test_messages_become_the_text_of_the_template(tmp_path):
    assert TEMPLATE.render(CHAT) == "<s>[user]hi\n[assistant]"
    assert TEMPLATE.render(CHAT, is_answered=True) == "<s>[user]hi\n"
    source = prompts_of([{"prompt": CHAT, "answer": "x"}], chat=TEMPLATE)
    assert source.batch(0, 1)[0].text == "<s>[user]hi\n[assistant]"
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"prompt": CHAT}))
    assert JsonlPrompts(str(path), chat=TEMPLATE).batch(0, 1)[0].text.startswith("<s>[user]")
    with pytest.raises(DataError, match=r"refuses .* no tools"):
        TEMPLATE.render([{"role": "tool", "content": ""}])


def test_a_template_is_found_where_model_folders_keep_it(tmp_path):
    config = {"bos_token": {"content": "<s>"}, "chat_template": TEMPLATE.text}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert ChatTemplate.of_folder(tmp_path).render(CHAT) == TEMPLATE.render(CHAT)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert ChatTemplate.of_folder(tmp_path).render(CHAT) == "hi!"
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(DataError, match="has no chat template"):
        ChatTemplate.of_folder(tmp_path)


def test_a_template_cannot_reach_beyond_its_sandbox():
    with pytest.raises(DataError, match="unsafe"):
        ChatTemplate("{{ messages.__class__.__mro__ }}").render(CHAT)


def test_templates_may_use_what_transformers_gives_them():
    text = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}"
    )
    assert ChatTemplate(text).render([{"a": "<é>"}, {"b": 1}]) == '{"a": "<é>"}'


@pytest.mark.parametrize(
    "text",
    ["{{ messages[0].content + 1 }}", "{% for i in range(10**9) %}x{% endfor %}", "{% oops %}"],
)
def test_a_template_that_fails_is_named_with_the_record(text):
    with pytest.raises(DataError, match="data set records, record 0: the chat template refuses"):
        prompts_of([{"prompt": CHAT}], chat=ChatTemplate(text))


def test_of_templates_by_name_the_default_one_is_taken(tmp_path):
    named = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": named}))
    assert ChatTemplate.of_folder(tmp_path).text == "d"
