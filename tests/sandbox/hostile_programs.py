"""Programs that try to get out of the sandbox. Each prints ESCAPED with its evidence when it succeeds.

They find what to attack in the module `target` beside them: OUTSIDE (a file with a secret that anyone may read and
write), FOLDER (its folder), PORT (a listener on the loopback interface), UNIX and ABSTRACT (listeners on local
sockets), DATAGRAM (an abstract one for datagrams), VICTIM (a process of the caller's user) and PARENT (the caller).

`HARMLESS` ones are also run without a sandbox, where they must succeed: an attack that cannot work proves nothing.
"""

from __future__ import annotations

PRELUDE = """
from target import *
def escaped(evidence=""):
    print("ESCAPED", evidence, flush=True)
"""

CTYPES = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result
"""

HARMLESS: dict[str, str] = {
    # files
    "read a file": "escaped(open(OUTSIDE).read())",
    "read the list of users": "escaped(open('/etc/passwd').read()[:10])",
    "append to a file": "open(OUTSIDE, 'a').write('x'); escaped()",
    "overwrite a file": "open(OUTSIDE, 'w').close(); escaped()",
    "create a file": "open(FOLDER + '/new', 'w').close(); escaped()",
    "create a folder": "import os; os.mkdir(FOLDER + '/new'); escaped()",
    "delete a file": "import os; os.remove(OUTSIDE); escaped()",
    "rename a file": "import os; os.rename(OUTSIDE, OUTSIDE + '.gone'); escaped()",
    "change the mode of a file": "import os; os.chmod(OUTSIDE, 0o600); escaped()",
    "change the times of a file": "import os; os.utime(OUTSIDE, (1, 1)); escaped()",
    "truncate a file by name": "import os; os.truncate(OUTSIDE, 0); escaped()",
    "set an attribute of a file": "import os; os.setxattr(OUTSIDE, 'user.a', b'x'); escaped()",
    "list a folder": "import os; escaped(os.listdir(FOLDER))",
    "follow a symbolic link": "import os; os.symlink(OUTSIDE, 'link'); escaped(open('link').read())",
    "make a symbolic link outside": "import os; os.symlink('/', FOLDER + '/link'); escaped()",
    "make a hard link": "import os; os.link(OUTSIDE, FOLDER + '/hard'); escaped()",
    "climb up": "escaped(open('../' * 20 + OUTSIDE).read())",
    "climb up by descriptors": """
import os
at = os.open(".", os.O_PATH)
for _ in range(20):
    at = os.open("..", os.O_PATH, dir_fd=at)
escaped(os.read(os.open(OUTSIDE[1:], os.O_RDONLY, dir_fd=at), 100))
""",
    "read through /proc/self/root": "escaped(open('/proc/self/root' + OUTSIDE).read())",
    "read through the caller's root": "escaped(open(f'/proc/{PARENT}/root' + OUTSIDE).read())",
    "read the caller's environment": "escaped(open(f'/proc/{PARENT}/environ').read(10))",
    "read the caller's command line": "escaped(open(f'/proc/{PARENT}/cmdline').read(10))",
    "list the caller's descriptors": "import os; escaped(os.listdir(f'/proc/{PARENT}/fd'))",
    "open the caller's memory": "open(f'/proc/{PARENT}/mem', 'rb').close(); escaped()",
    "see other processes": "import os; escaped([n for n in os.listdir('/proc') if n.isdigit()][:3])",
    "read the environment": "import os; escaped(os.environ['SANDBOX_TEST_SECRET'])",
    "open with a bare system call": CTYPES + "escaped(call('syscall', 2 if os.uname().machine == 'x86_64' else 56, "
    "*([] if os.uname().machine == 'x86_64' else [-100]), OUTSIDE.encode(), 0))",
    "watch a folder": CTYPES + "call('inotify_add_watch', call('inotify_init'), FOLDER.encode(), 0xFFF); escaped()",
    "map a file": "import mmap; f = open(OUTSIDE, 'rb'); escaped(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])",
    # the network
    "connect by TCP": "import socket; socket.create_connection(('127.0.0.1', PORT), 2); escaped()",
    "listen": "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); escaped(s.getsockname())",
    "send by UDP": """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT)); escaped()
""",
    "connect to a local socket": "import socket; socket.socket(socket.AF_UNIX).connect(UNIX); escaped()",
    "connect to an abstract socket": "import socket; socket.socket(socket.AF_UNIX).connect(ABSTRACT); escaped()",
    "turn a pair of sockets elsewhere": """
import socket
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
one.connect(DATAGRAM)
one.send(b"hello")
escaped()
""",
    "ask the kernel about the network": """
import socket
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).bind((0, 0)); escaped()
""",
    # other processes
    "send a signal": "import os; os.kill(VICTIM, 0); escaped()",
    "send a signal to all": "import os; os.kill(-1, 0); escaped()",
    "send a signal to the caller's group": "import os; os.killpg(os.getpgid(PARENT), 0); escaped()",
    "send a signal through a handle": """
import os, signal
signal.pidfd_send_signal(os.pidfd_open(VICTIM), 0); escaped()
""",
    "have the kernel send a signal": """
import fcntl, os
reader, writer = os.pipe()
fcntl.fcntl(reader, fcntl.F_SETOWN, VICTIM)
if fcntl.fcntl(reader, fcntl.F_GETOWN) == VICTIM:
    escaped()
