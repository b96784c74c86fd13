"""One run, or several side by side, as one HTML page that needs nothing from outside."""

from slmsearch.report.page.render import render_page
from slmsearch.report.page.results import RunResults

__all__ = ["RunResults", "render_page"]
