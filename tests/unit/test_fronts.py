"""The front ends have the same names in the same order, without long duplicated code."""

import ast
import difflib
import inspect
import re
import typing
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rabbitdelay
from rabbitdelay import aio

PACKAGE = Path(rabbitdelay.__file__).parent
PAIRS = [(getattr(rabbitdelay, name), getattr(aio, name)) for name in aio.__all__]
ONLY_AIO = {"connection"}
"""Parameters of the asyncio front end alone. Only aio-pika connections can be lent."""
AT_ONCE = {"put_nowait", "export", "buried", "unrouted", "list"}
"""Methods that are not coroutines: they return at once or return an asynchronous iterator."""
NAMES = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
WORDS = [
    ("Task[", "Future["),
    ("AsyncIterator[", "Iterator["),
    ("a task, which has", "a future, which has"),
    ("tasks of one event loop may", "threads may"),
    ("with it, awaiting.", "with it, waiting."),
]
"""Wording of the asyncio front end, and the sync front end's wording for the same."""
MOST_ALIKE = 6
"""Maximum number of consecutive statements that both front ends may share."""


def in_sync(text: str) -> str:
    """Translate text of the asyncio front end to the sync front end's wording."""
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)  # drop module names
    text = re.sub(r"Iterable\[(.+)\] \| AsyncIterable\[\1\]", r"Iterable[\1]", text)
    for ours, theirs in WORDS:
        text = text.replace(ours, theirs)
    return text


def public(kind: type) -> dict[str, Any]:
    """Return the public attributes of a class, in order."""
    shown = {"__init__", *NAMES, *NAMES.values()}
    found = {name: value for name, value in vars(kind).items() if name[0] != "_" or name in shown}
    return {NAMES.get(name, name): value for name, value in found.items()}


def parameters(function: Callable[..., Any]) -> list[str]:
    """Return the parameters and the return annotation of a function, as text."""
    signature = inspect.signature(function)
    found = [
        f"{name}: {annotation(one.annotation)} = {in_sync(repr(one.default))}, {one.kind}"
        for name, one in signature.parameters.items()
        if name not in ONLY_AIO
    ]
    return [*found, f"returns {annotation(signature.return_annotation)}"]


def annotation(value: object) -> str:
    return in_sync(inspect.formatannotation(value))


def first_line(value: object) -> str:
    return in_sync((inspect.getdoc(value) or "").partition("\n")[0])


def functions(value: object) -> list[Callable[..., Any]]:
    """Return a method with its overloads, or the getter of a property."""
    function: Any = value.fget if isinstance(value, property) else value
    return [function, *typing.get_overloads(function)] if inspect.isfunction(function) else []


def differences(sync: type, other: type) -> Iterator[str]:
    """Yield the differences between the front ends' versions of a class."""
    mine, theirs = public(sync), public(other)
    yield from difflib.unified_diff(list(mine), list(theirs), lineterm="", n=0)
    if first_line(sync) != first_line(other):
        yield f"{first_line(sync)} / {first_line(other)}"
    for name in mine.keys() & theirs.keys():
        if first_line(mine[name]) != first_line(theirs[name]):
            yield f"{name}: {first_line(mine[name])} / {first_line(theirs[name])}"
        if isinstance(mine[name], property) != isinstance(theirs[name], property):
            yield f"{name} is a property in only one front end"
        pair = functions(mine[name]), functions(theirs[name])
        if len(pair[0]) != len(pair[1]):
            yield f"{name} has {len(pair[0])} and {len(pair[1])} overloads"
        for one, another in zip(*pair, strict=False):
            said, said_too = parameters(one), parameters(another)
            yield from (
                f"{name}: {line}" for line in difflib.ndiff(said, said_too) if line[0] in "+-"
            )


@pytest.mark.parametrize(("sync", "other"), PAIRS, ids=aio.__all__)
def test_both_have_the_same_verbs(sync: type, other: type) -> None:
    """Compare names, order, parameters, annotations, defaults and summary lines."""
    assert list(differences(sync, other)) == []


@pytest.mark.parametrize(("sync", "other"), PAIRS, ids=aio.__all__)
def test_methods_that_wait_are_coroutines(sync: type, other: type) -> None:
    for name, value in public(other).items():
        if not inspect.isfunction(value) or name == "__init__":
            continue
        assert inspect.iscoroutinefunction(value) == (name not in AT_ONCE), name
        assert not inspect.iscoroutinefunction(public(sync)[name]), name


