#!/usr/bin/env python3
"""An S3 store that takes the options of SeaweedFS, knows one pair of keys, and forgets everything when it ends."""

import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def main() -> None:
    """Serve port 8333 until SIGTERM."""
    (config,) = [word.partition("=")[2] for word in sys.argv if word.startswith("-s3.config=")]
    with open(config) as file:
        known = {key["accessKey"] for identity in json.load(file)["identities"] for key in identity["credentials"]}
    moto = DomainDispatcherApplication(create_backend_app)

    def store(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/healthz":
            start_response("200 OK", [])
            return [b"ok"]
        asked = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        if asked is None or asked[1] not in known:
            start_response("403 Forbidden", [])
            return [b"no such key"]
        return moto(environ, start_response)

    run_simple("0.0.0.0", 8333, store, threaded=True)


if __name__ == "__main__":
    main()
