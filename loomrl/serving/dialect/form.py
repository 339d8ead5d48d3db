"""The form that a caller wants for its answer, as each API names it."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, model_validator

from loomrl.serving.body import Body, Label, Plain, invalid, only, tag_by
from loomrl.serving.wording import schema_text
from loomrl.types import Form

MOST_CHOICES = 4096


def _read_schema(schema: Any) -> Any:
    if not isinstance(schema, str):
        return schema
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError):
        raise ValueError(f"{schema[:40]!r} is not JSON text.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{schema[:40]!r} is not a JSON object.")
    return found


Schema = Annotated[Plain, BeforeValidator(_read_schema)]
"""A JSON schema, or its text."""


class TextFormat(Body):
    """Text of any form."""

    type: Literal["text"]

    def form(self) -> Form | None:
        """None."""
        return None


class ObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]

    def form(self) -> Form:
        """The same for a policy."""
        return Form("json")


class SchemaFormat(Body):
    """A JSON schema and its name. Without `strict` the words of it that cannot be obeyed are left out."""

    name: Label = ""
    description: str = ""
    schema_: Plain | None = Field(default=None, alias="schema")
    strict: bool = False

    def form(self) -> Form:
        """The same for a policy."""
        return Form("json") if self.schema_ is None else schema_form(self.schema_, strict=self.strict)


class _ChatSchemaFormat(Body):
    type: Literal["json_schema"]
    json_schema: SchemaFormat

    def form(self) -> Form:
        """The same for a policy."""
        return self.json_schema.form()


class _ResponseSchemaFormat(SchemaFormat):
    type: Literal["json_schema"]


ChatFormat = Annotated[
    Annotated[TextFormat, Tag("§text")]
    | Annotated[ObjectFormat, Tag("§json_object")]
    | Annotated[_ChatSchemaFormat, Tag("§json_schema")],
    tag_by("type"),
]
ResponseFormat = Annotated[
    Annotated[TextFormat, Tag("§text")]
    | Annotated[ObjectFormat, Tag("§json_object")]
    | Annotated[_ResponseSchemaFormat, Tag("§json_schema")],
    tag_by("type"),
]


class MessagesFormat(Body):
    """Anthropic's: a JSON schema, which is obeyed to the letter."""

    type: Literal["json_schema"]
    schema_: Plain = Field(alias="schema")

    def form(self) -> Form:
        """The same for a policy."""
        return schema_form(self.schema_, strict=True)


def schema_form(schema: Mapping[str, Any], *, strict: bool) -> Form:
    """The form of a JSON schema."""
    return Form("schema", schema_text(schema, strict=strict))


class _StructuredOutputs(Body):
    """vLLM's own: one of these."""

    json_: Schema | None = Field(default=None, alias="json")
    json_object: Annotated[bool, only(True)] | None = None
    regex: str | None = None
    choice: Annotated[list[str], Field(min_length=1, max_length=MOST_CHOICES)] | None = None
    grammar: str | None = None

    @model_validator(mode="after")
    def _name_one(self) -> "_StructuredOutputs":
        if len(self.model_fields_set) != 1:
            raise ValueError("it needs exactly one of json, json_object, regex, choice and grammar.")
        return self

    def form(self) -> Form:
        """The same for a policy."""
        if self.regex is not None:
            return Form("regex", self.regex)
        if self.choice is not None:
            return Form("choice", json.dumps(self.choice, ensure_ascii=False))
        if self.grammar is not None:
            return Form("grammar", self.grammar)
        return Form("json") if self.json_ is None else schema_form(self.json_, strict=True)


class FormFields(Body):
    """The fields by which vLLM's clients ask for a form."""

    structured_outputs: _StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Field(min_length=1, max_length=MOST_CHOICES)] | None = None
    guided_grammar: str | None = None

    def form(self, *others: tuple[str, Form | None]) -> Form | None:
        """The form by these fields and by `others`, each with its name; a Refusal if there are several."""
        older = {"json": self.guided_json, "regex": self.guided_regex, "choice": self.guided_choice}
        older |= {"grammar": self.guided_grammar}
        found: list[tuple[str, Form]] = [(name, form) for name, form in others if form is not None]
        if self.structured_outputs is not None:
            found.append(("structured_outputs", self.structured_outputs.form()))
        for name, value in older.items():
            if value is not None:
                found.append((f"guided_{name}", _StructuredOutputs.model_validate({name: value}).form()))
        if len(found) > 1:
            raise invalid(found[1][0], f"the answer has a form by {found[0][0]} already: set one of them.")
        return found[0][1] if found else None
