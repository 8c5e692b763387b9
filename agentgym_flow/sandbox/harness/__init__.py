"""The code inside the two sandboxes of `check` and `call`: one side loads the program, the other runs the tests.

Both get copies of these files. Modules here import only the standard library, this folder and
`agentgym_flow.sandbox.keeper.wire`.
"""
