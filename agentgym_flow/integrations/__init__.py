"""Our environments in other projects' trainers: one module per package, which needs only that package.

`verifiers`, `openenv` and `skyrl` raise `MissingExtra` on import if their package is not installed. This module imports
nothing.
"""
