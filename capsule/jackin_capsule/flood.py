"""Room for a flood of output: the caller's pipes take a whole frame at a time.

A pipe's 64 KiB are four waits, ours and the reader's, for each frame. It refuses to know what
flows. Invariants: a pipe only grows; what is no pipe, or may not grow, is left as it is.
"""

from fcntl import fcntl

# Linux's numbers (fcntl.h): the module knows them by name since Python 3.10 only.
F_SETPIPE_SZ = 1031
F_GETPIPE_SZ = 1032
PIPE_BYTES = 256 * 1024  # a data frame's most


def widen(streams: "tuple[int, ...]") -> None:
    """Let each of these take a frame at once."""
    for fd in streams:
        try:
            if fcntl(fd, F_GETPIPE_SZ) < PIPE_BYTES:
                fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            continue
