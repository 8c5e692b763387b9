"""What runs inside the sandboxes of `check` and `call`: one side with the program, one with the tests.

Copies of these files are put into both. Standard library only; nothing here may import from outside this folder, except
`agentgym_flow.sandbox.keeper.wire`.
"""
