"""Status endpoints of a running service, for every protocol: health, readiness, metrics."""

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from slmsearch.serving.api.searcher_service import SearcherService


def add_status(app: FastAPI, service: SearcherService) -> None:
    """Add `/health`, `/ready` and `/metrics` to an application."""

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Report that the process lives."""
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Report whether questions are answered at once; 503 while the policy loads, and when the service stops."""
        return JSONResponse({"status": service.state}, 200 if service.state == "ready" else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Return metrics in Prometheus' text format."""
        return Response(service.metrics.render(), media_type=CONTENT_TYPE_LATEST)
