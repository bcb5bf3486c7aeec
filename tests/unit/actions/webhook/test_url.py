"""Untrusted URLs are parsed unambiguously or rejected."""

import pytest

from rabbitdelay.actions.webhook import url as urls
from rabbitdelay.actions.webhook.url import InvalidWebhookUrl, WebhookUrl


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://example.com", WebhookUrl("http", "example.com", 80, "/")),
        ("HTTPS://Example.COM./a?b=c#d", WebhookUrl("https", "example.com", 443, "/a?b=c")),
        ("https://example.com:8443/x/", WebhookUrl("https", "example.com", 8443, "/x/")),
        ("http://example.com:/", WebhookUrl("http", "example.com", 80, "/")),
        ("http://localhost./", WebhookUrl("http", "localhost", 80, "/")),
        ("http://127.0.0.1:8080/", WebhookUrl("http", "127.0.0.1", 8080, "/")),
        ("http://[::1]:8080/", WebhookUrl("http", "::1", 8080, "/")),
        ("http://[0:0::FFFF:127.0.0.1]/", WebhookUrl("http", "::ffff:7f00:1", 80, "/")),
        (
            "http://bücher.example/ä?ö",
            WebhookUrl("http", "xn--bcher-kva.example", 80, "/%C3%A4?%C3%B6"),
        ),
        ("http://example.com/%41%20b", WebhookUrl("http", "example.com", 80, "/%41%20b")),
        ("http://my_host-1/", WebhookUrl("http", "my_host-1", 80, "/")),
    ],
)
def test_a_url_is_parsed_into_its_parts(url: str, expected: WebhookUrl) -> None:
    assert urls.parse(url) == expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.com/", "http:// or https://"),
        ("file:///etc/passwd", "http:// or https://"),
        ("gopher://127.0.0.1:25/", "http:// or https://"),
        ("//example.com/", "http:// or https://"),
        ("http://", "host"),
        ("http:///path", "host"),
        ("http://user:s3cret@example.com/", "a user or a password"),
        ("http://example.com@127.0.0.1/", "a user or a password"),
        ("http://example.com\\@127.0.0.1/", "backslashes"),
        ("http://exam\nple.com/", "control characters"),
        ("http://example.com/\r\nHost: evil", "control characters"),
        ("http://example.com/a b", "blanks"),
        ("http://example.com:0/", "port"),
        ("http://example.com:65536/", "port"),
        ("http://example.com:80x/", "port"),
        ("http://example.com:-1/", "port"),
        ("http://[::1/", "host or port"),
        ("http://[::1]evil.com/", "host or port"),
        ("http://evil[::1]/", "host or port"),
        ("http://[fe80::1%25eth0]/", "IPv6"),
        ("http://[127.0.0.1]/", "IPv6|host or port"),
        ("http://127.1/", "four decimal numbers"),
        ("http://2130706433/", "four decimal numbers"),
        ("http://0x7f000001/", "four decimal numbers"),
        ("http://0x7f.1/", "four decimal numbers"),
        ("http://0177.0.0.1/", "four decimal numbers"),
        ("http://127.0.0.1.2/", "four decimal numbers"),
        ("http://-example.com/", "not a valid name"),
        ("http://exam..ple.com/", "not a valid name"),
        ("http://exa%6dple.com/", "not a valid name"),
        ("http://*.example.com/", "not a valid name"),
        (f"http://{'a' * 64}.com/", "not a valid name"),
        (f"http://{'a.' * 127}com/", "not a valid name"),
        (f"http://{'ä' * 64}.com/", "international"),
        (f"http://example.com/{'a' * 8_000}", "longer"),
    ],
)
def test_an_ambiguous_url_is_rejected(url: str, why: str) -> None:
    with pytest.raises(InvalidWebhookUrl, match=why) as caught:
        urls.parse(url)
    assert "s3cret" not in str(caught.value)


def test_unicode_digits_are_treated_as_digits() -> None:
    """The check applies to the ASCII form of the host, which is the form that is resolved."""
    assert urls.parse("http://①②⑦.⓪.⓪.①/").host == "127.0.0.1"
    with pytest.raises(InvalidWebhookUrl, match="four decimal numbers"):
        urls.parse("http://①②⑦.①/")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://example.com/hooks/T0KEN?key=s3cret", "https://example.com"),
        ("http://example.com:443/", "http://example.com:443"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ],
)
def test_only_the_origin_is_shown(url: str, origin: str) -> None:
    assert urls.parse(url).origin == origin
