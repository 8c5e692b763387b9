"""The keeper: the small process from which sandboxes are forked.

It starts without the rest of this package (see `agentgym_flow.sandbox.link`), so modules here import only the standard
library and this folder.
"""
