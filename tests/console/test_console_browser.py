"""The console in Chromium: every page, light, dark and narrow, live, by keyboard, with hostile and with long content.

`LOOMRL_PICTURES=docs/pictures` keeps pictures of the pages.
"""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loomrl.load import dump
from loomrl.serving.durable import open_recorder
from loomrl.store import open_store
from loomrl.store.runs import start_run
from loomrl.store.view.metrics import append_metrics
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import new_metrics
from tests.console.console_samples import PAGES, new_run, url_in
from tests.console.test_console_chat import PAGE as CHAT
from tests.console.test_console_chat import Chatting
from tests.control.test_film import experiment as drawn_experiment
from tests.control.test_film import filmed
from tests.needs import needs

pytestmark = [pytest.mark.system, pytest.mark.slow, needs("Chromium")]

SEEN = PAGES | {
    "explore": "/explore?sql=versions&x=version&y=success",
    "launch": "/launch",
    "nothing": "/nope",
}
SHOWN = (
    "runs",
    "runs-compared",
    "run",
    "trajectories",
    "trajectory",
    "policy",
    "sweep",
    "endpoint",
    "release",
    "feedback",
    "audit",
    "explore",
)
"""Pages of which pictures are kept."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URLs of a store and of a console over it."""
    folder = tmp_path_factory.mktemp("console")
    url, loomrl = url_in(Path(folder)), [sys.executable, "-P", "-m", "loomrl"]
    subprocess.run([*loomrl, "query", "load", "--store", url], check=True)
    command = [*loomrl, "console", "--store", url, "--port", "0", "--launch", str(folder / "launched")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = process.stderr.readline()
            assert " on http://" in found, found
            time.sleep(2.0)  # the index
            yield url, found.rpartition(" on ")[2].strip()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """A page of the browser that remembers what went wrong."""

    def __init__(self, browser: Any, address: str, *, scheme: str = "light", width: int = 1280) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.address, self.wrong = address, list[str]()
        self.page.on(
            "console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))

    def visit(self, path: str) -> Any:
        """Load a page, with all that comes after it."""
        answer = self.page.goto(self.address + path)
        self.until("!document.querySelector('[aria-busy=true]')")
        self.until("![...document.querySelectorAll('[data-load] .note')].some(n => /computed/.test(n.textContent))")
        return answer

    def until(self, expression: str) -> None:
        """Wait until it holds. (Playwright's own way has the page evaluate text, which its policy forbids.)"""
        deadline = time.monotonic() + 60
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, expression
            self.page.wait_for_timeout(20)

    def faults(self) -> list[str]:
        """Serious faults of accessibility."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [
            f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary']}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]


def test_every_page_is_without_errors_and_accessible_in_light_and_dark(chromium: Any, address: tuple[str, str]) -> None:
    folder, found = os.environ.get("LOOMRL_PICTURES"), dict[str, list[str]]()
    for scheme in ("light", "dark"):
        visitor = Visitor(chromium, address[1], scheme=scheme)
        for name, path in SEEN.items():
            answer = visitor.visit(path)
            assert answer.status == (404 if name == "nothing" else 200), name
            acts = "document.querySelectorAll('main img:not(.picture), main style, main script').length"
            assert (visitor.page.evaluate(acts), "owned" in visitor.page.title()) == (0, False), "hostile text is text"
            wrong = [each for each in visitor.wrong if name != "nothing" or "404" not in each]
            found |= {f"{name} {scheme}": all for all in [wrong + visitor.faults()] if all}
            visitor.wrong.clear()
            if folder and name in SHOWN and (scheme == "light" or name in ("run", "trajectory")):
                end = "" if scheme == "light" else "-dark"
                visitor.page.screenshot(path=Path(folder) / f"console-{name}{end}.png")
        visitor.context.close()
    assert found == {}


def test_a_film_and_the_charts_of_its_steps_show_the_same_step(
    chromium: Any, address: tuple[str, str], tmp_path: Path
) -> None:
    asked = drawn_experiment(tmp_path, steps=100, wide=120)
    filmed(asked).save(tmp_path / "runs" / "seen")
    with open_store(address[0]) as db:
        start_run(db, new_run("seen", kind="evaluate", resolved=dump(asked)))
    visitor = Visitor(chromium, address[1])
    visitor.visit("/runs/seen")
    page = visitor.page
    visitor.until("document.querySelector('.film canvas')")
    told = "document.querySelector('.film output').value"
    bright = """(() => { const canvas = document.querySelector('.film canvas')
        const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, 1)
        return [...Array(canvas.width).keys()].findLast(at => data[4 * at] > 128) })()"""
    assert (page.evaluate(told), page.evaluate(bright)) == ("step 0 of 100", 0)
    page.locator(".film input").fill("40")
    assert (page.evaluate(told), page.evaluate(bright)) == ("step 40 of 100", 40)
    plot = page.locator("#film figure .plot").first
    plot.scroll_into_view_if_needed()
    box = plot.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    visitor.until(f"/^step (49|50) of 100$/.test({told})")
    step = int(page.evaluate(told).split(" ")[1])
    assert page.evaluate(bright) == step - step % 2
    assert page.evaluate("document.querySelector('#film figure output').value") == f"{step + 1}:  {step + 1}"
    page.get_by_role("button", name="Play").click()
    visitor.until(f"Number({told}.split(' ')[1]) > 55")
    assert ([each for each in visitor.wrong if "getImageData" not in each], visitor.faults()) == ([], [])
    visitor.context.close()


def test_nothing_is_wider_than_the_screen_and_lists_hide_nothing(chromium: Any, address: tuple[str, str]) -> None:
    wide, hidden = dict[str, int](), dict[str, list[str]]()
    lists = """() => [...document.querySelectorAll('table.rows')].map(table => table.closest('.scroll') ?? table)
        .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.innerText.slice(0, 60))"""
    for width in (1280, 390, 360):
        visitor = Visitor(chromium, address[1], width=width)
        for name, path in SEEN.items():
            visitor.visit(path)
            wide[f"{name} {width}"] = visitor.page.evaluate("document.documentElement.scrollWidth") - width
            hidden[f"{name} {width}"] = visitor.page.evaluate(lists)
        if width == 390:
            visitor.visit("/runs")
            row = visitor.page.locator("tr[data-href='/runs/math-1']")
            assert "Success 60.1 %" in row.inner_text()
            assert row.evaluate("row => row.getBoundingClientRect().right") <= width
        if width == 360:
            visitor.page.click(".menu-button")
            visitor.page.click("text=Audit")
            visitor.page.wait_for_url("**/audit")
            if folder := os.environ.get("LOOMRL_PICTURES"):
                visitor.visit(SEEN["trajectory"])
                visitor.page.screenshot(path=Path(folder) / "console-narrow.png")
        visitor.context.close()
    assert {name: over for name, over in wide.items() if over > 0} == {}
    assert {name: those for name, those in hidden.items() if those} == {}


def test_ticks_survive_news_and_lead_to_a_comparison(chromium: Any, address: tuple[str, str]) -> None:
    url, console = address
    visitor = Visitor(chromium, console)
    visitor.visit("/runs")
    visitor.page.wait_for_selector("#live:has-text('live')")
    for run in ("math-1", "math-5"):
        visitor.page.check(f"input[value='{run}']")
    visitor.page.evaluate("document.activeElement.blur()")
    with open_store(url) as db:
        start_run(db, new_run("ticked"))
    visitor.page.wait_for_selector("a[href='/runs/ticked']")
    visitor.page.click("button:has-text('Compare')")
    visitor.page.wait_for_url("**/compare/runs?**")
    visitor.until("!document.querySelector('[aria-busy=true]')")
    assert visitor.page.inner_text("h1") == "2 runs"
    visitor.until('document.querySelector(\'[data-key="Does it learn?/Success"][data-lines="2"] canvas\')')
    visitor.page.fill("#metric-filter", "gradient")
    shown = "[...document.querySelectorAll('.chart')].filter(each => each.checkVisibility()).length"
    assert visitor.page.evaluate(shown) == 1
    assert visitor.wrong == []
    visitor.context.close()


@contextmanager
def gateway(url: str) -> Iterator[None]:
    """A gateway on a thread of its own: Playwright has this one's event loop."""
    begun, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with Chatting(url, open_recorder(url)):
            begun.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        over.set()
        thread.join()


