"""The web page at `/`: its files and headers."""

from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import Response

from slmsearch.serving.api.protocol import ApiError

FILES = files("slmsearch.serving.api") / "files"
TYPES = {
    "page.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "reply.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
POLICY = {  # the browser runs only these files, contacts only this service, and turns no text into markup
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
    "X-Frame-Options": "DENY",
    "Cache-Control": "private, no-cache",
}


def add_page(app: FastAPI) -> None:
    """Let an application serve the page at `/`, and its style and scripts beside it."""
    held = {name: Response((FILES / name).read_bytes(), media_type=kind, headers=HEADERS) for name, kind in TYPES.items()}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        """Return the page."""
        return held["page.html"]

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        """Return a file of the page."""
        if name not in held:
            raise ApiError(404, "not_found", "the page has no such file")
        return held[name]
