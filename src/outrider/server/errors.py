"""What a client is told when something is wrong: OpenAI's error objects, with the name of the parameter."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.config import ConfigError, shown
from outrider.engine.async_engine import EngineDeadError
from outrider.text.encoding import PromptError

INVALID_REQUEST, AUTHENTICATION, NOT_FOUND = "invalid_request_error", "authentication_error", "not_found_error"
OVERLOADED, SERVER = "rate_limit_error", "server_error"

_FIELD = re.compile(r"([a-z_][a-z0-9_.\[\]]*): ", re.IGNORECASE)
# names of the members of a union (types, models), which pydantic puts between the names of fields
_UNION_MEMBER = re.compile(
    r"[A-Z]\w*|(str|int|float|bool|none|literal|list|dict|function-.*|constrained-.*)(\[.*)?", re.DOTALL
)


class ApiError(Exception):
    """Ends a request with a status and an error object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


def invalid(param: str, problem: str, *, code: str | None = None) -> ApiError:
    """A parameter that cannot be served."""
    return ApiError(400, f"{param}: {problem}", param=param, code=code)


def api_error(error: Exception, prompt_param: str = "prompt") -> ApiError | None:
    """The answer to an error of the rooms below; None for a bug of ours. prompt_param: what the prompt is called."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, PromptError):
        return ApiError(400, str(error), param=error.param)
    if isinstance(error, ConfigError):
        return _config_error(str(error), prompt_param)
    if isinstance(error, EngineDeadError):
        return ApiError(503, str(error), kind=SERVER, code="engine_dead")
    return None


def _config_error(message: str, prompt_param: str) -> ApiError:
    match = _FIELD.match(message)
    param = match.group(1).partition("[")[0] if match else None
    if param == "prompt":
        message = prompt_param + message.removeprefix("prompt")
        code = "context_length_exceeded" if "no room" in message else None
        return ApiError(400, message, param=prompt_param, code=code)
    return ApiError(400, message, param=param)


def validation_error(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """From what pydantic found in a body; the deepest place is the one that the user meant."""
    worst = max(errors, key=lambda item: len(item["loc"]))
    param = _path(worst["loc"])
    if worst["type"] == "extra_forbidden":
        return ApiError(400, f"Unrecognized request argument supplied: {param}", param=param, code="unknown_parameter")
    message = str(worst["msg"]).removeprefix("Value error, ")
    if worst["type"] == "missing":
        message = "it is required"
    elif worst["type"] == "json_invalid":
        reason = (worst.get("ctx") or {}).get("error", message)
        return ApiError(400, f"the body is not JSON ({reason})")
    elif param and not isinstance(worst["input"], dict):
        message = f"{message[:1].lower()}{message[1:]} (found {shown(worst['input'])})"
    if not param:  # of several fields together: the message names one
        match = _FIELD.match(message)
        return ApiError(400, message, param=match.group(1) if match else None)
    return ApiError(400, f"{param}: {message}", param=param)


def _path(loc: Sequence[str | int]) -> str:
    """`messages[0].content` from ("body", "messages", 0, "content", "str")."""
    path = ""
    for part in loc[1:]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not _UNION_MEMBER.fullmatch(part):
            path += f".{part}" if path else part
    return path[:200].encode("utf-8", "backslashreplace").decode()
