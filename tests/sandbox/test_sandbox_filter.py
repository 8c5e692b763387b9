"""The filter for system calls: its numbers are the system's, and its jumps lead where they should."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from agentgym_flow.sandbox.keeper import seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, ABSENT = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
HEADERS = {
    "x86_64": ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"],
    "aarch64": ["/usr/include/asm-generic/unistd.h"],
}
BY_NAME = (
    seccomp.REFUSED | seccomp.REFUSED_WITHOUT_OWN_ROOT | seccomp.NEW_PROCESS | seccomp.ON_ITSELF | seccomp.BY_ARGUMENT
)


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_numbers_are_those_of_the_system(machine: str) -> None:
    header = next((Path(path) for path in HEADERS[machine] if Path(path).exists()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text("utf-8"))
    known = {name: int(number) for name, number in found}
    column = list(seccomp.ARCHITECTURES).index(machine)
    for name, row in BY_NAME.items():
        if name in known or row[column] is None:
            assert row[column] == known.get(name), name
    assert len([name for name in BY_NAME if name in known]) > 70


def answer(code: bytes, number: int, arguments: tuple[int, ...] = (), architecture: int | None = None) -> int:
    """Run the filter as the kernel does and return its answer."""
    record = struct.pack(
        "=IIQ6Q", number, architecture or seccomp.ARCHITECTURES["x86_64"], 0, *(*arguments, *[0] * 6)[:6]
    )
    steps: list[tuple[int, int, int, int]] = list(struct.iter_unpack("=HBBI", code))
    word: int = 0
    at = 0
    while True:
        kind, if_true, if_false, value = steps[at]
        at += 1
        if kind == 0x20:
            (word,) = struct.unpack_from("=I", record, value)
        elif kind == 0x06:
            return value
        else:
            holds = {0x15: word == value, 0x25: word > value, 0x45: bool(word & value)}[kind]
            at += if_true if holds else if_false


def nr(name: str) -> int:
    number = BY_NAME[name][0]
    assert number is not None
    return number


STRICT = seccomp.program("x86_64", own_root=False, processes=False, pid=77)
LOOSE = seccomp.program("x86_64", own_root=True, processes=True, pid=None)


@pytest.mark.parametrize("code", [STRICT, LOOSE])
def test_dangerous_calls_are_refused_by_both_filters(code: bytes) -> None:
    for name in seccomp.REFUSED:
        assert answer(code, nr(name)) == REFUSE, name
    assert answer(code, nr("clone3")) == ABSENT
    assert answer(code, 462) == ABSENT
    assert answer(code, 2**30 + 41) == ABSENT
    assert answer(code, 41, architecture=0x40000003) == KILL
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert answer(code, nr("clone"), (flag | 0x00010000 | 0x100,)) == REFUSE
    assert answer(code, nr("socketpair"), (1, 1 | 0x80000)) == ALLOW
    assert answer(code, nr("socketpair"), (1, 2 | 0x80000)) == REFUSE
    assert answer(code, nr("fcntl"), (3, 8, 1)) == REFUSE
    assert answer(code, nr("fcntl"), (3, 1)) == ALLOW
    assert answer(code, nr("ioctl"), (0, 0x5412)) == REFUSE
    assert answer(code, nr("ioctl"), (0, 0x5401)) == ALLOW
    for read_write_open_mmap_exec in (0, 1, 2, 9, 59, 257):
        assert answer(code, read_write_open_mmap_exec) == ALLOW


def test_strict_refuses_new_processes_and_signals_and_loose_allows_them() -> None:
    for name in (*seccomp.REFUSED_WITHOUT_OWN_ROOT, *seccomp.NEW_PROCESS):
        assert answer(STRICT, nr(name)) == REFUSE, name
        assert answer(LOOSE, nr(name)) == ALLOW, name
    thread, process = 0x003D0F00, 17
    assert answer(STRICT, nr("clone"), (thread,)) == ALLOW
    assert answer(STRICT, nr("clone"), (process,)) == REFUSE
    assert answer(LOOSE, nr("clone"), (process,)) == ALLOW
    for name in seccomp.ON_ITSELF:
        assert answer(STRICT, nr(name), (77, 9)) == ALLOW
        assert answer(STRICT, nr(name), (78, 9)) == REFUSE
        assert answer(STRICT, nr(name), (0xFFFFFFFF, 9)) == REFUSE
        assert answer(LOOSE, nr(name), (78, 9)) == ALLOW
    assert answer(STRICT, nr("prlimit64"), (0, 1)) == ALLOW
    assert answer(STRICT, nr("prlimit64"), (78, 1)) == REFUSE


def test_the_other_architecture_has_its_own_numbers() -> None:
    code = seccomp.program("aarch64", own_root=True, processes=False, pid=None)
    arm = seccomp.ARCHITECTURES["aarch64"]
    assert answer(code, 198, architecture=arm) == REFUSE  # socket
    assert answer(code, 41, architecture=arm) == REFUSE  # pivot_root
    assert answer(code, 63, architecture=arm) == ALLOW  # read
    assert answer(code, 220, (17,), architecture=arm) == REFUSE  # clone without a thread
    assert answer(code, 198) == KILL


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(OSError, match="x86_64, aarch64, not vax"):
        seccomp.numbers("vax")
