"""A web site of the shop, where people act in the same environment as agents, and every visit is recorded.

`agentgym-flow shop` serves it. The web server needs the extra `serve`; the modules for logs (`original_log`) and visits
(`sessions`) work on the base install.
"""
