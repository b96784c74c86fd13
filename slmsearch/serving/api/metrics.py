"""Prometheus metrics of the service."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
ABANDONED = "abandoned"
"""Outcome of a request whose client hung up."""
SERVED_CALL = "served_call"
"""Outcome of a call of a tool, which is no question."""


class ServiceMetrics:
    """The metrics of one service, in a registry of its own."""

    def __init__(self, count_waiting: Callable[[], int]) -> None:
        """Create the metrics; `count_waiting` returns the length of the queue."""
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "slmsearch_requests", "Questions by outcome: a stop reason, or the code of an error", ["outcome"], registry=self.registry
        )
        self.seconds = Histogram(
            "slmsearch_answer_seconds", "From question to answer, waiting included", buckets=SECONDS, registry=self.registry
        )
        self.batch = Histogram("slmsearch_batch_size", "Questions played together", buckets=BATCHES, registry=self.registry)
        self.feedback = Counter("slmsearch_feedback", "Answers that somebody called so", ["verdict"], registry=self.registry)
        self.restarts = Counter(
            "slmsearch_model_restarts", "Starts of a model process in the place of one that died", registry=self.registry
        )
        self._model = Gauge("slmsearch_model_info", "1 for the version that plays", ["version", "index_key"], registry=self.registry)
        Gauge("slmsearch_waiting_questions", "Length of the queue", registry=self.registry).set_function(count_waiting)

    def show_model(self, version: str, index_key: str) -> None:
        """Set the version that plays."""
        self._model.clear()
        self._model.labels(version, index_key).set(1)

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)