def test_the_comparison_covers_every_class() -> None:
    jobs = ["BuriedJobs", "ReservedJob", "UnroutedJobs"]
    assert sorted(aio.__all__) == sorted(["Client", "ClientTopology", "Worker", *jobs])
    assert sum(len(public(sync)) for sync, _ in PAIRS) > 25


class Kept:
    """Stores values."""

    def put(self, topic: str, *, delay: float = 0) -> str:
        """Put a value."""
        return f"{topic}{delay}"

    def put_many(self, specs: Iterable[str]) -> int:
        """Put many values."""
        return len(list(specs))


class KeptToo:
    """Stores values."""

    async def put(self, topic: str, *, delay: float = 0) -> str:
        """Put a value."""
        return f"{topic}{delay}"

    async def put_many(self, specs: Iterable[str] | AsyncIterable[str]) -> int:
        """Put many values."""
        return len(list(specs)) if isinstance(specs, Iterable) else 0


class WithAnotherVerb(KeptToo):
    """Stores values."""

    put = KeptToo.put
    put_many = KeptToo.put_many

    async def pause(self) -> None:
        """Do nothing."""


class InAnotherOrder(KeptToo):
    """Stores values."""

    put_many = KeptToo.put_many
    put = KeptToo.put


class WithAnotherDefault(KeptToo):
    """Stores values."""

    async def put(self, topic: str, *, delay: float = 1) -> str:
        """Put a value."""
        return f"{topic}{delay}"

    put_many = KeptToo.put_many


class WithOtherWords(KeptToo):
    """Stores values."""

    async def put(self, topic: str, *, delay: float = 0) -> str:
        """Store a value."""
        return f"{topic}{delay}"

    put_many = KeptToo.put_many


@pytest.mark.parametrize(
    "other", [WithAnotherVerb, InAnotherOrder, WithAnotherDefault, WithOtherWords]
)
def test_a_difference_is_found(other: type) -> None:
    assert list(differences(Kept, KeptToo)) == []
    assert list(differences(Kept, other))


# Duplicated statements


class AsSync(ast.NodeTransformer):
    """Converts asyncio code to its sync equivalent."""

    def visit_Await(self, node: ast.Await) -> ast.AST:
        """Replace `await x` with `x`."""
        return self.visit(node.value)  # type: ignore[no-any-return]


def statements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the statements of a function at every depth, without its docstring."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return [said(node) for one in body for node in ast.walk(one) if isinstance(node, ast.stmt)]


def said(node: ast.stmt) -> str:
    """Return a statement as sync code; only the first line of a compound statement."""
    return ast.unparse(AsSync().visit(ast.parse(ast.unparse(node)))).partition("\n")[0]


def bodies(front: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted((PACKAGE / front).rglob("*.py")):
        file = path.relative_to(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[f"{file}:{node.lineno} {node.name}"] = statements(node)
    return found


def alike(one: list[str], other: list[str]) -> int:
    """Return the length of the longest run of statements that both share."""
    return difflib.SequenceMatcher(None, one, other, autojunk=False).find_longest_match().size


def test_the_front_ends_share_no_long_run_of_statements() -> None:
    """Decisions belong in the engine, so that each front end contains only its own I/O."""
    theirs = bodies("aio")
    twice = [
        f"{here} and {there}"
        for here, mine in {**bodies("sync"), **bodies("executors")}.items()
        for there, others in theirs.items()
        if min(len(mine), len(others)) > MOST_ALIKE and alike(mine, others) > MOST_ALIKE
    ]
    assert twice == []
    assert len(theirs) > 50


def test_shared_statements_are_found() -> None:
    lines = [f"step_{n} = act({n})" for n in range(8)]
    sync = "\n    ".join(["def f():", '"""Act."""', *lines])
    other = "\n    ".join(["async def f():", '"""Act, awaiting."""', "begin()", *lines])
    other = other.replace("act(3)", "await act(3)")
    one, another = (ast.parse(code).body[0] for code in (sync, other))
    assert isinstance(one, ast.FunctionDef)
    assert isinstance(another, ast.AsyncFunctionDef)
    assert alike(statements(one), statements(another)) == 8
