"""Runs a program from the documentation unchanged, in the test's own namespace."""

import importlib
import runpy
import sys
from pathlib import Path
from typing import Any

import uvicorn

from rabbitdelay.private_broker.machine.ports import pick_free

_FRONTS = ("rabbitdelay", "rabbitdelay.aio")


def main(namespace: str, program: str) -> None:
    """Run a file, and serve the application that it defines as `app`, if it does.

    Programs do not wait for new queues to stabilise, which would take 3 s for each program.
    """
    text = Path(program).read_text()
    for front in (one for one in _FRONTS if f"from {one} import" in text):
        for name in ("Client", "Worker"):
            make: Any = getattr(importlib.import_module(front), name).__init__
            make.__kwdefaults__ |= {"namespace": namespace, "stabilise_seconds": 0}
    made = runpy.run_path(program, run_name="__main__")
    if "app" in made:
        uvicorn.run(made["app"], port=pick_free(1)[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
