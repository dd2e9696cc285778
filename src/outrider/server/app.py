"""The application: which path is whose."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from outrider.config import ConfigError
from outrider.engine.async_engine import EngineDeadError
from outrider.server.answer import VERSION
from outrider.server.chat import chat
from outrider.server.chat_request import ChatCompletionRequest
from outrider.server.completion_request import CompletionRequest
from outrider.server.completions import complete
from outrider.server.errors import INVALID_REQUEST, NOT_FOUND, ApiError, validation_error
from outrider.server.events import told
from outrider.server.gate import Gate
from outrider.server.health import HealthProbe
from outrider.server.metrics import CONTENT_TYPE
from outrider.server.page import chat_page
from outrider.server.served_model import ServedModel
from outrider.server.tokens import DetokenizeRequest, TokenizeRequest, detokenize, tokenize
from outrider.text.encoding import PromptError

MAX_BODY_BYTES = 32 << 20  # a prompt of a million tokens, as text or as ids
BODY_SECONDS = 60.0
HEALTH_SECONDS = 10.0


def build_app(
    served: ServedModel,
    *,
    api_key: str | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    body_seconds: float = BODY_SECONDS,
    health_seconds: float = HEALTH_SECONDS,
) -> FastAPI:
    """Serves a model whose engine runs. No page is served that loads code from elsewhere (so no /docs)."""
    app = FastAPI(title="Outrider", version=VERSION, docs_url=None, redoc_url=None)
    app.add_middleware(Gate, api_key=api_key, max_body_bytes=max_body_bytes, body_seconds=body_seconds)
    _add_generation(app, served)
    _add_information(app, served, HealthProbe(served, health_seconds))
    _add_errors(app)
    return app


def _add_generation(app: FastAPI, served: ServedModel) -> None:
    streamed: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}

    @app.post("/v1/completions", response_model=None, responses=streamed)
    async def completions(body: CompletionRequest, request: Request) -> Response:
        return await complete(served, body, request)

    @app.post("/v1/chat/completions", response_model=None, responses=streamed)
    async def chat_completions(body: ChatCompletionRequest, request: Request) -> Response:
        return await chat(served, body, request)

    @app.post("/tokenize")
    async def tokens_of(body: TokenizeRequest | ChatCompletionRequest) -> dict[str, Any]:
        return await tokenize(served, body)

    @app.post("/detokenize")
    async def text_of(body: DetokenizeRequest) -> dict[str, Any]:
        return await detokenize(served, body)


def _add_information(app: FastAPI, served: ServedModel, probe: HealthProbe) -> None:
    def card(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": served.created,
            "owned_by": "outrider",
            "max_model_len": served.max_model_len,
        }

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return chat_page()

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [card(name) for name in served.names]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        served.require_name(name)
        return card(name)

    @app.get("/health", response_model=None)
    async def health() -> Response:
        found = await probe.check()
        body = {"status": "ok" if found.ok else "failed", "reason": found.reason, "seconds": round(found.seconds, 4)}
        return JSONResponse(body, 200 if found.ok else 503)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(served.metrics.exposition(), media_type=CONTENT_TYPE)

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": VERSION}


def _add_errors(app: FastAPI) -> None:
    """Whatever goes wrong, the body is an error object."""

    @app.exception_handler(RequestValidationError)
    async def bad_body(_: Request, error: RequestValidationError) -> Response:
        return _response(validation_error(error.errors()))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        kind = NOT_FOUND if error.status_code == 404 else INVALID_REQUEST
        return _response(ApiError(error.status_code, str(error.detail), kind=kind, headers=error.headers))

    async def own(request: Request, error: Exception) -> Response:
        return _response(told(error, "messages" if request.url.path.startswith("/v1/chat") else "prompt"))

    for kind in (ApiError, PromptError, ConfigError, EngineDeadError):
        app.add_exception_handler(kind, own)

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> Response:
        return _response(told(error))


def _response(error: ApiError) -> Response:
    return JSONResponse(error.body(), error.status, error.headers)
