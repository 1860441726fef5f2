"""The page at /, used in a real browser; `make browser-test` fetches what these tests need."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from talker import write_talker

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, Weight, ops
from tidemill.serving import Server, ServerConfig

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed; make browser-test does")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed; make browser-test does")

# Nothing of the browser's own may go out: on a closed network each try would hold up the page.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
Open = Callable[..., Awaitable[Any]]
Start = Callable[[Path], Awaitable[Server]]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Weight("weight", DType.float32, (4, 4), DeviceRef.CPU())

    def __call__(self, x: TensorValue) -> TensorValue:
        return ops.tanh(ops.relu(x @ self.weight) + x) * x @ self.weight


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.LayerList([Block() for _ in range(3)])

    def __call__(self, x: TensorValue) -> TensorValue:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts servers; they are stopped at the end."""
    running: list[Server] = []

    async def start(repository: Path) -> Server:
        running.append(Server([repository], ServerConfig(http_port=0, grpc_port=0)))
        await running[-1].start()
        await running[-1].load()
        return running[-1]

    yield start
    for server in running:
        await server.stop()


@pytest.fixture
async def server(write_model: Callable[..., Path], start: Start) -> Server:
    for name in ("two", "gather", "strings"):
        repository = write_model(name)
    return await start(repository)


@pytest.fixture
def faults() -> list[str]:
    """What the pages log as errors and warnings; none may be left at the end."""
    return []


@pytest.fixture
async def open_page(request: pytest.FixtureRequest, faults: list[str]) -> AsyncIterator[Open]:
    """Opens the console of a server; a page that logs an error fails the test.

    CONSOLE_SHOTS names a folder for pictures.
    """
    pages: list[Any] = []
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

        async def open_page(server: Server, width: int = 1280, scheme: str = "light") -> Any:
            view = {"width": width, "height": 850}
            context = await browser.new_context(viewport=view, color_scheme=scheme)
            page = await context.new_page()
            page.on("console", lambda said: said.type in ("error", "warning") and faults.append(said.text))
            page.on("pageerror", lambda error: faults.append(str(error)))
            await page.goto(f"http://127.0.0.1:{server.http_port}/")
            pages.append(page)
            return page

        yield open_page
        if folder := os.environ.get("CONSOLE_SHOTS"):
            for number, page in enumerate(pages):
                await page.screenshot(path=f"{folder}/{request.node.name}-{number}.png", full_page=True)
        await browser.close()
    assert faults == []


async def test_every_model_is_listed_with_its_state(server: Server, open_page: Open) -> None:
    page = await open_page(server)
    await page.wait_for_selector("#model-list button")
    listed = await page.locator("#model-list .name").all_text_contents()
    assert listed == [entry.name for entry in server.service.index()]
    assert await page.locator("#server-state").text_content() == "ready"
    await page.fill("#filter", "gath")
    assert await page.locator("#model-list .name").all_text_contents() == ["gather"]


async def test_a_form_made_from_the_signature_gets_an_answer(server: Server, open_page: Open) -> None:
    page = await open_page(server)
    await page.click("#model-list button:has-text('two')")
    await page.click("#tab-try")
    await page.fill("#try-form textarea", "[1, 2]")
    await page.click("#try-form button")
    text = await page.locator("#answer pre").text_content()
    assert "y: FP32 [1, 2]\n[2,3]" in text
    assert "z: FP32 [1, 2]\n[2,4]" in text


async def test_a_value_that_is_no_list_is_told_before_anything_is_sent(server: Server, open_page: Open) -> None:
    page = await open_page(server)
    await page.click("#model-list button:has-text('two')")
    await page.click("#tab-try")
    await page.fill("#try-form textarea", "[1, 2")
    await page.click("#try-form button")
    assert "x: not a JSON list" in await page.locator("#answer .bad").text_content()