def test_a_chat_goes_by_its_sliders(chromium: Any, address: tuple[str, str]) -> None:
    with gateway(address[0]):
        for scheme, width in (("light", 1280), ("dark", 360)):
            visitor = Visitor(chromium, address[1], scheme=scheme, width=width)
            visitor.visit(CHAT)
            visitor.page.fill("input[name='weight.right']", "75")
            visitor.page.fill("input[name='weight.short']", "25")
            assert visitor.page.locator("output").all_inner_texts() == ["75", "25"]
            for number, said in enumerate(("What is 19 + 23?", "<b>And now?</b>"), 1):
                visitor.page.fill("textarea", said)
                visitor.page.click(".primary")
                visitor.until(f"document.querySelectorAll('.piece small').length === {number}")
                assert said in visitor.page.locator("pre.text").all_inner_texts()
            assert visitor.page.locator("small", has_text="right 75 %, short 25 %").count() == 2
            visitor.page.locator("[aria-label='4 of 5 stars'] >> nth=-1").click()
            visitor.page.wait_for_selector(".judging [role=status]:has-text('★★★★☆')")
            assert visitor.page.locator("output").all_inner_texts() == ["75", "25"], "sliders stay where they were"
            assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width
            assert visitor.wrong + visitor.faults() == []
            if folder := os.environ.get("LOOMRL_PICTURES"):
                end = "" if scheme == "light" else "-dark"
                visitor.page.screenshot(path=Path(folder) / f"console-chat{end}.png")
            visitor.context.close()


