"""The report: what was found in databases, in a ring and in a thread store, as one JSON object and one page.

`sealpoint.evidence.report.document` builds the object, and `sealpoint.evidence.report.page` the page from it.
The object's JSON Schema is ``schemas/report-1.json`` in the package `sealpoint`.
"""

from sealpoint.evidence.report.document import SCHEMA, Report
from sealpoint.evidence.report.page import render_page

__all__ = ["SCHEMA", "Report", "render_page"]
