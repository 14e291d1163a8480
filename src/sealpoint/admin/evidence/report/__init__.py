"""The report: what was found in databases, in a ring and in a thread store, as one JSON object and one page.

`document` builds the object, and the page from it.
The object's JSON Schema is ``schemas/report-1.json`` in the package `sealpoint`.
"""

from sealpoint.admin.evidence.report.document import SCHEMA, Report, render_page

__all__ = ["SCHEMA", "Report", "render_page"]