""",
    "limit another process": "import resource; escaped(resource.prlimit(VICTIM, resource.RLIMIT_NOFILE))",
    "slow another process down": "import os; os.setpriority(os.PRIO_PROCESS, VICTIM, 19); escaped()",
    "bind another process to a core": "import os; os.sched_setaffinity(VICTIM, os.sched_getaffinity(0)); escaped()",
    # new processes
    "fork": "import os\nif os.fork() == 0:\n    escaped(); os._exit(0)\nos.wait()",
    "start a shell": "import os; os.system('echo ESCAPED')",
    "become a shell": "import os; os.execv('/bin/sh', ['sh', '-c', 'echo ESCAPED'])",
    "start a program": "import subprocess; escaped(subprocess.check_output(['/bin/echo', 'hi']))",
    "spawn a program": "import os; os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0); escaped()",
    "start the interpreter": "import subprocess, sys; escaped(subprocess.check_output([sys.executable, '-c', '1']))",
    "start a worker": """
import multiprocessing
def work(): escaped()
multiprocessing.get_context("fork").Process(target=work).start()
""",
    "fork with a bare system call": CTYPES
    + "if call('syscall', 57 if os.uname().machine == 'x86_64' else 220, 17, 0, 0, 0, 0) == 0:\n"
    "    os.write(1, b'ESCAPED'); os._exit(0)\n",
    # the kernel
    "have a disk written": CTYPES + "call('syncfs', os.open('.', 0)); escaped()",
    "share memory": CTYPES
    + "identifier = call('shmget', 0, 4096, 0o1600); escaped(); libc.shmctl(identifier, 0, None)",
    "make a file of memory": "import os; os.memfd_create('x'); escaped()",
    "read the clock of another's namespace": "import os; escaped(os.readlink(f'/proc/{PARENT}/ns/time'))",
}

# These need rights that not every caller has, or would harm the machine where they work.
OTHERS: dict[str, str] = {
    "trace another process": CTYPES + "call('ptrace', 16, VICTIM, 0, 0); escaped()",
    "read another's memory": CTYPES
    + "buffer = ctypes.create_string_buffer(64)\n"
    + "call('process_vm_readv', VICTIM, buffer, 1, buffer, 1, 0); escaped()",
    "change the root": "import os; os.mkdir('x'); os.chroot('x'); os.chdir('../' * 20); escaped(os.listdir('.'))",
    "mount": CTYPES + "call('mount', b'none', b'/work', b'tmpfs', 0, None); escaped()",
    "undo the mounts": CTYPES + "call('umount2', b'/work', 2); escaped()",
    "make a device": "import os, stat; os.mknod('sda', stat.S_IFBLK | 0o666, os.makedev(8, 0)); escaped()",
    "enter new namespaces": CTYPES + "call('unshare', 0x10000000 | 0x20000); escaped()",
    "enter the caller's namespaces": CTYPES + "call('setns', os.open(f'/proc/{PARENT}/ns/mnt', 0), 0); escaped()",
    "become root": "import os\ntry:\n    os.setuid(0)\nfinally:\n    open('/proc/1/mem'); escaped()",
    "load a program into the kernel": CTYPES
    + "call('syscall', 321 if os.uname().machine == 'x86_64' else 280, 0, ctypes.create_string_buffer(128), 128)\n"
    + "escaped()",
    "use the kernel's queue": CTYPES + "escaped(call('syscall', 425, 4, ctypes.create_string_buffer(120)))",
    "read the kernel's log": CTYPES + "escaped(call('klogctl', 3, ctypes.create_string_buffer(64), 64))",
    "set the clock": "import time; time.clock_settime(time.CLOCK_REALTIME, time.time()); escaped()",
    "rename the machine": "import socket; socket.sethostname(socket.gethostname()); escaped()",
    "store a key in the kernel": CTYPES
    + "call('syscall', 248 if os.uname().machine == 'x86_64' else 217, b'user', b'a', b'b', 1, -5); escaped()",
    "use inherited descriptors": """
import os
for descriptor in range(3, 1024):
    try:
        os.fstat(descriptor)
    except OSError:
        continue
    escaped(descriptor)
""",
    "write into what is read": "import os\nos.lseek(0, 0, 0)\nos.write(0, b'x'); escaped()",
    "open the terminal": "open('/dev/tty', 'w').write('hi'); escaped()",
    "open a device": """
for name in ("mem", "kmsg", "port", "sda", "vda", "nvme0n1", "loop0", "fuse", "kvm", "random", "ptmx", "full", "shm/x"):
    try:
        open("/dev/" + name, "w" if "/" in name else "r")
    except OSError:
        continue
    escaped(name)
""",
    "raise the limits": """
import resource
for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
    try:
        resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        continue
    escaped(kind)
""",
    "get the rights of root": CTYPES
    + "header = (ctypes.c_uint32 * 2)(0x20080522, 0)\n"
    + "data = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)\n"
    + "call('capset', header, data); escaped()",
    "change the interpreter": "import os; open(os.__file__, 'a').close(); escaped()",
    "leave bytecode behind": """
import os, sys
with open(os.path.dirname(os.__file__) + "/__pycache__/sandbox_test.pyc", "w") as file:
    escaped(file.name)
""",
    "import from the caller's packages": "import numpy; escaped(numpy.__file__)",
    "find out the caller's folder": "import sys; sys.path.append(FOLDER); import planted; escaped(planted.__file__)",
}
