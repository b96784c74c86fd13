"""The official Python client of OpenAI: models, a question both ways, JSON, and what is refused."""

import json
import sys
from typing import Any

import openai
from pydantic import BaseModel

served = json.loads(sys.argv[1])
client = openai.OpenAI(base_url=served["base_url"], api_key=served["token"], max_retries=0)
messages: Any = [{"role": "user", "content": served["question"]}]
asked: Any = {"model": "searcher", "messages": messages}
tool: Any = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}


class Reply(BaseModel):
    answer: str


class Person(BaseModel):
    name: str
    age: int


assert [model.id for model in client.models.list()] == ["searcher"]
whole: Any = client.chat.completions.create(**asked, n=1, tools=[tool], tool_choice="none")
assert whole.choices[0].message.content == served["answer"] and whole.slmsearch["sources"] and whole.usage.total_tokens > 0
chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == served["answer"]
assert chunks[-1].usage == whole.usage
assert client.chat.completions.create(model=None, messages=messages).choices[0].message.content == served["answer"]  # type: ignore[call-overload]

parsed = client.chat.completions.parse(**asked, response_format=Reply).choices[0].message.parsed
assert parsed == Reply(answer=served["answer"])
with client.chat.completions.stream(**asked, response_format=Reply) as stream:
    assert stream.get_final_completion().choices[0].message.parsed == parsed
as_object = client.chat.completions.create(**asked, response_format={"type": "json_object"}).choices[0].message.content
assert json.loads(as_object or "") == {"answer": served["answer"]}


def refused(kind: type[openai.APIStatusError], ask: Any, param: str | None, said: str) -> None:
    try:
        ask()
    except kind as error:
        assert error.param == param and said in error.message, error
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


refused(openai.BadRequestError, lambda: client.chat.completions.parse(**asked, response_format=Person), "response_format", "'name'")
refused(openai.BadRequestError, lambda: client.chat.completions.create(**asked, tools=[tool]), "tools", "its own tools")
refused(openai.BadRequestError, lambda: client.chat.completions.create(model="searcher", messages=[]), "messages", "at least 1")
refused(openai.NotFoundError, lambda: client.models.retrieve("gpt"), "model", "one model here, searcher")
refused(openai.NotFoundError, lambda: client.responses.create(model="searcher", input="?"), None, "POST /v1/chat/completions")
refused(openai.NotFoundError, lambda: client.completions.create(model="searcher", prompt="?"), None, "POST /v1/chat/completions")
refused(openai.AuthenticationError, client.copy(api_key="wrong").models.list, None, "token is missing or wrong")
print("openai", openai.__version__)
