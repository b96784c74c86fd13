"""LiteLLM: a question both ways, JSON, and what is refused."""

import json
import os
import sys
from importlib.metadata import version
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches a table of prices when it is imported

import litellm
from pydantic import BaseModel

served = json.loads(sys.argv[1])
answer = served["answer"]
litellm.suppress_debug_info = True
messages = [{"role": "user", "content": served["question"]}]


def ask(**options: Any) -> Any:
    connection = {"model": "openai/searcher", "api_base": served["base_url"], "api_key": served["token"], "max_retries": 0}
    return litellm.completion(**{**connection, "messages": messages, **options})


class Reply(BaseModel):
    answer: str


class Person(BaseModel):
    name: str
    age: int


assert ask().choices[0].message.content == answer
assert "".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True)) == answer
for wanted in (Reply, {"type": "json_object"}):
    assert json.loads(ask(response_format=wanted).choices[0].message.content) == {"answer": answer}
wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (litellm.BadRequestError, "'name' is a required property", {"response_format": Person}),
    (litellm.BadRequestError, "at least 1", {"messages": []}),
    (litellm.BadRequestError, "one answer", {"n": 2}),
    (litellm.AuthenticationError, "token is missing or wrong", {"api_key": "wrong"}),
    (litellm.NotFoundError, "POST /v1/chat/completions", {"api_base": served["base_url"].removesuffix("/v1")}),
]
for kind, said, options in wrong:
    try:
        ask(**options)
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError(f"nothing was raised that says {said}")
print("litellm", version("litellm"))
