"""Reports a person can open: one self-contained HTML file, or a state graph as SVG. Needs no network and no torch."""

from agentgym_flow.report.curves import Curve
from agentgym_flow.report.page import graph_svg, render_report, write_report

__all__ = ["Curve", "graph_svg", "render_report", "write_report"]
