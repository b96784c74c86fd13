"""OpenAI's chat completions in the form of this service: requests, completions, chunks, errors.

Replies are the types of the `openai` SDK. Further data are in the field `slmsearch`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, Self, TypeVar

from fastapi.responses import JSONResponse
from openai.types import CompletionUsage, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from slmsearch.corpus.questions import UNKNOWN_ANSWER
from slmsearch.environments.searcher.answer_sources import AnswerSource, is_supported
from slmsearch.environments.searcher.scope import EVERYWHERE, Scope, read_scope
from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.evaluate.confidence import LEVEL
from slmsearch.foreign import encodable
from slmsearch.serving.api.caller import NOBODY, Caller, read_traceparent
from slmsearch.serving.api.feedback import Verdict
from slmsearch.serving.api.follow_up import complete, turn_before
from slmsearch.serving.api.playing import Answer, ClientQuestion, PlayedStep
from slmsearch.serving.api.response_format import JsonAnswers

MODEL = "searcher"
"""Name of the one model, for every version."""
OWNER = "slmsearch"
MAX_QUESTION_CHARS = 2000
MAX_ANSWER_CHARS = 4000
MAX_ID_CHARS = 2000
MISFIT = "The searcher found an answer that does not fit the schema of response_format."
NO_ANSWER = {
    StopReason.MAX_TURNS: "No answer was found within the turns that the searcher has.",
    StopReason.MAX_TOKENS: "No answer was found within the tokens that the searcher has.",
    StopReason.MALFORMED: "No answer was found: the searcher wrote neither a call nor an answer.",
}


class ApiError(Exception):
    """Error that a client gets instead of an answer."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None, retry_s: int | None = None) -> None:
        """Set the reason.

        Args:
            status: HTTP status.
            code: for programs.
            message: for people.
            param: field of the request that is wrong.
            retry_s: seconds after which the same request may succeed; None if it will not.
        """
        super().__init__(message)
        self.status, self.code, self.message, self.param, self.retry_s = status, code, message, param, retry_s

    def body(self) -> dict[str, dict[str, str | None]]:
        """Return the error in OpenAI's form."""
        kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """Make the reply."""
        headers = {} if self.retry_s is None else {"Retry-After": str(self.retry_s)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.body(), self.status, headers)


class _Read(BaseModel):
    """Base of request models; other fields are ignored, as older servers ignore OpenAI's newest ones."""

    model_config = ConfigDict(extra="ignore", strict=True)


class ContentPart(_Read):
    """A part of a message; only texts are read."""

    type: str
    text: str | None = None


class ChatMessage(_Read):
    """A message."""

    role: str
    content: str | list[ContentPart] | None = None

    @property
    def text(self) -> str:
        """Return its text; parts that are none are left out."""
        return "\n".join(part.text or "" for part in self.content) if isinstance(self.content, list) else self.content or ""


class StreamOptions(_Read):
    """Options of a stream."""

    include_usage: bool | None = None


class JsonSchema(_Read):
    """The schema of a JSON answer; without one, any JSON fits."""

    schema_: dict[str, object] | None = Field(None, alias="schema")


