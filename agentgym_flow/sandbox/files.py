"""The files of the machine that a program needs: the interpreter, its library, and the system's libraries."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path, PurePosixPath

from agentgym_flow.errors import BadSetting
from agentgym_flow.sandbox.link import interpreter

_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_LOADER, _BASIC = ("ld-", "ld."), ("ld-", "ld.", "libc.", "libc-", "libm.", "libpython")

_LONGEST_NAME = 255


@cache
def readable() -> list[str]:
    """Return what a program may read: folders of libraries, none inside another, and links to them."""
    wanted = {*_SYSTEM, f"{sys.base_prefix}/lib", f"{sys.base_prefix}/{sys.platlibdir}"}
    wanted |= {os.path.dirname(file) for file in _loaded_libraries(_BASIC)}
    links = {path for path in wanted if os.path.islink(path) and os.path.realpath(os.path.dirname(path)) in path}
    places = {os.path.realpath(path) for path in wanted if os.path.exists(path)}
    outermost = {path for path in places if not any(str(above) in places for above in Path(path).parents)}
    return sorted(outermost) + sorted(links)


@cache
def executable() -> list[str]:
    """Return what a program may start: the interpreter, and the loader with which the kernel starts it."""
    return [os.path.realpath(file) for file in (interpreter(), *_loaded_libraries(_LOADER))]


def _loaded_libraries(prefixes: tuple[str, ...]) -> list[str]:
    """Return the libraries in this process whose names begin with one of `prefixes`."""
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    files = {line[line.index("/") :] for line in lines if "/" in line}
    return sorted(file for file in files if os.path.basename(file).startswith(prefixes) and os.path.exists(file))


def check_names(files: dict[str, str], room_mb: int) -> None:
    """Raise `BadSetting` if a name in `files` leads out of the program's folder, or the files do not fit into it."""
    folders = {str(above) for name in files for above in PurePosixPath(name).parents}
    for name in files:
        path = PurePosixPath(name)
        too_long = any(len(part.encode("utf-8", "surrogatepass")) > _LONGEST_NAME for part in path.parts)
        if name != str(path) or name in folders or path.is_absolute() or ".." in path.parts or "\0" in name or too_long:
            raise BadSetting(f"{name!r} is not a valid name in the program's folder; use a plain relative path.")
    rounding = 4096 * (len(files) + len(folders))  # files and folders take whole pages
    size = rounding + sum(len(text.encode("utf-8", "surrogatepass")) for text in files.values())
    if size > room_mb << 20:
        raise BadSetting(f"The program and its files take {size} bytes, more than Limits(disk_mb={room_mb}) allows.")
