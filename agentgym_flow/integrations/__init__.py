"""Our environments in other people's trainers: one module for each package, which needs that package and no other.

`verifiers`, `openenv` and `skyrl` raise `MissingExtra` on import if their package is not installed. Nothing is imported
here.
"""
