"""What runs in the keeper: the small process from which sandboxes are forked. Standard library only.

The keeper is started without the rest of this package (see `agentgym_flow.sandbox.link`), so nothing here may import
from outside this folder.
"""
