"""The members of a request of the seeds, read as leniently as those systems read them.

Clients send no content type or a wrong one, members that do not matter here, and numbers as text.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from rabbitdelay import duration
from rabbitdelay.errors import InvalidJob
from rabbitdelay.gateway.bodies import raw_json
from rabbitdelay.gateway.bodies.fields import MAX_TOPICS
from rabbitdelay.gateway.bodies.put_requests import Put
from rabbitdelay.gateway.problems import InvalidRequest
from rabbitdelay.models import JSON, TEXT, JobSpec


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a JSON object, each as the text that the request has."""

    texts: dict[str, str]

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return the members of the object in a request's body; raise MalformedRequest."""
        return cls(raw_json.members(content))

    def value(self, *names: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return the value of the first of these members that is there, else None."""
        text = next((self.texts[name] for name in names if name in self.texts), "null")
        return raw_json.value(text)

    def text(self, name: str) -> str:
        """Return a member without the space around it; raise InvalidRequest if it is empty."""
        value = self.value(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value.strip():
            raise InvalidRequest(f"{name} is empty")
        return value.strip()

    def topics(self) -> list[str]:
        """Return the topics, separated by commas, in the order of their priority."""
        topics = [topic.strip() for topic in self.text("topic").split(",", MAX_TOPICS)]
        if len(topics) > MAX_TOPICS:
            raise InvalidRequest(f"topic: more than {MAX_TOPICS}")
        return list(dict.fromkeys(filter(None, topics))) or [self.text("topic")]

    def seconds(self, *names: str) -> timedelta | None:
        """Return a duration, None if it is missing; raise InvalidRequest if it is not one."""
        value = self.value(*names)
        if value is None or value == "":
            return None
        try:
            if isinstance(value, str):
                return timedelta(milliseconds=duration.parse(value, what=names[0]))
            return timedelta(milliseconds=duration.milliseconds(value, what=names[0]))
        except (InvalidJob, OverflowError) as error:
            raise InvalidRequest(str(error)) from None

    def put(self, id: str | None, delay: timedelta | None, ttr: timedelta | None) -> Put:
        """Return the job to put."""
        payload, content_type = self._body()
        callback = self.value("callback") or None
        spec = JobSpec(
            self.text("topic"),
            payload,
            delay=delay or timedelta(),
            ttr=ttr,
            id=id,
            callback=callback,
            content_type=content_type,
        )
        return Put(spec, reply=False)

    def _body(self) -> tuple[bytes, str]:
        """Return the body and its type: the text in a string, or another value as it is written."""
        text = self.texts.get("body", '""')
        if not text.startswith('"'):
            return text.encode(), JSON
        payload = raw_json.utf_8(raw_json.value(text), "body")
        return payload, JSON if raw_json.is_json(payload) else TEXT
