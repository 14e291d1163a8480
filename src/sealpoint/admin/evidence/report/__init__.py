"""The report: findings about databases, a ring and a thread store, as one JSON object and one HTML page.

The module `document` builds the object, and the page from the object.
The object's JSON Schema is ``schemas/report-1.json`` in the package `sealpoint`.
"""

from sealpoint.admin.evidence.report.document import SCHEMA, Report, render_page

__all__ = ["SCHEMA", "Report", "render_page"]
