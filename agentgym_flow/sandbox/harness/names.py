"""The names that tests use without defining them."""

from __future__ import annotations

import builtins
import symtable


def free_names(tests: str) -> set[str]:
    """Return the names that `tests` reads and does not set, except builtins. Raises `SyntaxError`."""
    top = symtable.symtable(tests, "tests.py", "exec")
    own = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    read: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        read |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (symbol.is_global() or table is top)
        }
    return {name for name in read - own if not hasattr(builtins, name)}
