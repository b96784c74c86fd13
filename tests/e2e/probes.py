"""Requests that must be turned away: as strangers, other sites' pages, and careless clients send them."""

import base64
from dataclasses import dataclass, field

PREFECT, MLFLOW = "prefect_door", "mlflow_door"
"""The proxy's two ports; `prefect` and `mlflow` are the servers behind, as another container reaches them."""


@dataclass(frozen=True)
class Probe:
    """A request and who sends it."""

    what: str
    door: str
    method: str
    path: str
    auth: str = ""
    """Empty: none; `right`, `wrong`, `other` (that of the other server), or scheme and credentials themselves."""
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    refused: tuple[int, ...] = (401,)


JSON = {"Content-Type": "application/json"}
EVIL = {**JSON, "Origin": "https://evil.example"}
NEIGHBOUR = {**JSON, "Origin": "http://localhost:3000"}
NAVIGATION = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
REBOUND = {**JSON, "Host": "rebind.example"}
RUNS, VARIABLES = "/api/flow_runs/filter", "/api/variables/"
SEARCH, CREATE = "/api/2.0/mlflow/experiments/search", "/api/2.0/mlflow/experiments/create"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"
ANY, VARIABLE, NAMED = '{"max_results": 1}', '{"name": "x", "value": "1"}', '{"name": "x"}'
USER = '{"username": "x", "password": "0123456789ab"}'
OLD_DEFAULT = "Basic " + base64.b64encode(b"admin:password1234").decode()
FORBIDDEN, MISDIRECTED = (403,), (421,)

