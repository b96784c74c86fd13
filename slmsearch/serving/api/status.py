"""What a running service says of itself, whichever protocol it speaks: that it lives, that it is ready, its metrics."""

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from slmsearch.serving.api.searcher_service import SearcherService


def add_status(app: FastAPI, service: SearcherService) -> None:
    """Let an application answer at `/health`, `/ready` and `/metrics`."""

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Say that the process lives."""
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Say whether questions are answered at once; 503 while the policy is loaded, and when the service stops."""
        return JSONResponse({"status": service.state}, 200 if service.state == "ready" else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Give metrics as Prometheus reads them."""
        return Response(service.metrics.render(), media_type=CONTENT_TYPE_LATEST)
