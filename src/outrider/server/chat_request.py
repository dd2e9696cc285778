"""The body of /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from outrider.server.fields import ApiModel, GenerationFields
from outrider.text.encoding import Thinking

MAX_TOP_LOGPROBS = 20


class TextPart(ApiModel):
    type: Literal["text"]
    text: str


class CalledFunction(ApiModel):
    name: str
    arguments: str


class ToolCall(ApiModel):
    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class Message(ApiModel):
    """One message of any role; what a role needs, the prompt's encoder checks."""

    role: Literal["system", "developer", "user", "assistant", "tool", "latest_reminder"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: list[Any] | None = None


class Function(ApiModel):
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_.\-]+$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(ApiModel):
    type: Literal["function"]
    function: Function


class NamedFunction(ApiModel):
    name: str


class NamedTool(ApiModel):
    type: Literal["function"]
    function: NamedFunction


class JsonSchemaFormat(ApiModel):
    """strict: what is not strict for OpenAI is strict here."""

    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_\-]+$")]
    description: str | None = None
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None


class ResponseFormat(ApiModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @property
    def schema_of_answer(self) -> dict[str, Any] | None:
        """None: any text."""
        if self.json_schema is not None:
            return self.json_schema.json_schema
        return {"type": "object"} if self.type == "json_object" else None

    def told(self) -> dict[str, Any]:
        """For `render_chat`."""
        return {"type": self.type, "json_schema": {"schema": self.schema_of_answer}}


class ThinkingSwitch(ApiModel):
    type: Literal["enabled", "disabled"]


class TemplateSwitches(ApiModel):
    """Thinking on or off, as vLLM's clients say it."""

    thinking: bool | None = None
    enable_thinking: bool | None = None


class ChatCompletionRequest(GenerationFields):
    """Thinking is off unless `thinking`, `chat_template_kwargs` or `reasoning_effort` asks for it."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=1 << 30)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1 << 30)] | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = True
    response_format: ResponseFormat | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    thinking: ThinkingSwitch | None = None
    chat_template_kwargs: TemplateSwitches | None = None
    continue_final_message: bool = False
    modalities: list[Literal["text"]] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> ChatCompletionRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs: it needs logprobs to be true")
        if self.response_format is not None:
            wanted = self.response_format.type == "json_schema"
            if wanted != (self.response_format.json_schema is not None):
                raise ValueError("response_format.json_schema: type json_schema needs it, and no other type has it")
        if self.forces_call and not self.tools:
            raise ValueError("tool_choice: there are no tools to choose from")
        if self.named_function not in (None, *(tool.function.name for tool in self.tools or ())):
            raise ValueError(f"tool_choice: no tool has the name {self.named_function!r}")
        return self

    @property
    def max_new_tokens(self) -> int | None:
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def offered_tools(self) -> list[dict[str, Any]]:
        """Those that the model is told of."""
        if self.tool_choice == "none" or not self.tools:
            return []
        return [tool.model_dump(exclude_none=True) for tool in self.tools]

    @property
    def forces_call(self) -> bool:
        """The answer must be a tool call."""
        return self.tool_choice == "required" or self.named_function is not None

    @property
    def named_function(self) -> str | None:
        """The one that must be called."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None

    @property
    def answer_schema(self) -> dict[str, Any] | None:
        """What an answer that is no call must be; None: any text."""
        return None if self.response_format is None else self.response_format.schema_of_answer

    @property
    def thinking_mode(self) -> Thinking:
        switches = self.chat_template_kwargs or TemplateSwitches()
        asked = switches.thinking if switches.thinking is not None else switches.enable_thinking
        if self.thinking is not None:
            asked = self.thinking.type == "enabled"
        if asked is None:
            asked = self.reasoning_effort is not None
        return "thinking" if asked and self.reasoning_effort != "none" else "chat"

    def message_dicts(self) -> list[dict[str, Any]]:
        """For `render_chat`. OpenAI's `developer` is its new name of `system`; DeepSeek's own role of that name is a
        user turn that later turns forget, which no client of this API means."""
        dumped = [message.model_dump(exclude_none=True) for message in self.messages]
        return [message | {"role": "system"} if message["role"] == "developer" else message for message in dumped]
