"""Chat messages as the text a model was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dataflow.errors import DataError

_JINJA_FILE = "chat_template.jinja"
_CONFIG_FILE = "tokenizer_config.json"
_SHOWN = 400
"""Characters of messages that an error repeats."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A Jinja template as Hugging Face folders carry one."""

    text: str
    """The template; it is called with ``messages`` and ``add_generation_prompt``."""
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """Names the template may use, e.g. ``bos_token``."""

    @classmethod
    def of_folder(cls, folder: str | Path) -> ChatTemplate:
        """Template of a Hugging Face folder.

        Raises
        ------
        DataError
            The folder has none.
        """
        root = Path(folder)
        try:
            config = json.loads((root / _CONFIG_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"model folder {str(folder)!r}: {_CONFIG_FILE} cannot be read ({error}); save the "
                "tokenizer with `save_pretrained`"
            ) from error
        file = root / _JINJA_FILE
        text = file.read_text(encoding="utf-8") if file.exists() else config.get("chat_template")
        if isinstance(text, list):
            # Several by name: the one for plain talk is called "default".
            text = {found["name"]: found["template"] for found in text}.get("default")
        if not isinstance(text, str) or not text:
            raise DataError(
                f"model folder {str(folder)!r} has no chat template (neither {_JINJA_FILE} nor "
                f"'chat_template' in {_CONFIG_FILE}); give prompts as text, or a ChatTemplate"
            )
        tokens = {
            name: value["content"] if isinstance(value, Mapping) else value
            for name, value in config.items()
            if name.endswith("_token") and isinstance(value, (str, Mapping))
        }
        return cls(text, tokens)

    def render(self, messages: Sequence[object], *, is_answered: bool = False) -> str:
        """Text of messages, up to where the assistant begins to write.

        Parameters
        ----------
        messages
            Mappings with ``role`` and ``content``.
        is_answered
            Whether the last message is the assistant's own, so that nothing is opened.

        Raises
        ------
        DataError
            The template refuses the messages.
        """
        # The sandbox and its settings are those transformers renders with: a template comes
        # with a model, from anywhere.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        try:
            rendered: str = environment.from_string(self.text).render(
                messages=messages, add_generation_prompt=not is_answered, **self.special_tokens
            )
        except Exception as error:
            # A template is a program: it may fail like one.
            raise DataError(
                f"the chat template refuses {str(messages)[:_SHOWN]}: {type(error).__name__}: "
                f"{error}; give messages with the roles it knows, or another template"
            ) from error
        return rendered


class _Generation(Extension):
    """``{% generation %}`` marks what an assistant wrote, and says nothing else."""

    tags = {"generation"}  # noqa: RUF012 (Jinja reads it of the class)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """What stands between the marks."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: object, **options: Any) -> str:  # noqa: ANN401 (as templates give them)
    """Jinja's own filter would write ``&lt;`` for ``<``."""
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _refuse(message: str) -> None:
    """What templates call on messages they cannot render."""
    raise TemplateError(message)
