"""The tools of the searcher for MCP clients: names, descriptions, schemas, and results. This module uses no SDK."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from slmsearch.environments.searcher.answer_sources import AnswerSource
from slmsearch.environments.searcher.scope import MAX_CHARS, Scope
from slmsearch.environments.searcher.tools import GO_ON, MAX_QUERY_CHARS, READ, SEARCH, VIEW
from slmsearch.episodes.episode import ToolCall
from slmsearch.foreign import one_line
from slmsearch.serving.api.playing import Answer, ClientQuestion, PlayedStep, ServedCall
from slmsearch.serving.api.protocol import MAX_ID_CHARS, MAX_QUESTION_CHARS, ApiError, FoundAnswer, content_of, describe_answer, parse_scope
from slmsearch.serving.api.searcher_service import SearcherService

ASK = "ask"
INSTRUCTIONS = (
    "A corpus of pages, cut into sections. ask has a small language model search it and answer, with sources. To search yourself: "
    "search_pages finds pages, view_sections lists a page's sections, read_section gives a section's text."
)
Tell = Callable[[int, str], Awaitable[None]]
"""Number of a step, and the step in one line."""
log = logging.getLogger(__name__)


class FoundPage(BaseModel):
    """A page that a search found."""

    page_id: str
    title: str


class FoundPages(BaseModel):
    """Result of `search_pages`."""

    pages: list[FoundPage] = Field(description="Best first.")


class ListedSection(BaseModel):
    """A section of a page."""

    section_id: str
    heading: str


class ListedSections(BaseModel):
    """Result of `view_sections`."""

    page_id: str
    title: str
    sections: list[ListedSection]
    next: str | None = Field(description="The page_id that lists the rest; null where nothing is left.")


class SectionText(BaseModel):
    """Result of `read_section`."""

    page_id: str
    title: str
    section_id: str
    heading: str
    text: str
    next: str | None = Field(description="The section_id that goes on with the text; null where it ends here.")


@dataclass(frozen=True, slots=True)
class ToolReply:
    """Reply of a tool."""

    text: str
    structured: BaseModel | None = None
    """The result as data; None for an error."""


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool and its description for clients."""

    name: str
    title: str
    description: str
    arguments: type[BaseModel]
    result: type[BaseModel]

    def describe(self) -> dict[str, object]:
        """Return the tool's description in the form of the protocol."""
        schemas = {"inputSchema": self.arguments.model_json_schema(), "outputSchema": self.result.model_json_schema()}
        hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
        return {"name": self.name, "title": self.title, "description": self.description, **schemas, "annotations": hints}


def _take(name: str, most_chars: int, description: str, within: bool = False, **others: Any) -> type[BaseModel]:
    """Make the schema of one text argument, of those that restrict the pages (`within`), and of others; an id may come as a number."""
    config = ConfigDict(extra="forbid", strict=True, str_strip_whitespace=True)
    text = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
    wanted: dict[str, Any] = {name: (text, Field(min_length=1, max_length=most_chars, description=description))}
    if within:
        wanted |= {key: (text, Field("", max_length=MAX_CHARS, description=said)) for key, said in WITHIN.items()}
    return create_model("Arguments", __config__=config, **wanted, **others)


WITHIN = {
    "folder": "Only pages of this folder.",
    "file": "Only this file.",
    "tag": "Only pages with this tag.",
    "since": "Only pages from this date on: 2025, 2025-03 or 2025-03-31.",
    "until": "Only pages up to this date.",
}
"""Arguments that restrict the pages, with their descriptions."""


