"""LangChain's client: a question both ways, several at once, structured output, and what is refused."""

import json
import sys
from importlib.metadata import version
from typing import Any

from langchain_openai import ChatOpenAI
from pydantic import BaseModel

served = json.loads(sys.argv[1])
connection: Any = {"model": "searcher", "base_url": served["base_url"], "api_key": served["token"], "max_retries": 0}
model = ChatOpenAI(**connection)
question, answer = served["question"], served["answer"]


class Reply(BaseModel):
    """What was found."""

    answer: str


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


message = model.invoke(question)
assert message.content == answer and message.usage_metadata is not None and message.usage_metadata["output_tokens"] > 0
assert "".join(str(chunk.content) for chunk in model.stream(question)) == answer
assert [one.content for one in model.batch([question, question])] == [answer, answer]
assert model.bind_tools([Reply], tool_choice="none").invoke(question).content == answer
assert model.with_structured_output(Reply).invoke(question) == Reply(answer=answer)
assert model.with_structured_output(Reply, method="json_mode").invoke(question) == Reply(answer=answer)
assert list(model.with_structured_output(Reply).stream(question))[-1] == Reply(answer=answer)
wrong: Any = {
    "'name' is a required property": model.with_structured_output(Person),
    "its own tools": model.with_structured_output(Reply, method="function_calling"),
    "POST /v1/chat/completions": ChatOpenAI(**connection, use_responses_api=True),
}
for said, asking in wrong.items():
    try:
        asking.invoke(question)
    except Exception as error:
        assert said in str(error), error
    else:
        raise AssertionError(f"nothing was raised that says {said}")
print("langchain-openai", version("langchain-openai"))
