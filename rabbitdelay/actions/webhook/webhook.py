"""The webhook action: `--webhook [URL]` posts the body to a URL or to the job's callback.

Redirects are not followed, proxies from the environment are not used, and certificates are
verified. The exchange ends before the job's ttr does. `Idempotency-Key` is the same for all
attempts of a job, so a server that responded too late can recognise a repeated request.
"""

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import quote

from rabbitdelay.actions.job_facts import iso_time
from rabbitdelay.actions.webhook import url as urls
from rabbitdelay.actions.webhook.allow_list import AllowList
from rabbitdelay.actions.webhook.host_lookup import Resolver, look_up, resolve
from rabbitdelay.actions.webhook.http_post import Cutoff, post
from rabbitdelay.actions.webhook.status import WebhookResponse, printable_excerpt, raise_for_status
from rabbitdelay.actions.webhook.url import InvalidWebhookUrl, WebhookUrl
from rabbitdelay.engine.settle.leased_job import LeasedJob
from rabbitdelay.errors import ActionFailed, Bury, InvalidConfiguration, LeaseLost

RESOLVE_SECONDS = 10.0
MARGIN_SECONDS = 1.0
"""Seconds of the ttr reserved for settling the job; at most a tenth of the time left."""
_VISIBLE = "!\"#$&'()*+,/:;<=>?@[\\]^`{|}"
"""Characters left unquoted in headers, besides those that `quote` never quotes; without %."""


class Webhook:
    """Posts each job, on the calling thread."""

    def __init__(
        self,
        url: str | None = None,
        *,
        allowed: AllowList | None = None,
        resolver: Resolver = look_up,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        """Post to `url`, which is not restricted, or else to the callbacks that `allowed` lists."""
        self._url = None if url is None else _operators_url(url)
        self._allowed = allowed or AllowList()
        self._resolver = resolver
        self._tls_context = tls_context or ssl.create_default_context()

    def __call__(self, job: LeasedJob) -> None:
        """Post the job; raise `Bury`, `ActionFailed` or `LeaseLost` unless it succeeds."""
        url = self._url or self._callback(job)
        seconds = job.time_left - min(MARGIN_SECONDS, job.time_left / 10)
        if seconds <= 0:
            raise LeaseLost("the job's ttr ended before it was posted")
        with Cutoff(seconds) as cutoff:
            job.on_lost(cutoff.cut)
            self._exchange(job, url, cutoff, seconds)

    def _callback(self, job: LeasedJob) -> WebhookUrl:
        if not job.callback:
            raise Bury("the job has no callback: set one when putting it, or give --webhook a URL")
        try:
            url = urls.parse(job.callback)
        except InvalidWebhookUrl as error:
            raise Bury(f"the job's callback is invalid: {error}") from None
        self._allowed.check_host(url)
        return url

    def _exchange(self, job: LeasedJob, url: WebhookUrl, cutoff: Cutoff, seconds: float) -> None:
        try:
            response = self._post(job, url, cutoff)
        except (OSError, HTTPException) as error:
            if cutoff.is_cut:
                raise ActionFailed(
                    f"{url.origin} did not respond within {seconds:.1f} s"
                ) from error
            raise ActionFailed(f"request to {url.origin} failed: {_reason(error)}") from error
        raise_for_status(response, origin=url.origin, now=datetime.now(UTC))

    def _post(self, job: LeasedJob, url: WebhookUrl, cutoff: Cutoff) -> WebhookResponse:
        timeout_seconds = min(RESOLVE_SECONDS, cutoff.seconds_left)
        addresses = resolve(url.host, self._resolver, timeout_seconds)
        if self._url is None:
            self._allowed.check_addresses(url, addresses)
        return post(
            url,
            addresses,
            _headers(job, url),
            job.payload,
            cutoff=cutoff,
            tls_context=self._tls_context,
        )


def _operators_url(url: str) -> WebhookUrl:
    try:
        return urls.parse(url)
    except InvalidWebhookUrl as error:
        raise InvalidConfiguration(f"the webhook URL is invalid: {error}") from None


def _headers(job: LeasedJob, url: WebhookUrl) -> Mapping[str, str]:
    key = f"{job.id}-{job.token}" if job.token else job.id
    return {
        "Host": url.host_header,
        "Connection": "close",
        "User-Agent": f"rabbitdelay/{_version()}",
        "Content-Type": _safe(job.content_type.strip(), also=" %"),
        "Rabbitdelay-Id": _safe(job.id),
        "Rabbitdelay-Topic": _safe(job.topic),
        "Rabbitdelay-Attempt": str(job.attempt),
        "Rabbitdelay-Due": iso_time(job.due_ms),
        "Idempotency-Key": _safe(key),
    }


def _safe(text: str, *, also: str = "") -> str:
    """Return a text as a header value, with everything but visible ASCII percent-encoded."""
    return quote(text, safe=_VISIBLE + also, errors="replace")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {error.verify_message}"
    return printable_excerpt(str(error)) or type(error).__name__


def _version() -> str:
    try:
        return version("rabbitdelay")
    except PackageNotFoundError:
        return "unknown"
