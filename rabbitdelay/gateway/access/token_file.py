"""The list of tokens, as lines of a file or of an environment variable.

    # name   rights       topics      hash                options
    shop     put          order*      sha256:9f86d0…      ids=order-* expires=2027-01-31
    worker   consume      order*,mail sha256:60303a…

Errors name the line and the rule, and never show what the line contains: it may be a token that was
pasted into the wrong place.
"""

import logging
import os
import re
import stat
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.gateway.access.rights import Grant, Patterns, read_ids, read_rights, read_topics
from rabbitdelay.gateway.access.tokens import PREFIX, Token, TokenTable

ENVIRONMENT_VARIABLE = "RABBITDELAY_HTTP_TOKENS"
MAX_FILE_BYTES = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_FIELDS = 4
_FORM = "NAME RIGHTS TOPICS sha256:HASH, as `rabbitdelay token` prints it"

logger = logging.getLogger("rabbitdelay.gateway")


class TokenFile:
    """The tokens in a file, which is read again on request."""

    def __init__(self, path: Path) -> None:
        """Read the file; raise InvalidConfiguration if a line is wrong."""
        self._path = path
        self.table = self._read()

    def reload(self) -> bool:
        """Read the file again. If it is wrong, keep the tokens that were read before."""
        try:
            self.table = self._read()
        except InvalidConfiguration as error:
            logger.error("tokens: not reloaded, the previous ones stay valid (%s)", error)  # noqa: TRY400
            return False
        logger.info("tokens: reloaded (%d)", len(self.table))
        return True

    def _read(self) -> TokenTable:
        try:
            with self._path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise InvalidConfiguration(
                f"cannot read the token file {self._path}: {error.strerror}"
            ) from None
        if len(content) > MAX_FILE_BYTES:
            raise InvalidConfiguration(f"{self._path} has more than {MAX_FILE_BYTES:,} bytes")
        _warn_of_mode(self._path, mode)
        return TokenTable(read_tokens(content, str(self._path)))


def tokens_of_environment() -> TokenTable | None:
    """Return the tokens in RABBITDELAY_HTTP_TOKENS, or None if it is not set.

    Its lines are separated by line breaks or by semicolons.
    """
    text = os.environ.get(ENVIRONMENT_VARIABLE)
    if text is None:
        return None
    content = text.replace(";", "\n").encode(errors="surrogateescape")
    return TokenTable(read_tokens(content, ENVIRONMENT_VARIABLE))


def read_tokens(content: bytes, source: str) -> tuple[Token, ...]:
    """Parse lines of tokens; raise InvalidConfiguration, with the line, if one is wrong."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise InvalidConfiguration(f"{source} is not UTF-8 text") from None
    tokens = tuple(_tokens(text, source))
    if not tokens:
        # An empty list must not mean that everything is allowed, nor lock every caller out.
        raise InvalidConfiguration(f"{source} has no tokens: add lines of the form {_FORM}")
    return tokens


def line_of(token: Token) -> str:
    """Return a token as a line of the file."""
    grant = token.grant
    rights = ",".join(sorted(grant.rights))
    fields = [token.name, rights, ",".join(grant.topics.texts), f"sha256:{token.digest.hex()}"]
    if grant.ids.texts:
        fields.append(f"ids={','.join(grant.ids.texts)}")
    if token.last_day:
        fields.append(f"expires={token.last_day}")
    return " ".join(fields)


def read_name(text: str) -> str:
    """Return the name of a token; raise InvalidConfiguration if it is invalid."""
    if not _NAME.fullmatch(text):
        raise InvalidConfiguration("a token's name must be 1 to 64 of A-Z a-z 0-9 . _ -")
    return text


def _tokens(text: str, source: str) -> Iterator[Token]:
    digests: dict[bytes, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        try:
            token = _read_line(fields)
        except InvalidConfiguration as error:
            raise InvalidConfiguration(f"{source}, line {number}: {error}") from None
        if token.digest in digests:
            first = digests[token.digest]
            raise InvalidConfiguration(f"{source}, lines {first} and {number}: same token twice")
        digests[token.digest] = number
        yield token


def _read_line(fields: list[str]) -> Token:
    if any(PREFIX in field for field in fields):
        raise InvalidConfiguration(
            "the line has a token in it: anyone who has read it can use that token, so make a new "
            "one with `rabbitdelay token`, and keep only its line here"
        )
    if len(fields) < _FIELDS:
        raise InvalidConfiguration(
            f"{_FIELDS} fields are needed, found {len(fields)}: write {_FORM}"
        )
    name, rights, topics, hash_text, *options = fields
    digest = _HASH.fullmatch(hash_text)
    if not digest:
        raise InvalidConfiguration(
            "the fourth field must be sha256: and 64 hex digits in lower case, not the token itself"
        )
    ids, last_day = _read_options(options)
    grant = Grant(read_rights(rights), read_topics(topics), ids)
    return Token(read_name(name), grant, bytes.fromhex(digest[1]), last_day)


def _read_options(options: list[str]) -> tuple[Patterns, date | None]:
    values = dict(option.partition("=")[::2] for option in options)
    if len(values) != len(options) or values.keys() - {"ids", "expires"}:
        raise InvalidConfiguration("after the hash, only ids=… and expires=… may follow, each once")
    ids = read_ids(values["ids"]) if "ids" in values else Patterns()
    return ids, read_day(values["expires"]) if "expires" in values else None


def read_day(text: str) -> date:
    """Parse `2027-01-31`; raise InvalidConfiguration if it is not a date."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidConfiguration("expires must be a date such as 2027-01-31") from None


def _warn_of_mode(path: Path, mode: int) -> None:
    if mode & stat.S_IROTH:
        logger.warning("tokens: every user of this machine can read %s: chmod o-r", path)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        logger.warning("tokens: other users can change %s, and so grant access: chmod go-w", path)