class ResponseFormat(_Read):
    """Format of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("json_schema is missing")
        return self


def _strip(text: str | None) -> str | None:
    return (text or "").strip() or None


class ChatRequest(_Read):
    """The body of `POST /v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    model: str | None = MODEL
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: float | None = None
    response_format: ResponseFormat | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    verify: bool | None = None
    follow_up: bool | None = None
    # For the trace alone: what is no text names nobody. Metadata may also restrict the pages, see `parse_scope`.
    user: Any = None
    safety_identifier: Any = None
    metadata: Any = None


class FeedbackRequest(_Read):
    """The body of `POST /v1/feedback`; texts are stripped, and an empty one counts as missing."""

    question: str = Field(max_length=MAX_QUESTION_CHARS)
    answer: Annotated[str | None, Field(max_length=MAX_ANSWER_CHARS), AfterValidator(_strip)]
    verdict: Verdict
    correct_answer: Annotated[str | None, Field(max_length=MAX_ANSWER_CHARS), AfterValidator(_strip)] = None
    source: Annotated[str | None, Field(max_length=MAX_ID_CHARS), AfterValidator(_strip)] = None
    completion: Annotated[str | None, Field(max_length=MAX_ID_CHARS), AfterValidator(_strip)] = None
    within: Annotated[str | None, Field(max_length=MAX_ANSWER_CHARS), AfterValidator(_strip)] = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        self.question = self.question.strip()
        if not self.question:
            raise ValueError("question: it is empty")
        if self.verdict == "right" and (self.answer is None or self.correct_answer is not None):
            raise ValueError("verdict: right is said of an answer, and needs no correct_answer")
        return self


Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """A parsed request."""

    question: ClientQuestion
    stream: bool
    include_usage: bool
    json_answers: JsonAnswers | None = None
    """Writer of JSON answers; None writes text."""
    caller: Caller = NOBODY


def parse_request(body: bytes, traceparent: str = "") -> AskedRequest:
    """Parse the body of a request, and the header `traceparent`; one that is malformed is ignored, as W3C Trace Context asks.

    Raises:
        ApiError: it is malformed, or requests a feature that this service does not have.
    """
    read = _parse(ChatRequest, body)
    if read.n not in (None, 1):
        raise ApiError(400, "unsupported_value", "n: one answer is given to a question; leave n out", "n")
    for name, choice in (("tools", "tool_choice"), ("functions", "function_call")):
        if getattr(read, name) and getattr(read, choice) != "none":
            told = f'the searcher has its own tools and calls no others; leave them out, set {choice} to "none", or set response_format'
            raise ApiError(400, "unsupported_parameter", f"{name}: {told}", name)
    options, formatted = read.stream_options, _read_format(read.response_format)
    metadata = read.metadata if isinstance(read.metadata, dict) else {}
    user = _name_of(read.safety_identifier) or _name_of(read.user)
    caller = Caller(user, _name_of(metadata.get("session_id")), read_traceparent(traceparent))
    text = find_question(read.messages)
    if read.follow_up:
        text = complete(text, *turn_before([(one.role, one.text) for one in read.messages]))[:MAX_QUESTION_CHARS]
    question = ClientQuestion(text, parse_scope(metadata), bool(read.verify), caller.traceparent)
    return AskedRequest(question, bool(read.stream), bool(options and options.include_usage), formatted, caller)


def parse_scope(given: Mapping[str, object]) -> Scope:
    """Read which pages may be used: `folder`, `file`, `tag`, `since` and `until`.

    Raises:
        ApiError: one of them is no text or no date.
    """
    try:
        return read_scope(given)
    except ValueError as error:
        raise ApiError(400, "invalid_request", str(error), "metadata") from error


def _name_of(said: object) -> str | None:
    return _strip(said[:MAX_ID_CHARS]) if isinstance(said, str) else None


def _read_format(asked: ResponseFormat | None) -> JsonAnswers | None:
    if asked is None or asked.type == "text":
        return None
    schema = asked.json_schema if asked.type == "json_schema" else None
    try:
        return JsonAnswers((schema and schema.schema_) or {})
    except ValueError as error:
        raise ApiError(400, "unsupported_value", f"response_format: {error}", "response_format") from error


def parse_feedback(body: bytes) -> FeedbackRequest:
    """Parse feedback on an answer.

    Raises:
        ApiError: it is malformed, or contradicts itself.
    """
    return _parse(FeedbackRequest, body)


def _parse(kind: type[Body], body: bytes) -> Body:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        param = ".".join(str(part) for part in first["loc"] if part != "str" and "[" not in str(part)) or None
        code = "string_above_max_length" if first["type"] == "string_too_long" else "invalid_request"
        raise ApiError(400, code, f"{param or 'body'}: {first['msg']}", param) from error


def find_question(messages: Sequence[ChatMessage]) -> str:
    """Return the text of the last message of the user.

    Raises:
        ApiError: there is none, or it is no text of the length allowed.
    """
    message = next((message for message in reversed(messages) if message.role == "user"), None)
    if message is None:
        raise ApiError(400, "invalid_request", "messages: no message has the role user; the last of them is the question", "messages")
    if isinstance(message.content, list) and (odd := next((part.type for part in message.content if part.type != "text"), None)):
        raise ApiError(400, "unsupported_value", f"messages: the searcher reads text, not {odd[:40]}", "messages")
    if not (text := message.text.strip()):
        raise ApiError(400, "invalid_request", "messages: the last message of the user is empty; it is the question", "messages")
    if len(text) > MAX_QUESTION_CHARS:
        found = f"{len(text)} characters, {MAX_QUESTION_CHARS} are allowed"
        raise ApiError(400, "string_above_max_length", f"messages: the question has {found}; earlier messages do not count", "messages")
    return text


@dataclass(frozen=True, slots=True)
class AskedReply:
    """Common fields of all parts of one reply."""

    id: str
    created: int
    """Time in seconds since the epoch."""
    json_answers: JsonAnswers | None = None
    """Writer of JSON answers; None writes text."""

    def complete(self, steps: Sequence[PlayedStep], answer: Answer) -> str:
        """Write a completion as JSON."""
        choice = {"index": 0, "finish_reason": _finish(answer.episode), "logprobs": None}
        message = {"role": "assistant", "content": None, "refusal": None, **self._write(answer)}
        extension = describe_answer(answer, steps).model_dump(mode="json")
        fields = self._fields("chat.completion", [{**choice, "message": message}], extension)
        return ChatCompletion.model_validate({**fields, "usage": _count(answer.episode)}).model_dump_json(exclude_unset=True)

    def chunk(self, delta: dict[str, str], extension: Mapping[str, object] | None = None, finish: str | None = None) -> str:
        """Write a chunk of a stream as JSON."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return self._chunk(self._fields("chat.completion.chunk", [choice], extension))

    def step(self, step: PlayedStep) -> str:
        """Write a chunk that holds a step and no text."""
        return self.chunk({}, {"step": asdict(step)})

    def end(self, answer: Answer, include_usage: bool) -> list[str]:
        """Write the last chunks: the answer, its description, and the token counts if requested."""
        found = describe_answer(answer, ()).model_dump(mode="json", exclude={"steps"})
        chunks = [self.chunk(self._write(answer)), self.chunk({}, found, _finish(answer.episode))]
        if include_usage:
            chunks.append(self._chunk({**self._fields("chat.completion.chunk", [], None), "usage": _count(answer.episode)}))
        return chunks

    def _write(self, answer: Answer) -> dict[str, str]:
        """Write the answer as fields of a message: its content, or a refusal if the schema allows no JSON for it."""
        text, given = content_of(answer), answer.episode.answer is not None
        if self.json_answers is None:
            return {"content": text}
        written = self.json_answers.write((UNKNOWN_ANSWER if answer.is_unsure else text) if given else None)
        return {"refusal": MISFIT if given else text} if written is None else {"content": written}

    def _chunk(self, fields: Mapping[str, object]) -> str:
        return ChatCompletionChunk.model_validate(fields).model_dump_json(exclude_unset=True)

    def _fields(self, kind: str, choices: list[dict[str, object]], extension: Mapping[str, object] | None) -> dict[str, object]:
        own = {} if extension is None else {"slmsearch": extension}
        head = {"id": self.id, "object": kind, "created": self.created, "model": MODEL}
        return {**head, "choices": choices, **own}


def content_of(answer: Answer) -> str:
    """Return the answer, or a sentence with the reason why there is none."""
    episode = answer.episode
    if episode.answer is None:
        return NO_ANSWER[episode.stop_reason]
    return f"{UNKNOWN_ANSWER}; the nearest is: {encodable(episode.answer)}" if answer.is_unsure else encodable(episode.answer)


class KeptPromise(BaseModel):
    """A promise about the answers that are given, for questions like those it was measured on."""

    wrong_at_most: float = Field(description="Largest share of wrong ones among the answers that are given.")
    level: float = Field(description="Probability that the share is not larger.")
    n: int = Field(description="Number of answers that it was measured on.")
    holds: bool = Field(description="False on other documents than those it was measured on, or a part of them: it is void then.")


class FoundAnswer(BaseModel):
    """Result of `ask`."""

    answer: str | None = Field(description="Null where the model found none.")
    nearest: str | None = Field(description="An answer that is not sure enough to be given; null otherwise.")
    confidence: float | None = Field(description="Probability that the answer, or the nearest one, is right; null without a promise.")
    promise: KeptPromise | None
    stop_reason: str
    supported: bool | None = Field(description="Whether a section that was read states the answer; null where no text could.")
    verified: bool | None = Field(
        None,
        description="On request: whether the answer is another one without the texts that state it; null where none that was read does.",
    )
    sources: list[AnswerSource]
    steps: list[PlayedStep]
    seconds: float
    version: str = Field(description="Of the model.")
    index_key: str


def describe_answer(answer: Answer, steps: Sequence[PlayedStep]) -> FoundAnswer:
    """Describe how an answer was found."""
    episode, promise = answer.episode, answer.promise
    text = None if episode.answer is None else encodable(episode.answer)
    told = None
    if promise is not None:
        holds = promise.calibration.index_key == answer.index_key and answer.scope == EVERYWHERE and answer.is_whole
        told = KeptPromise(wrong_at_most=promise.wrong_at_most, level=1 - LEVEL, n=promise.kept.n, holds=holds)
    return FoundAnswer(
        answer=UNKNOWN_ANSWER if answer.is_unsure else text,
        nearest=text if answer.is_unsure else None,
        confidence=None if answer.confidence is None else round(answer.confidence, 4),
        promise=told,
        stop_reason=str(episode.stop_reason),
        supported=is_supported(episode, answer.sources),
        verified=answer.verified,
        sources=[_as_encodable(source) for source in answer.sources],
        steps=list(steps),
        seconds=round(episode.seconds, 3),
        version=answer.version,
        index_key=answer.index_key,
    )


def _as_encodable(source: AnswerSource) -> AnswerSource:
    texts: dict[str, Any] = {name: encodable(value) for name, value in asdict(source).items() if isinstance(value, str)}
    return replace(source, **texts, under=tuple(map(encodable, source.under)))


def _finish(episode: Episode) -> str:
    return "length" if episode.stop_reason in (StopReason.MAX_TURNS, StopReason.MAX_TOKENS) else "stop"


def _count(episode: Episode) -> CompletionUsage:
    """Count tokens read, tool results included, and tokens written; zeros for policies without tokens."""
    read = len(episode.prompt_ids) + sum(len(turn.context_ids) for turn in episode.turns)
    return CompletionUsage(prompt_tokens=read, completion_tokens=episode.sampled_tokens, total_tokens=read + episode.sampled_tokens)


def describe_model(created: int) -> Model:
    """Describe the one model, as `/v1/models` lists it."""
    return Model(id=MODEL, created=created, object="model", owned_by=OWNER)
