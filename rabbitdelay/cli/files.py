"""Files: what commands read line by line."""

import os
import stat
from typing import BinaryIO


def size_of(file: BinaryIO) -> int | None:
    """How many bytes there are to read, when that is known."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
