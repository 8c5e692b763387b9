"""Which system calls a program in the sandbox is refused, with their numbers on each architecture.

A number is `None` where the architecture lacks the call. `tests/sandbox/test_sandbox_filter.py` compares the table with
the system's headers.
"""

from __future__ import annotations

from typing import NamedTuple

Table = dict[str, tuple[int | None, int | None]]

# Names in `os.uname().machine`, in the order of the columns below, with the kernel's number of the architecture.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEWEST = 450  # later system calls are answered as an older kernel would: there is no such call

# Nothing here is of use to a program that reads, computes and writes into its own folder.
REFUSED: Table = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # the network; of `socketpair`, which event loops need, streams stay: a datagram pair can be connected elsewhere
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    # namespaces and mounts
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    # memory that no limit of a process counts, and queues of others
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # wide doors into the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_setup": (206, 0),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    # the machine as a whole
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "vhangup": (153, 58),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
}

# Changes to files by name that Landlock does not rule. In a root of its own a program can reach nothing with them.
REFUSED_WITHOUT_OWN_ROOT: Table = {
    "truncate": (76, 45),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}

NEW_PROCESS: Table = {"fork": (57, None), "vfork": (58, None)}
CLONE = {"clone": (56, 220)}
CLONE3 = {"clone3": (435, 435)}  # its arguments lie in memory, where a filter cannot look

# Calls whose first argument is a process: only itself may be named.
ON_ITSELF: Table = {"kill": (62, 129), "tgkill": (234, 131), "rt_tgsigqueueinfo": (297, 240)}
LIMITS = {"prlimit64": (302, 261)}

# Calls with many uses, told apart by their second argument.
SOCKETPAIR, STREAMS = {"socketpair": (53, 199)}, tuple(1 | flags for flags in (0, 0x800, 0x80000, 0x80800))
FCNTL, SIGNAL_OWNER = {"fcntl": (72, 25)}, (8, 10, 15)  # would have the kernel send signals on the program's behalf
# The same; typing into a terminal; and changing flags of files that can only be read.
IOCTL, HARMFUL = {"ioctl": (16, 29)}, (0x8901, 0x8902, 0x5412, 0x541C, 0x40086602, 0x401C5820)


class Numbers(NamedTuple):
    """The tables above for one architecture."""

    architecture: int
    refused: list[int]
    refused_without_own_root: list[int]
    new_process: list[int]
    clone: int
    clone3: int
    on_itself: list[int]
    limits: int
    socketpair: int
    fcntl: int
    ioctl: int


def numbers(machine: str) -> Numbers:
    """Return the numbers for `machine`, as `os.uname().machine` names it. Raises `OSError` for one not in the table."""
    if machine not in ARCHITECTURES:
        raise OSError(f"the filter for system calls knows {', '.join(ARCHITECTURES)}, not {machine}")
    column = list(ARCHITECTURES).index(machine)

    def of(table: Table) -> list[int]:
        return [number for row in table.values() if (number := row[column]) is not None]

    return Numbers(
        ARCHITECTURES[machine],
        of(REFUSED),
        of(REFUSED_WITHOUT_OWN_ROOT),
        of(NEW_PROCESS),
        CLONE["clone"][column],
        CLONE3["clone3"][column],
        of(ON_ITSELF),
        LIMITS["prlimit64"][column],
        SOCKETPAIR["socketpair"][column],
        FCNTL["fcntl"][column],
        IOCTL["ioctl"][column],
    )