async def test_charts_move_under_load(server: Server, open_page: Open) -> None:
    page = await open_page(server)
    await page.click("#model-list button:has-text('two')")
    body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}", timeout=60) as client:

        async def go_on() -> None:
            while True:
                await client.post("/v2/models/two/infer", json=body)

        load = asyncio.create_task(go_on())
        line = page.locator("svg.chart path:not(.grid)").first
        # Two points make a line.
        await _until(lambda: line.get_attribute("d"), lambda drawn: "L" in drawn)
        assert float(await page.locator("#charts figure b").first.text_content()) > 0
        assert "ms" in await page.locator("#charts figure").nth(1).text_content()
        load.cancel()
        await asyncio.wait([load])


async def test_a_text_appears_as_it_is_made(start: Start, open_page: Open, tmp_path: Path, faults: list[str]) -> None:
    write_talker(tmp_path / "talker")
    page = await open_page(await start(tmp_path))
    await page.click("#tab-try")
    most = page.locator("#try-form input").first
    await most.fill("40")
    await page.click("#try-form button")
    title = page.locator("#answer p")
    await _until(title.text_content, lambda text: "in the prompt" in text)
    assert "First token after" in await title.text_content()
    assert await page.locator("#answer pre").text_content()
    await page.click("#tab-live")
    await page.locator("#charts figure:has-text('Tokens per second')").wait_for()
    await page.click("#tab-try")
    await most.fill("9999")
    await page.click("#try-form button")
    await _until(title.text_content, lambda text: "room for 256" in text)
    # The browser's own line about the status is all.
    assert [fault for fault in faults if "status of 400" not in fault] == []
    faults.clear()


async def test_a_graphs_functions_unfold(start: Start, open_page: Open, tmp_path: Path) -> None:
    x = TensorType(DType.float32, ["batch", 4], DeviceRef.CPU())
    deep = Deep()
    deep.load_state_dict({name: np.eye(4, dtype=np.float32) for name in deep.state_dict()})
    deep.bundle(x, name="deep").write(tmp_path / "deep" / "1")
    page = await open_page(await start(tmp_path))
    await page.click("#tab-graph")
    folded = page.locator("#graph details")
    await folded.first.wait_for()
    assert await folded.count() == 3
    assert "shared by 3" in await folded.first.locator("summary").text_content()
    assert await folded.first.locator(".op").count() == 0
    await folded.first.locator("summary").click()
    await folded.first.locator(".op").first.wait_for()
    assert "Relu" in await folded.first.text_content()


@pytest.mark.parametrize("width", [400, 768, 1400])
async def test_it_fits_the_screen(server: Server, open_page: Open, width: int) -> None:
    page = await open_page(server, width, "dark" if width == 768 else "light")
    await page.wait_for_selector("#signature tr", state="attached")
    for tab in ("live", "signature", "try", "graph"):
        await page.click(f"#tab-{tab}")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_it_can_be_used_by_keyboard_alone(server: Server, open_page: Open) -> None:
    page = await open_page(server)
    await page.wait_for_selector("#try-form button", state="attached")
    await page.focus("#model-list li:last-child button")
    name = await page.locator("#model-list li:last-child .name").text_content()
    await page.keyboard.press("Enter")
    assert name in await page.locator("#model-title").text_content()
    await page.wait_for_selector("#try-form button", state="attached")
    await page.focus("#tab-live")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    assert await page.evaluate("document.activeElement.id") == "tab-try"
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.closest('#try-form') !== null")


async def test_a_refusal_is_shown_in_the_servers_words(server: Server, open_page: Open, faults: list[str]) -> None:
    page = await open_page(server)
    await page.click("#model-list button:has-text('two')")
    await page.click("#tab-try")
    await page.fill("#try-form textarea", '["a", 2]')
    await page.click("#try-form button")
    assert "400: input 'x'" in await page.locator("#answer .bad").text_content()
    # The browser's own line about the answer; the page itself logs none.
    assert [fault for fault in faults if "status of 400" not in fault] == []
    faults.clear()


async def _until(read: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool]) -> None:
    """The page forbids the evaluation of strings, by which playwright would wait."""
    async with asyncio.timeout(30):
        while not holds(await read()):
            await asyncio.sleep(0.05)
