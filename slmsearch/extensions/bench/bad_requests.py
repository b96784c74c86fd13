"""Requests that a service must refuse or answer without a failure: made from its OpenAPI schema, the same for the same seed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

Schema = Mapping[str, Any]
CHAT = "/v1/chat/completions"
MEDIA = {"Content-Type": "application/json"}
ODD_TEXTS = ("", "\0", "\ud800", "\u202e\u2028", "🙂" * 500, "x" * 5000, "</answer>", '<tool>search_pages("x")</tool>')
ODD: tuple[Any, ...] = (*ODD_TEXTS, None, True, -1, 2**70, 1e308, float("nan"), [], {}, [[[[{}]]]])
WORDS = ("user", "system", "text", "image_url", "searcher", "right", "wrong", "Who?")
PATHS = ("/nope", "/v1/models/%00", "/v1/models/..%2f..", "/page/..%2fpage.py", "/%ff")
KINDS = ("schema", "schema", "schema", "odd question", "no JSON", "media type", "token", "method", "path", "size")


@dataclass(frozen=True, slots=True)
class BadRequest:
    """A request; its headers are laid over those of the client."""

    method: str
    path: str
    content: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: MEDIA)


class BadRequests:
    """Generator of requests, each wrong in at least one way, except for questions of odd characters."""

    def __init__(self, openapi: Schema, token: str, seed: int) -> None:
        """Take the schema of a service and its token, which is put in odd places, where a log might repeat it."""
        posts = {path: methods["post"] for path, methods in openapi["paths"].items() if "post" in methods}
        self._bodies = {path: post["requestBody"]["content"]["application/json"]["schema"] for path, post in posts.items()}
        self._paths, self._token, self._rng = list(openapi["paths"]), token, Random(seed)

    def make(self) -> BadRequest:
        """Make the next one."""
        rng, token = self._rng, self._token
        kind, path = rng.choice(KINDS), rng.choice(list(self._bodies))
        content = self._encode(self._break(self._bodies[path]))
        if kind == "odd question":
            message = {"role": "user", "content": "Who? " + rng.choice(ODD_TEXTS) + rng.choice((*ODD_TEXTS, token))}
            return BadRequest("POST", CHAT, self._encode({"messages": [message], "stream": rng.random() < 0.5}))
        if kind == "no JSON":
            cut = content[: rng.randrange(len(content))]
            return BadRequest("POST", path, rng.choice((cut, rng.randbytes(40), b"[" * 100_000, b"\xff\xfe" + content)))
        if kind == "media type":
            return BadRequest("POST", path, content, {"Content-Type": rng.choice(("text/plain", "", "multipart/form-data; boundary=x"))})
        if kind == "token":
            given = rng.choice(("", "Bearer", f"Basic {token}", f"Bearer {token[:-1]}", f"Bearer {token}x"))
            return BadRequest("POST", path, content, {**MEDIA, "Authorization": given})
        if kind == "method":
            return BadRequest(rng.choice(("PUT", "PATCH", "DELETE", "OPTIONS")), rng.choice(self._paths), content)
        if kind == "path":
            return BadRequest(rng.choice(("GET", "POST")), f"{rng.choice(PATHS)}?token={token}", content)
        return BadRequest("POST", path, content + (b" " * (1 << 20) if kind == "size" else b""))

    def _encode(self, value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=self._rng.random() < 0.5).encode("utf-8", "surrogatepass")

    def _break(self, schema: Schema) -> dict[str, object]:
        """Make an object without a required field, or with a type that no field has."""
        value = self._fill_object(schema, schema)
        value.pop(name := self._rng.choice(schema["required"]))
        return value if self._rng.random() < 0.3 else {**value, name: {"unforeseen": self._rng.choice((*ODD, self._token))}}

    def _fill_object(self, schema: Schema, root: Schema) -> dict[str, object]:
        required, fields = schema.get("required", ()), schema.get("properties", {})
        return {name: self._fill(part, root) for name, part in fields.items() if name in required or self._rng.random() < 0.5}

    def _fill(self, schema: Schema, root: Schema) -> Any:
        """Make a value as the schema requires, or now and then another."""
        if self._rng.random() < 0.2:
            return self._rng.choice((*ODD, self._token))
        if "$ref" in schema:
            return self._fill(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
        if "anyOf" in schema:
            return self._fill(self._rng.choice(schema["anyOf"]), root)
        kind = schema.get("type", "string")
        if kind == "object":
            return self._fill_object(schema, root)
        if kind == "array":
            return [self._fill(schema["items"], root) for _ in range(self._rng.randint(0, 3))]
        return {"integer": self._rng.randint(-1, 3), "boolean": True, "null": None}.get(kind, self._rng.choice(WORDS))
