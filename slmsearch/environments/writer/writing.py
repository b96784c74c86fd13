"""Prompt and reply of the question writer, the answers that it asks for, and the reader of its questions.

The prompt is a text and words of it; the reply is a question that these words answer. The text comes first, so that the questions about
one text share their beginning. The reader has the prompt of a searcher that reads and does not search (`searcher.reads: shown`).
"""

import re
from collections.abc import Container, Iterator, Sequence
from itertools import zip_longest
from random import Random

from slmsearch.config import SearcherConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.paragraphs import MAX_CHARS
from slmsearch.corpus.questions import Question, holds_answer
from slmsearch.environments.searcher.parsing import TOOL_STOPS, parse_turn
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.one_turn import play_one_turn
from slmsearch.episodes.sampler import Message, Sampler, Sampling
from slmsearch.episodes.thinking import after_thinking
from slmsearch.made_questions.cloze import GAP, Draft, Excerpt, find_spans, read_code
from slmsearch.made_questions.make import excerpts_of
from slmsearch.made_questions.sentences import count_words, is_usable, plain_paragraphs, split_sentences
from slmsearch.made_questions.written import MAX_QUESTION_CHARS

WRITER_PROMPT_VERSION = 1
"""Part of every evaluation and training key; raise it when the text below changes."""
WRITER_PROMPT = """Write a question that the text answers with the given words, and that does not hold them.
Name the people, places and things that it is about: its reader does not see the text."""
MIN_QUESTION_WORDS = 3
_MARKS = re.compile(r"</?\w+>|\w+\(\"")
"""Tags and calls of a searcher's turn."""


def show_section(place: Excerpt) -> str:
    """Return the text of a section that is shown to writer and reader, under the name of its page."""
    return f"{place.title}\n{shown_part(place)}".strip()


def shown_part(place: Excerpt) -> str:
    """Return the first part of a section's text: as much as a searcher reads at a time."""
    return place.text[:MAX_CHARS]


def make_task(place: Excerpt, answer: str) -> str:
    """Return the text that a question is asked about, with its answer."""
    return f"{show_section(place)}\n\nAnswer: {answer}"


def make_writing_prompt(task: str, config: SearcherConfig) -> list[Message]:
    """Make the messages that ask for a question; without a system message where the searcher has none."""
    user: Message = {"role": "user", "content": task}
    return [user] if config.system_prompt == "" else [{"role": "system", "content": WRITER_PROMPT}, user]


def make_reading_prompt(question: str, place: Excerpt, config: SearcherConfig) -> list[Message]:
    """Make the messages that ask a reader, who sees the section."""
    return make_prompt(question, config.model_copy(update={"reads": "shown"}), show_section(place))


def read_question(reply: str) -> str | None:
    """Return the question in a reply, on one line; None if the reply is too short or long for one, or is a call, an answer or a gap."""
    text = " ".join(after_thinking(reply).split())
    if count_words(text) < MIN_QUESTION_WORDS or len(text) > MAX_QUESTION_CHARS:
        return None
    return None if GAP in text or _MARKS.search(text) or not any(map(str.isalpha, text)) else text


def find_places(question: Question, library: Library) -> list[Excerpt]:
    """Return the gold sections whose shown part states the answer; without gold sections, those of the gold pages."""
    pages = [page for page_id in dict.fromkeys(question.page_ids) if (page := library.page(page_id)) is not None]
    places = [place for page in pages for place in excerpts_of(page, library)]
    named = [place for place in places if not question.section_ids or place.section_id in question.section_ids]
    return [place for place in named if holds_answer(shown_part(place), question.answer)]


def choose_answers(section: Excerpt, common: Container[str], seed: int) -> Iterator[str]:
    """Yield spans of a section to ask for, each once, in an order drawn by `seed`: of every sentence one before any gives a second.

    Args:
        section: with its text.
        common: as in `find_spans`.
        seed: decides the order.
    """
    rng, found = Random(f"answers/{seed}/{section.section_id}"), list[list[str]]()
    for paragraph in plain_paragraphs(shown_part(section), keep_code=True):
        for sentence in filter(is_usable, split_sentences(paragraph)):
            spans = [span.text for span in find_spans(*read_code(sentence), common)]
            found.append(rng.sample(spans, len(spans)))
    rng.shuffle(found)
    spread = (text for texts in zip_longest(*found) for text in texts if text is not None)
    yield from (text for text in dict.fromkeys(spread) if not holds_answer(section.title, text))


def write_questions(
    questions: Sequence[Question], places: Sequence[Excerpt], sampler: Sampler, sampling: Sampling, config: SearcherConfig
) -> list[Episode]:
    """Let a model write a question about each place whose answer is that of the given question; `answered` episodes hold one."""
    prompts = [make_writing_prompt(make_task(place, question.answer), config) for question, place in zip(questions, places, strict=True)]
    return play_one_turn(
        questions, prompts, sampler, sampling, config.max_turn_tokens, lambda text: (None, read_question(text) is not None)
    )


def answer_drafts(drafts: Sequence[Draft], sampler: Sampler, config: SearcherConfig) -> list[str | None]:
    """Let a reader answer drafts from their sections; None where it gives no answer."""
    if not drafts:
        return []
    prompts = [make_reading_prompt(draft.question, draft.place, config) for draft in drafts]
    asked = [Question(str(number), draft.question, draft.answer) for number, draft in enumerate(drafts)]
    sampling = Sampling(max_new_tokens=config.max_turn_tokens, stop=TOOL_STOPS)
    played = play_one_turn(asked, prompts, sampler, sampling, config.max_turn_tokens, _read_answer)
    return [episode.answer for episode in played]


def _read_answer(text: str) -> tuple[str | None, bool]:
    answer = parse_turn(text, plain=True).answer
    return answer, answer is not None
