"""Traces of episodes in MLflow, each written whole.

MLflow's own tracing sends every span by itself when it ends, and drops without an error what a server did not take: a server that is killed
meanwhile keeps half of a trace, which MLflow never reads again. Here all spans go out in one request, and only then what makes the trace
known: its name, tags, metadata and assessments.
"""

import time
from collections.abc import Mapping, Sequence

from mlflow.entities import (
    AssessmentSource,
    Expectation,
    Feedback,
    Trace,
    TraceData,
    TraceInfo,
    TraceLocation,
    TraceState,
)
from mlflow.entities.span import LiveSpan
from mlflow.tracing.client import TracingClient
from mlflow.tracing.constant import TRACE_SCHEMA_VERSION, TRACE_SCHEMA_VERSION_KEY, TraceMetadataKey, TraceTagKey
from mlflow.tracing.utils import add_size_stats_to_trace_metadata
from mlflow.tracing.utils.truncation import set_request_response_preview
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanContext, set_span_in_context

from slmsearch.foreign import one_line
from tasks.traces import EXPECTED, Assessment, Span
from tasks.tracking.service import PREFIX

TRACES_PER_WRITE = 16
MAX_CALLER_CHARS = 250
ASSESSMENT_ID = f"{PREFIX}feedback"
"""Key in the metadata of an assessment: id of the feedback it is of."""
_TRACER = TracerProvider(ALWAYS_ON, Resource.get_empty()).get_tracer("slmsearch")  # a resource's attributes would become tags


def write_traces(uri: str, experiment_id: str, traces: Sequence[tuple[Span, Mapping[str, str]]]) -> list[str]:
    """Write traces, root span and tags of each, which end now; return their ids. OTEL_SDK_DISABLED leaves them all out.

    They are a sample already, so that MLFLOW_TRACE_SAMPLING_RATIO does not thin them out.

    Raises:
        MlflowException: the store does not take them; none is half written.
    """
    if not isinstance(_TRACER, Tracer):  # OTEL_SDK_DISABLED
        return []
    client, made = TracingClient(uri), [_make_trace(root, tags, experiment_id) for root, tags in traces]
    for i in range(0, len(made), TRACES_PER_WRITE):
        together = made[i : i + TRACES_PER_WRITE]
        client.log_spans(experiment_id, [span for trace in together for span in trace.data.spans])
        for trace in together:
            client.start_trace(trace.info)
    return [str(trace.info.trace_id) for trace in made]


def to_mlflow(given: Assessment) -> Expectation | Feedback:
    """Return an assessment as MLflow's."""
    source = AssessmentSource(source_type=given.by, source_id=given.source)
    metadata = {ASSESSMENT_ID: given.id} if given.id else None
    made, at_ms = Expectation if given.name == EXPECTED else Feedback, given.created and given.created * 1000
    return made(name=given.name, value=given.value, source=source, metadata=metadata, create_time_ms=at_ms)


def _make_trace(root: Span, tags: Mapping[str, str], experiment_id: str) -> Trace:
    started, spans = time.time() - root.end_s, list[LiveSpan]()
    _add(spans, root, started, None)
    who = {TraceMetadataKey.TRACE_USER: root.caller.user, TraceMetadataKey.TRACE_SESSION: root.caller.session}
    info = TraceInfo(
        trace_id=spans[0].trace_id,
        trace_location=TraceLocation.from_experiment_id(experiment_id),
        request_time=int(started * 1000),
        execution_duration=int(1000 * root.end_s),
        state=TraceState.OK,
        tags={**tags, TraceTagKey.TRACE_NAME: root.name},
        trace_metadata={
            TRACE_SCHEMA_VERSION_KEY: str(TRACE_SCHEMA_VERSION),
            **{name: one_line(value)[:MAX_CALLER_CHARS] for name, value in who.items() if value},
        },
        assessments=[to_mlflow(one) for one in root.assessments],
    )
    for one in info.assessments:
        one.trace_id = info.trace_id
    trace = Trace(info, TraceData([span.to_immutable_span() for span in spans]))
    set_request_response_preview(info, trace.data)
    add_size_stats_to_trace_metadata(trace)
    return trace


def _add(spans: list[LiveSpan], span: Span, started: float, parent: Context | None) -> None:
    """Append a span and its children."""
    start_ns, end_ns = (int((started + at) * 1e9) for at in (span.start_s, span.end_s))
    links = [Link(SpanContext(int(trace, 16), int(of, 16), is_remote=True)) for trace, of in filter(None, [span.caller.parent])]
    begun = _TRACER.start_span(span.name, parent or Context(), start_time=start_ns, links=links)
    live = LiveSpan(begun, spans[0].trace_id if spans else f"tr-{begun.get_span_context().trace_id:032x}", span.kind)
    live.set_inputs(span.inputs)
    live.set_attributes(dict(span.attributes))
    spans.append(live)
    for child in span.children:
        _add(spans, child, started, set_span_in_context(begun))
    live.end(outputs=span.outputs, end_time_ns=end_ns)
