"""Input files that commands read line by line."""

import os
import stat
from typing import BinaryIO


def size_of(file: BinaryIO) -> int | None:
    """Return the file's size in bytes, or None if it is not a regular file."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