STRANGERS = [
    Probe("the page of Prefect", PREFECT, "GET", "/"),
    Probe("its settings", PREFECT, "GET", "/ui-settings"),
    Probe("its API's description", PREFECT, "GET", "/api/openapi.json"),
    Probe("health, open inside for health checks", PREFECT, "GET", "/api/health"),
    Probe("reading flow runs", PREFECT, "POST", RUNS, headers=JSON, body="{}"),
    Probe("submitting code", PREFECT, "POST", "/api/deployments/", headers=JSON, body='{"name": "x", "flow_id": "x"}'),
    Probe("a path that ends like the open one", PREFECT, "GET", "/api/variables/name/health"),
    Probe("a path that goes through the open one", PREFECT, "GET", "/api/health/../flows/count"),
    Probe("the same, encoded", PREFECT, "POST", "/api/health/%2e%2e/flows/filter", body="{}"),
    Probe("a path that goes through a web socket's", PREFECT, "POST", "/api/events/in/../../flows/filter", headers=JSON, body="{}"),
    Probe("a web socket's path, as a page", PREFECT, "POST", "/api/events/in", headers=JSON, body="{}", refused=(401, 403, 404, 405)),
    Probe("the page of MLflow", MLFLOW, "GET", "/"),
    Probe("reading experiments", MLFLOW, "POST", SEARCH, headers=JSON, body=ANY),
    Probe("the same by the page's own path", MLFLOW, "POST", SEARCH.replace("api", "ajax-api", 1), headers=JSON, body=ANY),
    Probe("reading artifacts", MLFLOW, "GET", f"{ARTIFACTS}?path=."),
    Probe("writing an artifact", MLFLOW, "PUT", f"{ARTIFACTS}/x/evil.txt", body="evil"),
    Probe("an artifact by the old path", MLFLOW, "GET", "/get-artifact?path=model&run_uuid=0"),
    Probe("a model's file", MLFLOW, "GET", "/model-versions/get-artifact?name=x&version=1&path=../../x"),
    Probe("GraphQL", MLFLOW, "POST", "/graphql", headers=JSON, body='{"query": "{__typename}"}'),
    Probe("making a user", MLFLOW, "POST", "/api/2.0/mlflow/users/create", headers=JSON, body=USER),
    Probe("signing up", MLFLOW, "GET", "/signup"),
]
WRONG_KEYS = [
    Probe("a wrong password", PREFECT, "POST", RUNS, "wrong", JSON, "{}"),
    Probe("another scheme", PREFECT, "POST", RUNS, "Bearer 0123456789", JSON, "{}"),
    Probe("no base64", PREFECT, "POST", RUNS, "Basic %%%", JSON, "{}", (400, 401)),
    Probe("the old default password of MLflow", MLFLOW, "POST", SEARCH, OLD_DEFAULT, JSON, ANY),
    Probe("the password of the other server", MLFLOW, "POST", SEARCH, "other", JSON, ANY),
]
OTHER_SITES = [  # in the browser of somebody who has signed in
    Probe("another site reads", PREFECT, "POST", RUNS, "right", EVIL, "{}", FORBIDDEN),
    Probe("another site writes", PREFECT, "POST", VARIABLES, "right", EVIL, VARIABLE, FORBIDDEN),
    Probe("a neighbour on this machine", PREFECT, "POST", RUNS, "right", NEIGHBOUR, "{}", FORBIDDEN),
    Probe("a file or a sandboxed frame", PREFECT, "POST", RUNS, "right", {**JSON, "Origin": "null"}, "{}", FORBIDDEN),
    Probe("asking beforehand", PREFECT, "OPTIONS", RUNS, "", {**EVIL, "Access-Control-Request-Method": "POST"}, "", (401, 403)),
    Probe("a form, without Origin", PREFECT, "POST", RUNS, "right", {"Sec-Fetch-Site": "cross-site"}, "{}", FORBIDDEN),
    Probe("a picture", PREFECT, "GET", "/api/health", "right", {**NAVIGATION, "Sec-Fetch-Mode": "no-cors"}, "", FORBIDDEN),
    Probe("a frame", PREFECT, "GET", "/", "right", {**NAVIGATION, "Sec-Fetch-Dest": "iframe"}, "", FORBIDDEN),
    Probe("a link that posts", PREFECT, "POST", RUNS, "right", NAVIGATION, "{}", FORBIDDEN),
    Probe("a write without a token", PREFECT, "POST", VARIABLES, "right", JSON, VARIABLE, FORBIDDEN),
    Probe("a write with a made-up token", PREFECT, "POST", VARIABLES, "right",
        {**JSON, "Prefect-Csrf-Token": "0" * 32, "Prefect-Csrf-Client": "x"}, VARIABLE, FORBIDDEN),
    Probe("another site at MLflow", MLFLOW, "POST", CREATE, "right", EVIL, NAMED, FORBIDDEN),
    Probe("a neighbour, whom MLflow itself trusts", MLFLOW, "POST", CREATE, "right", NEIGHBOUR, NAMED, FORBIDDEN),
    Probe("Prefect's page at MLflow", MLFLOW, "POST", CREATE, "right", {**JSON, "Sec-Fetch-Site": "same-site"}, NAMED, FORBIDDEN),
]  # fmt: skip
REBINDING = [  # a name that points here
    Probe("DNS rebinding", PREFECT, "POST", RUNS, "right", REBOUND, "{}", MISDIRECTED),
    Probe("the same with a port", PREFECT, "POST", RUNS, "right", {**JSON, "Host": "rebind.example:4200"}, "{}", MISDIRECTED),
    Probe("another port of this machine", PREFECT, "GET", "/", "right", {"Host": "127.0.0.1:1"}, "", MISDIRECTED),
    Probe("a name that begins with the right one", PREFECT, "GET", "/", "right", {"Host": "127.0.0.1.rebind.example"}, "", MISDIRECTED),
    Probe("no name", PREFECT, "GET", "/", "right", {"Host": ""}, "", (400, 421)),
    Probe("DNS rebinding at MLflow", MLFLOW, "GET", "/", "right", {"Host": "rebind.example"}, "", MISDIRECTED),
    Probe("a forwarded name beside", MLFLOW, "GET", "/", "right", {**REBOUND, "X-Forwarded-Host": "127.0.0.1"}, "", MISDIRECTED),
]
WITH_THE_KEY = [  # what is not there to be had
    Probe("a file outside the artifacts", MLFLOW, "GET", f"{ARTIFACTS}/..%2f..%2f..%2fetc%2fpasswd", "right", {}, "", (400, 404)),
    Probe("writing outside", MLFLOW, "PUT", f"{ARTIFACTS}/..%2f..%2fevil.txt", "right", {}, "evil", (400, 404)),
]
PAST_THE_DOOR = [  # from another container
    Probe("Prefect itself", "prefect", "POST", RUNS, "", JSON, "{}", (401, 403)),
    Probe("Prefect itself, a wrong password", "prefect", "POST", RUNS, "wrong", JSON, "{}", (401, 403)),
    Probe("Prefect itself, reading", "prefect", "GET", "/api/admin/version"),
    Probe("Prefect itself, asking for a token", "prefect", "GET", "/api/csrf-token?client=x"),
    Probe("Prefect itself, a write without a token", "prefect", "POST", VARIABLES, "right", JSON, VARIABLE, FORBIDDEN),
    Probe("MLflow itself", "mlflow", "POST", SEARCH, "", JSON, ANY),
    Probe("MLflow itself, another name", "mlflow", "POST", SEARCH, "right", REBOUND, ANY, FORBIDDEN),
    Probe("MLflow itself, another site", "mlflow", "POST", CREATE, "right", EVIL, NAMED, FORBIDDEN),
]
PROBES = [*STRANGERS, *WRONG_KEYS, *OTHER_SITES, *REBINDING, *WITH_THE_KEY, *PAST_THE_DOOR]
