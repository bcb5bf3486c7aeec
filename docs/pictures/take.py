"""Take the pictures of docs/management-ui.md from the management UI of a real broker.

    pip install playwright                                # its own browsers are not needed
    scripts/install-packages chromium
    RABBITDELAY_RABBITMQ_ROOT=$PWD/.cache/rabbitmq-4.3 python docs/pictures/take.py

It starts a private broker, lets a shop put, fail and delete jobs, looks, and ends the broker.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Locator, Page, sync_playwright

from rabbitdelay import Client, JobSpec, Worker
from rabbitdelay.private_broker import PrivateBroker

HERE = Path(__file__).parent
WIDTH, HEIGHT = 1240, 2_000
MARGIN = 6
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
UNPAID = {"order": 41, "sum": 1250}


def main() -> None:
    """Fill a broker, and take every picture."""
    with PrivateBroker.temporary() as broker:
        fill(broker.url)
        with browsing(broker.management_url) as page:
            take_queues(page)
            take_hold_queue(page)
            take_buried_job(page)


def fill(url: str) -> None:
    """Create the jobs of a small shop on an ordinary day."""
    with Client(url) as client:
        client.put("orderclose", UNPAID, id="orderclose-41", max_attempts=3, backoff=0)
        client.put("report", {"month": "2026-10"})
        bury_one(url)
        for minutes, count in ((30, 412), (90, 40), (10_080, 118)):
            client.put_many(
                JobSpec("orderclose", {"order": number}, delay=minutes * 60, ttr=60)
                for number in range(count)
            )
        client.put_many(JobSpec("reminder", {"order": n}, delay=1770) for n in range(96))
        client.put_many(JobSpec("reminder", {"order": n}) for n in range(3))
        client.delete_many(f"orderclose-{number}" for number in range(20))


def bury_one(url: str) -> None:
    """Fail a job until it is buried."""
    worker = Worker(url)

    @worker.handler("orderclose")
    def close_order(body: dict[str, int]) -> None:
        raise LookupError(f"order {body['order']} is not in the books")

    worker.run(max_jobs=3)


@contextmanager
def browsing(management_url: str) -> Iterator[Page]:
    """A browser that has logged in."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(management_url)
        page.fill("input[name=username]", "guest")
        page.fill("input[name=password]", "guest")
        page.click("input[type=submit]")
        page.wait_for_selector("#tabs")
        yield page
        browser.close()


def take_queues(page: Page) -> None:
    """The list of queues, once the broker has counted all of them."""
    visit(page, "#/queues")
    page.wait_for_function(
        "() => [...document.querySelectorAll('table.list tbody tr')].some("
        "row => row.innerText.includes('hold.30m') && row.innerText.includes('412'))",
        timeout=60_000,
    )
    save(page, "queues", page.locator("table.list").first)


def take_hold_queue(page: Page) -> None:
    """A hold queue: its TTL, its dead-letter exchange, and how many wait."""
    visit(page, f"#/queues/%2F/{quote('rabbitdelay.v1.hold.30m')}")
    page.wait_for_selector("text=x-message-ttl")
    page.wait_for_selector("#details-queue-stats-table")
    last = page.locator("table.facts:visible").last
    save(page, "hold-queue", page.locator("h1").first, last, width=980)


def take_buried_job(page: Page) -> None:
    """A buried job: why it was buried is in its headers."""
    visit(page, f"#/queues/%2F/{quote('rabbitdelay.v1.buried.orderclose')}")
    form = page.locator("form[action='#/queues/get']")
    section = page.locator("div[class*=section]", has=form)
    section.locator("h2").click()
    form.locator("input[type=submit]").click()
    page.wait_for_selector("text=rd-reason")
    page.wait_for_function("() => $(':animated').length === 0")  # it unrolls slowly
    save(page, "buried-job", section, page.locator("#msg-wrapper"), width=700)


def visit(page: Page, place: str) -> None:
    """Go to a page of the UI, which changes what is behind the # only."""
    page.evaluate("place => { window.location = place; }", place)


def save(
    page: Page, name: str, first: Locator, last: Locator | None = None, *, width: int = WIDTH
) -> None:
    """Take what is between two elements, with a margin."""
    top, bottom = first.bounding_box(), (last or first).bounding_box()
    assert top is not None
    assert bottom is not None
    left = max(0, min(top["x"], bottom["x"]) - MARGIN)
    right = min(width, max(top["x"] + top["width"], bottom["x"] + bottom["width"]) + MARGIN)
    upper = max(0, top["y"] - MARGIN)
    clip = {
        "x": left,
        "y": upper,
        "width": right - left,
        "height": bottom["y"] + bottom["height"] + MARGIN - upper,
    }
    page.screenshot(path=HERE / f"{name}.png", clip=clip)  # type: ignore[arg-type]  # a dict is one


if __name__ == "__main__":
    main()
