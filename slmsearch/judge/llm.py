"""A language model as judge, asked only where the rules cannot decide.

Exact match comes first; an empty answer, an abstention, and any answer to an unanswerable question are decided by rule too. The
rest is asked concurrently at temperature 0. A reply must be a plain yes or no: one that is neither is asked for once more and
then counts as an outage, as a server that does not answer does. An outage is a verdict without `correct`.

Not here: a cache of verdicts, and measuring how far a judge agrees with people.
"""

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files

from slmsearch.config import JudgeConfig
from slmsearch.corpus.questions import Question
from slmsearch.errors import JudgeError
from slmsearch.judge.exact import exact_match, is_abstention, is_unanswerable
from slmsearch.judge.verdict import Verdict

Asker = Callable[[str], str]
"""Prompt in, reply out; raises JudgeError when there is none."""

MAX_ANSWER_CHARS = 500
"""Longer answers are cut before a judge reads them: no right answer is that long, and length is a way to talk a judge round."""
_MAX_REPLY_TOKENS = 32
_NUM_ASKS = 2
"""Times a question is put to a judge whose reply cannot be parsed."""
_DEFAULT_URLS = {"ollama": "http://127.0.0.1:11434", "openai": "http://127.0.0.1:8000/v1"}
_REPLY_SCHEMA = {"type": "object", "properties": {"correct": {"type": "string", "enum": ["yes", "no"]}}, "required": ["correct"]}
_REPLY = re.compile(r"(?:```(?:json)?\s*)?(?:\{\s*\"correct\"\s*:\s*)?\"?(?P<word>yes|no)\"?\.?(?:\s*\})?(?:\s*```)?", re.IGNORECASE)


class LlmJudge:
    """Asks a language model whether an answer states the same fact as an accepted one."""

    def __init__(self, ask: Asker, concurrency: int) -> None:
        """Wrap a way of asking.

        Args:
            ask: called from several threads.
            concurrency: most questions asked at a time.
        """
        self._ask = ask
        self._concurrency = concurrency

    def judge(self, items: Sequence[tuple[Question, str | None]]) -> list[Verdict]:
        """See `Judge.judge`; equal questions with equal answers are asked once."""
        verdicts = [_judge_by_rule(question, answer) for question, answer in items]
        prompts = {i: render_prompt(*items[i]) for i, verdict in enumerate(verdicts) if verdict is None}
        unique = list(dict.fromkeys(prompts.values()))
        with ThreadPoolExecutor(max_workers=self._concurrency) as pool:
            asked = dict(zip(unique, pool.map(self._judge_one, unique), strict=True))
        return [asked[prompts[i]] if verdict is None else verdict for i, verdict in enumerate(verdicts)]

    def _judge_one(self, prompt: str) -> Verdict:
        failure = ""
        for _ in range(_NUM_ASKS):
            try:
                return Verdict(parse_reply(self._ask(prompt)), "judge")
            except UnparsableReplyError as error:
                failure = f"{error.boundary}: {error}"
            except JudgeError as error:
                return Verdict(None, "judge", f"{error.boundary}: {error}")
        return Verdict(None, "judge", failure)


class UnparsableReplyError(JudgeError):
    """The judge answered, but not with a verdict."""


def _judge_by_rule(question: Question, answer: str | None) -> Verdict | None:
    if exact_match(answer, question.answers):
        return Verdict(True)
    if answer is None or not answer.strip() or is_abstention(answer) or is_unanswerable(question.answers):
        return Verdict(False)
    return None


def parse_reply(text: str) -> bool:
    """Read a yes or a no, bare or as the JSON object asked for.

    Raises:
        UnparsableReplyError: the reply is anything else; "yes, but ..." is no verdict.
    """
    match = _REPLY.fullmatch(text.strip())
    if match is None:
        raise UnparsableReplyError(f"reply {text.strip()[:80]!r} is neither yes nor no; use a model that follows the judge prompt")
    return match["word"].lower() == "yes"


@cache
def load_prompt() -> str:
    """Load the prompt template, its version line included; the text is part of every evaluation key."""
    return files("slmsearch.judge").joinpath("prompt.txt").read_text(encoding="utf-8")


def render_prompt(question: Question, answer: str | None) -> str:
    """Fill the prompt; the answer is quoted as JSON, so that it cannot pass for a part of the prompt."""
    _version, _, template = load_prompt().partition("\n")
    quoted = json.dumps((answer or "")[:MAX_ANSWER_CHARS], ensure_ascii=False)
    return template.format(
        question=" ".join(question.question.split()), answers=json.dumps(question.answers, ensure_ascii=False), answer=quoted
    )


def make_asker(config: JudgeConfig) -> Asker:
    """Make the way of asking the configured server.

    Raises:
        ValueError: the kind is not that of a language model.
    """
    if config.kind == "ollama":
        return _ask_ollama(config)
    if config.kind == "openai":
        return _ask_openai(config)
    raise ValueError(f"judge kind {config.kind!r} asks no model")


def _ask_ollama(config: JudgeConfig) -> Asker:
    import httpx
    import ollama

    url = config.base_url or _DEFAULT_URLS["ollama"]
    headers = {"Authorization": f"Bearer {config.api_key.get_secret_value()}"} if config.api_key else None
    client = ollama.Client(host=url, timeout=config.timeout_s, headers=headers)
    options = {"temperature": 0.0, "seed": 0, "num_predict": _MAX_REPLY_TOKENS}
    keep_alive = "30m" if config.keep_loaded else "5s"  # long enough for the next verdict of the same batch

    def ask(prompt: str) -> str:
        messages = [{"role": "user", "content": prompt}]
        try:
            reply = client.chat(model=config.model, messages=messages, format=_REPLY_SCHEMA, options=options, keep_alive=keep_alive)
            return str(reply.message.content or "")
        except (ollama.ResponseError, ollama.RequestError, ConnectionError, httpx.HTTPError) as error:
            raise _outage("Ollama", url, config.model, error) from error
        except (ValueError, TypeError, AttributeError) as error:  # what its client lets through when a body is not what it expects
            raise _outage("Ollama", url, config.model, error) from error

    return ask


def _ask_openai(config: JudgeConfig) -> Asker:
    import openai

    url = config.base_url or _DEFAULT_URLS["openai"]
    # Local servers want no key, the client wants one; without it the client would look into the environment.
    key = config.api_key.get_secret_value() if config.api_key else "none"
    client = openai.OpenAI(base_url=url, api_key=key, timeout=config.timeout_s, max_retries=2)

    def ask(prompt: str) -> str:
        try:
            reply = client.chat.completions.create(
                model=config.model, messages=[{"role": "user", "content": prompt}], temperature=0.0, max_tokens=_MAX_REPLY_TOKENS
            )
            return str(reply.choices[0].message.content or "")
        except openai.APIStatusError as error:
            raise _outage("judge server", url, config.model, error, error.response.text) from error
        except openai.OpenAIError as error:
            raise _outage("judge server", url, config.model, error) from error
        except (ValueError, TypeError, AttributeError, IndexError) as error:  # a body that is not a chat completion
            raise _outage("judge server", url, config.model, error) from error

    return ask


def _outage(server: str, url: str, model: str, error: Exception, body: str = "") -> JudgeError:
    cause = " ".join(f"{str(error) or type(error).__name__} {body}".split())[:200]
    return JudgeError(f"{server} at {url} gave no verdict with model {model!r} ({cause}); start it, or set judge.kind=exact")
