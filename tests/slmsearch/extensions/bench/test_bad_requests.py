"""Bad requests made from the schema of a service."""

from pathlib import Path

from slmsearch.extensions.bench.bad_requests import CHAT, BadRequests
from slmsearch.serving.api.app import FEEDBACK, make_app
from slmsearch.serving.api.feedback import FeedbackLog
from slmsearch.serving.api.searcher_service import SearcherService
from tests.slmsearch.serving.api.fakes import served, settings


def test_every_body_of_the_service_is_broken_and_a_seed_gives_the_same_requests(tmp_path: Path) -> None:
    openapi = make_app(SearcherService(served(), settings()), None, FeedbackLog(tmp_path / "feedback.jsonl")).openapi()
    first, again = (BadRequests(openapi, "token", seed=0) for _ in range(2))
    made = [first.make() for _ in range(1000)]
    assert made == [again.make() for _ in range(1000)]
    assert {request.path for request in made} >= {CHAT, FEEDBACK} and any(b"json_schema" in request.content for request in made)
