"""Callbacks may refer only to listed hosts at public addresses."""

from ipaddress import ip_address

import pytest

from rabbitdelay.actions.webhook import url as urls
from rabbitdelay.actions.webhook.allow_list import AllowList, is_public
from rabbitdelay.errors import Bury, InvalidConfiguration


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        ("example.com", "https://example.com/x"),
        ("example.com", "http://example.com/x"),
        ("Example.COM.", "https://example.com./x"),
        ("*.example.com", "https://a.b.example.com/"),
        ("example.com:8443", "https://example.com:8443/"),
        ("example.com:443", "https://example.com/"),
        ("example.com:*", "http://example.com:9/"),
        ("bücher.example", "https://xn--bcher-kva.example/"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
        ("[::1]:8080", "http://[0::1]:8080/"),
        ("[2001:db8::1]", "http://[2001:db8::1]/"),
        ("*", "https://anything.example/"),
        ("*:8443", "https://anything.example:8443/"),
    ],
)
def test_a_listed_host_is_allowed(pattern: str, url: str) -> None:
    AllowList.parse([pattern]).check_host(urls.parse(url))


@pytest.mark.parametrize(
    ("patterns", "url"),
    [
        ([], "https://example.com/"),
        (["example.com"], "https://example.com.evil.net/"),
        (["example.com"], "https://evilexample.com/"),
        (["example.com"], "https://a.example.com/"),
        (["*.example.com"], "https://example.com/"),
        (["*.example.com"], "https://evilexample.com/"),
        (["example.com"], "https://example.com:8443/"),
        (["example.com"], "http://example.com:443/"),
        (["example.com:8443"], "https://example.com/"),
        (["*"], "https://example.com:22/"),
    ],
)
def test_any_other_host_buries_the_job_and_the_error_names_the_option(
    patterns: list[str], url: str
) -> None:
    asked = urls.parse(url)
    with pytest.raises(Bury, match="--allow-host") as caught:
        AllowList.parse(patterns).check_host(asked)
    given = str(caught.value).rpartition(" ")[2]
    AllowList.parse([given]).check_host(asked)


@pytest.mark.parametrize(
    "pattern",
    [
        *("", " ", "https://example.com", "example.com/path", "exa*mple.com", "*example.com", "*."),
        *("example.com:0", "example.com:70000", "example.com:x", "127.1", "::1", "[::1", "a b"),
        *("user@example.com", "10.0.0.0/8"),
    ],
)
def test_an_invalid_host_pattern_is_rejected(pattern: str) -> None:
    with pytest.raises(InvalidConfiguration, match="not a host to allow"):
        AllowList.parse([pattern])


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "0.0.0.0", "100.64.0.1", "192.0.0.8", "192.0.2.1"),  # noqa: S104
        *("192.88.99.1", "198.18.0.1", "224.0.0.1"),
        *("240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "fec0::1", "ff02::1"),
        *("ff0e::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::7f00:1", "64:ff9b::7f00:1"),
        *("2002:7f00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "fe80::1%lo"),
    ],
)
def test_private_and_special_addresses_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "2a00::1"])
def test_internet_addresses_are_public(address: str) -> None:
    assert is_public(ip_address(address))


def test_one_private_address_among_public_ones_buries_the_job() -> None:
    asked = urls.parse("https://example.com/")
    addresses = [ip_address("8.8.8.8"), ip_address("169.254.169.254")]
    with pytest.raises(Bury, match=r"169\.254\.169\.254.*--allow-private"):
        AllowList().check_addresses(asked, addresses)
    AllowList(allow_private=True).check_addresses(asked, addresses)
