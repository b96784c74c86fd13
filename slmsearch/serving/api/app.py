"""HTTP endpoints of the service."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing
from typing import TypeVar

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response
from openai.types import Model
from pydantic import BaseModel
from sse_starlette import EventSourceResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from slmsearch.errors import ServiceError
from slmsearch.foreign import one_line
from slmsearch.serving.api.access import Access
from slmsearch.serving.api.feedback import Feedback, FeedbackLog, LogFullError
from slmsearch.serving.api.page import add_page
from slmsearch.serving.api.playing import Answer, PlayedStep
from slmsearch.serving.api.protocol import (
    MODEL,
    ApiError,
    AskedReply,
    ChatRequest,
    FeedbackRequest,
    describe_model,
    parse_feedback,
    parse_request,
)
from slmsearch.serving.api.searcher_service import SearcherService
from slmsearch.serving.api.status import add_status
from slmsearch.serving.api.waiting import RETRY_S

MAX_BODY_BYTES = 1 << 20
BODY_SECONDS = 15.0
"""Time limit for a client to send a request."""
HUNG_UP = 499
"""Status of a reply to a client that has hung up."""
T = TypeVar("T")
CHAT, FEEDBACK = "/v1/chat/completions", "/v1/feedback"


def _takes(path: str, body: type[BaseModel]) -> dict[str, object]:
    place = f"#/paths/{path.replace('/', '~1')}/post/requestBody/content/application~1json/schema/$defs/{{model}}"
    schema = body.model_json_schema(ref_template=place)
    return {"requestBody": {"content": {"application/json": {"schema": schema}}, "required": True}}


def make_app(service: SearcherService, token: str | None, feedback: FeedbackLog | None = None) -> FastAPI:
    """Make the application; without a log it takes no feedback."""
    app = FastAPI(title="slmsearch", docs_url=None, redoc_url=None)  # those pages fetch scripts from elsewhere
    app.add_middleware(Access, token=token, metrics=service.metrics, is_stopping=lambda: service.state == "stopping")
    add_errors(app, f"questions go to POST {CHAT}, so the base_url of a client ends with /v1")
    add_status(app, service)

    @app.get("/v1/models")
    async def models() -> dict[str, object]:
        """List the one model."""
        return {"object": "list", "data": [describe_model(service.created)]}

    @app.get("/v1/models/{name}")
    async def model(name: str) -> Model:
        """Describe the one model."""
        if name != MODEL:
            raise ApiError(404, "model_not_found", f"there is one model here, {MODEL}", "model")
        return describe_model(service.created)

    @app.post(CHAT, openapi_extra=_takes(CHAT, ChatRequest))
    async def chat(http: HttpRequest) -> Response:
        """Answer the last message of the user."""
        try:
            request = parse_request(await read_body(http), http.headers.get("traceparent", ""))
        except ApiError as error:
            service.metrics.requests.labels(error.code).inc()
            raise
        name = uuid.uuid4().hex
        events = service.ask(request.question, name, request.caller)
        reply = AskedReply(f"chatcmpl-{name}", int(time.time()), request.json_answers)
        try:
            if not request.stream:
                return Response(await _while_listening(http, _complete(events, reply)), media_type="application/json")
            first = await _while_listening(http, anext(events))  # an error that comes first is a status, which clients know how to retry
        except ClientDisconnect:
            return Response(status_code=HUNG_UP)
        return EventSourceResponse(_stream(first, events, reply, request.include_usage))

    @app.get("/v1/documents")
    async def documents() -> dict[str, object]:
        """Describe the documents: their version, its age, and of a watched folder what is held back and which files could not be read."""
        return service.describe_documents()

    @app.get("/v1/documents/{path:path}")
    def document(path: str) -> Response:
        """Return the file that a source names, as it is now."""
        found = service.read_document(path)
        if found is None:
            raise ApiError(404, "not_found", f"no page was read from {one_line(path)[:100]}, or the file is gone")
        return found

    if feedback is not None:
        _add_feedback(app, service, feedback)
    add_page(app)
    return app


def _add_feedback(app: FastAPI, service: SearcherService, log: FeedbackLog) -> None:
    @app.post(FEEDBACK, openapi_extra=_takes(FEEDBACK, FeedbackRequest))
    async def feedback(http: HttpRequest) -> dict[str, str | int]:
        """Store feedback on an answer; after the reply it is stored for good."""
        request = parse_feedback(await read_body(http))
        given = Feedback(**request.model_dump(), pages=service.player.served.config.corpus.pages)
        try:
            await asyncio.to_thread(log.append, given)
        except LogFullError as error:
            raise ApiError(507, "feedback_full", str(error)) from error
        except ServiceError as error:
            raise ApiError(503, "service_unavailable", str(error), retry_s=RETRY_S) from error
        service.metrics.feedback.labels(given.verdict).inc()
        return {"id": given.id, "object": "feedback", "created": given.created}


async def _while_listening(http: HttpRequest, answer: Awaitable[T]) -> T:
    """Wait for an answer; it is cancelled when the client hangs up.

    Raises:
        ClientDisconnect: the client has hung up.
    """
    answering, hanging_up = asyncio.ensure_future(answer), asyncio.ensure_future(_wait_for_end(http))
    try:
        await asyncio.wait((answering, hanging_up), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        raise ClientDisconnect
    finally:
        answering.cancel()
        hanging_up.cancel()


async def _wait_for_end(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _complete(events: AsyncGenerator[PlayedStep | Answer, None], reply: AskedReply) -> str:
    steps: list[PlayedStep] = []
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Answer):
                return reply.complete(steps, event)
            steps.append(event)
    raise AssertionError("a question ends with an answer or an error")


async def _stream(
    first: PlayedStep | Answer, events: AsyncGenerator[PlayedStep | Answer, None], reply: AskedReply, include_usage: bool
) -> AsyncIterator[dict[str, str]]:
    """Write a reply as events; an error on the way is one, too."""
    async with aclosing(events):
        yield {"data": reply.chunk({"role": "assistant", "content": ""})}
        event = first
        try:
            while not isinstance(event, Answer):
                yield {"data": reply.step(event)}
                event = await anext(events)
        except ApiError as error:
            yield {"data": json.dumps(error.body())}
            return
        for chunk in reply.end(event, include_usage):
            yield {"data": chunk}
        yield {"data": "[DONE]"}


async def read_body(http: HttpRequest) -> bytes:
    """Read a body of JSON.

    Raises:
        ApiError: it is no JSON, too large, or does not come.
    """
    if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # A page in a browser may send other types anywhere without asking first.
        raise ApiError(415, "unsupported_media_type", "send the request with Content-Type: application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in http.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise ApiError(413, "request_too_large", f"a request may have {MAX_BODY_BYTES >> 20} MiB")
    except (TimeoutError, ClientDisconnect) as error:
        told = f"the request did not come within {BODY_SECONDS:.0f} s, or before the service stopped"
        raise ApiError(408, "request_timeout", told) from error
    return bytes(body)


def add_errors(app: FastAPI, hint: str) -> None:
    """Make an application write every error in OpenAI's form; the hint tells a client with a wrong path the right one."""

    async def answer_refusal(_: HttpRequest, error: Exception) -> JSONResponse:
        assert isinstance(error, ApiError)
        return error.response()

    async def answer_http_error(http: HttpRequest, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        headers, path = error.headers or {}, one_line(http.url.path)[:100]
        told = {
            404: ("not_found", f"there is no {path} here; {hint}"),
            405: ("method_not_allowed", f"{path} takes {headers.get('Allow', 'no')} requests only"),
        }
        response = ApiError(error.status_code, *told.get(error.status_code, ("invalid_request", str(error.detail)))).response()
        response.headers.update(headers)
        return response

    async def answer_bug(_: HttpRequest, error: Exception) -> JSONResponse:
        return ApiError(500, "internal_error", f"unforeseen {type(error).__name__}; the log of the service has more").response()

    app.add_exception_handler(ApiError, answer_refusal)
    app.add_exception_handler(HTTPException, answer_http_error)
    app.add_exception_handler(Exception, answer_bug)