def test_what_is_committed_is_seen_without_loading_again(chromium: Any, address: tuple[str, str]) -> None:
    url, console = address
    visitor = Visitor(chromium, console)
    visitor.visit("/runs")
    visitor.page.wait_for_selector("#live:has-text('live')")
    with open_store(url) as db:
        start_run(db, new_run("fresh"))
        visitor.page.wait_for_selector("a[href='/runs/fresh']")
        append_metrics(db, new_metrics("fresh", 1, {Metric.SUCCESS: 0.25}), at=time.time())
        visitor.visit("/runs/fresh")
        visitor.page.wait_for_selector("#live:has-text('live')")
        begun = time.monotonic()
        append_metrics(db, new_metrics("fresh", 2, {Metric.SUCCESS: 0.75}), at=time.time())
        drawn = "document.querySelector('[data-key=\"Does it learn?/Success\"] output')?.value"
        visitor.until(f"{drawn} && {drawn} !== '25 %'")
        assert time.monotonic() - begun < 20
    assert visitor.wrong == []
    visitor.context.close()


def test_a_trajectory_of_a_hundred_thousand_tokens_scrolls(chromium: Any, address: tuple[str, str]) -> None:
    visitor = Visitor(chromium, address[1])
    visitor.visit("/trajectories/long#turn-48")
    visitor.page.wait_for_selector("#turn-48")
    visitor.until("Math.abs(document.querySelector('#turn-48').getBoundingClientRect().top) < 400")
    visitor.page.click("[data-view=tokens]")
    visitor.page.wait_for_selector("#tokens i")
    longest = visitor.page.evaluate(
        """async () => {
          let longest = 0, before = performance.now()
          const end = before + 4000
          while (performance.now() < end) {
            await new Promise(requestAnimationFrame)
            const now = performance.now()
            longest = Math.max(longest, now - before)
            before = now
            scrollBy(0, 400)
          }
          return longest
        }"""
    )
    print(f"longest frame while scrolling: {longest:.0f} ms")
    assert longest < 2000
    visitor.page.evaluate("document.querySelector('#tokens').lastElementChild.scrollIntoView()")
    visitor.page.wait_for_selector("#tokens .chunk:last-child i")
    visitor.page.hover("#tokens .chunk:last-child i:last-child")
    assert "not sampled" in visitor.page.inner_text("#token-facts") or "log-probability" in visitor.page.inner_text(
        "#token-facts"
    )
    assert visitor.wrong == []
    visitor.context.close()


def test_it_is_used_by_keyboard(chromium: Any, address: tuple[str, str]) -> None:
    visitor = Visitor(chromium, address[1])
    visitor.visit("/audit")
    visitor.page.keyboard.press("g")
    visitor.page.keyboard.press("r")
    visitor.page.wait_for_url("**/runs")
    visitor.page.keyboard.press("j")
    visitor.page.keyboard.press("j")
    wanted = visitor.page.get_attribute("tr.on", "data-href")
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_url(f"**{wanted}")
    visitor.page.keyboard.press("?")
    visitor.page.wait_for_selector("dialog[open]")
    visitor.page.keyboard.press("Escape")
    before = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor")
    visitor.page.click("#theme")
    assert visitor.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    visitor.context.close()
