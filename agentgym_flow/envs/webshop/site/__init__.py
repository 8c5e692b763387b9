"""The shop as a web page: a person shops in the same environment as an agent, and every visit is recorded.

`agentgym-flow shop` serves it. The web server is in the extra `serve`; what writes and reads the logs
(`original_log`) and keeps the visits (`sessions`) works on the base install.
"""
