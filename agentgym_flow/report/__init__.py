"""Reports as self-contained HTML files, and pictures as SVG. Needs no network and no torch."""

from agentgym_flow.report.charts import Curve
from agentgym_flow.report.page import WORKFLOW, graph_svg, render_report, write_report
from agentgym_flow.report.workflow import workflow_html, workflow_svg

__all__ = ["WORKFLOW", "Curve", "graph_svg", "render_report", "workflow_html", "workflow_svg", "write_report"]