TOOLS = (
    McpTool(
        SEARCH,
        "Search pages",
        "Find pages by a query; gives ids and titles, best first.",
        _take("query", MAX_QUERY_CHARS, "What to look for, in words; a name or a title works best.", True),
        FoundPages,
    ),
    McpTool(
        VIEW,
        "View sections",
        "List the sections of a page: ids and headings.",
        _take("page_id", MAX_ID_CHARS, "Id of a page, as search_pages gives it, or `next` of an earlier result."),
        ListedSections,
    ),
    McpTool(
        READ,
        "Read a section",
        "Read the text of a section; a long one in parts.",
        _take("section_id", MAX_ID_CHARS, "Id of a section, as view_sections gives it, or `next` of an earlier result."),
        SectionText,
    ),
    McpTool(
        ASK,
        "Ask the searcher",
        "Have a small language model search the pages in several turns and answer a question from what it read. Takes seconds; "
        "gives the answer, or none, with the sections it read. It knows nothing of earlier questions.",
        _take(
            "question",
            MAX_QUESTION_CHARS,
            "One question, complete in itself.",
            True,
            verify=(bool, Field(False, description="Also ask without the texts that state the answer, to see whether it changes.")),
        ),
        FoundAnswer,
    ),
)


async def call_tool(service: SearcherService, name: str, arguments: Mapping[str, object], tell: Tell) -> ToolReply:
    """Call a tool and return its reply, errors included. It raises no error."""
    try:
        tool = next((tool for tool in TOOLS if tool.name == name), None)
        if tool is None:
            return _refuse(f"there is no tool {name[:100]!r}; there are {', '.join(tool.name for tool in TOOLS)}")
        argument, *_ = (given := tool.arguments.model_validate(dict(arguments)).model_dump()).values()
        scope = parse_scope(given)
        if name == ASK:
            return await _ask(service, ClientQuestion(argument, scope, given["verify"]), tell)
        return await _call(service, ToolCall(name, argument), scope)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return _refuse(f"{name}: {'.'.join(str(part) for part in first['loc'])[:100] or 'arguments'}: {first['msg']}")
    except ApiError as error:
        return _refuse(f"{name}: {error.message}")
    except Exception as error:
        log.exception("%s", name)
        return _refuse(f"{name}: unforeseen {type(error).__name__}; the log of the server has more")


async def _ask(service: SearcherService, question: ClientQuestion, tell: Tell) -> ToolReply:
    steps: list[PlayedStep] = []
    async with aclosing(service.ask(question)) as events:
        async for event in events:
            if isinstance(event, Answer):
                found = describe_answer(event, steps)
                sources = "".join(f"\n{_kind(source)}: {source.section_id} ({source.title})" for source in found.sources)
                return ToolReply(content_of(event) + sources, found)
            steps.append(event)
            await tell(len(steps), one_line(f"{event.call}: {event.argument}"))
    raise AssertionError("a question ends with an answer or an error")


def _kind(source: AnswerSource) -> str:
    return "quoted" if source.quoted else "source" if source.supports else "read, but does not state it"


async def _call(service: SearcherService, call: ToolCall, scope: Scope) -> ToolReply:
    served = await service.call(call, scope)
    return ToolReply(served.text, _structure(call, served)) if served.served else _refuse(f"{call.name}: {served.text}")


def _structure(call: ToolCall, served: ServedCall) -> BaseModel:
    pages, sections = served.pages, served.sections
    if call.name == SEARCH:
        return FoundPages(pages=[FoundPage(page_id=page_id, title=title) for page_id, title in pages])
    ((page_id, title),) = pages
    rest = GO_ON.search(served.text)
    go_on = rest[0].rpartition("go on with ")[2].removesuffix(")") if rest else None
    if call.name == VIEW:
        listed = [ListedSection(section_id=section_id, heading=heading) for section_id, heading in sections]
        return ListedSections(page_id=page_id, title=title, sections=listed, next=go_on)
    ((section_id, heading),) = sections
    text = served.text[: rest.start()] if rest else served.text
    return SectionText(page_id=page_id, title=title, section_id=section_id, heading=heading, text=text, next=go_on)


def _refuse(message: str) -> ToolReply:
    return ToolReply(one_line(message))
