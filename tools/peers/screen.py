"""Run a program in a terminal and print its screen: `python screen.py PATTERN SECONDS COMMAND...`.

It ends when a line matches the pattern, or when the time has passed. Run with
pyte on the path, so by file and not as a module of ours.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from typing import Final

_COLUMNS: Final = 160
_LINES: Final = 40


def main(pattern: str, seconds: str, *command: str) -> int:
    import pyte  # type: ignore[import-not-found]  # it is installed beside the program that is looked at

    screen = pyte.Screen(_COLUMNS, _LINES)
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
        os.execv(command[0], command)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end and not any(re.search(pattern, line) for line in screen.display):
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                stream.feed(os.read(terminal, 1 << 16))
            except OSError:  # it has ended
                break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print("\n".join(line.rstrip() for line in screen.display))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
