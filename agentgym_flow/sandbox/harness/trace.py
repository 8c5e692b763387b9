"""The line of a source text that an exception came from."""

from __future__ import annotations


def line_in(file: str, error: BaseException) -> int | None:
    """Return the innermost line of `file` in the traceback of `error`, or of a syntax error; `None` if not found."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
