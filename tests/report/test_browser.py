"""The report as a reader meets it: in a real browser, on a desk and on a phone, by day and by night."""

import os
import shutil

import pytest

from patience import HUNG
from report.synthetic import make_specs, make_store
from tailbatch.report.page import write_report

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = (
    os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

HOSTILE = '</script><img src="http://example.invalid/x" onerror="alert(1)">'


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    specs = make_specs(
        datasets=("scene", HOSTILE), pressures=(2.0, 16.0, 64.0), random_seeds=3, folds=2
    )
    make_store(folder / "store", specs, lost=(7,), failed=(8,))
    write_report(folder / "store", folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        # Inside a container there is no sandbox; the page is our own.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=1000 * HUNG
        )
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, address):
    """Open the report; at the end, nothing may have gone wrong or left the page."""
    contexts, complaints, requests = [], [], []

    def open_page(**options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * HUNG)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert set(requests) <= {address, "data:,"}


def path_of(page, chart):
    return page.locator(f"#{chart} path.line").first.get_attribute("d")


def test_it_renders_every_chart(visit):
    page = visit()
    charts = ("curves", "gain", "exposure", "losses", "pressure", "ranks")
    for chart in charts:
        drawn = page.locator(f"#chart-{chart} > svg")
        assert drawn.bounding_box()["height"] > 100, chart
        assert len(drawn.get_attribute("aria-label")) > 30, chart
    assert page.locator("#chart-curves path.line").count() == 3


def test_curves_switch_between_epoch_batch_and_second(visit):
    page = visit()
    title, ticks = page.locator("#title-curves"), page.locator("#chart-curves text.title")
    seen = set()
    for name in ("epoch", "batch", "second"):
        page.get_by_role("radio", name=name, exact=True).check()
        seen.add(title.text_content())
        assert name in ticks.text_content()
    assert len(seen) == 3


def test_switches_work_by_keyboard(visit):
    page = visit()
    page.get_by_role("radio", name="epoch", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("radio", name="batch", exact=True).is_checked()
    assert "batches" in page.locator("#title-curves").text_content()
    before = path_of(page, "chart-curves")
    page.locator("#pick-learner").focus()
    page.keyboard.press("ArrowDown")
    assert path_of(page, "chart-curves") != before


def test_the_first_tab_leads_to_the_summary(visit):
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the summary"


def test_measures_strategies_and_metrics_can_be_chosen(visit):
    page = visit()
    before = path_of(page, "chart-curves")
    page.get_by_role("radio", name="Validation Macro-AUC").check()
    assert path_of(page, "chart-curves") != before
    page.get_by_role("checkbox", name="adaptive 64").check()
    assert page.locator("#chart-curves path.line").count() == 4
    ranks = page.locator("#chart-ranks svg").get_attribute("aria-label")
    page.locator('input[name="ranks"][value="one_error"]').check()
    assert page.locator("#chart-ranks svg").get_attribute("aria-label").startswith(ranks[:11])


def test_losses_are_compared_by_number_of_minority_labels_or_by_strategy(visit):
    page = visit()
    key = page.locator("#key-losses li")
    assert key.all_text_contents()[:2] == ["no minority label", "1 minority label"]
    before = path_of(page, "chart-losses")
    page.get_by_role("radio", name="strategies", exact=True).check()
    assert key.all_text_contents() == ["random", "hard", "adaptive"]
    assert path_of(page, "chart-losses") != before


def test_hostile_names_are_shown_as_text(visit):
    page = visit()
    page.locator("#pick-data").select_option(HOSTILE)
    label = page.locator("#chart-curves svg").get_attribute("aria-label")
    assert HOSTILE in label
    assert page.locator("img").count() == 0


def test_a_number_leads_to_its_runs(visit):
    page = visit()
    link = page.locator("tr[data-cell] a").first
    link.click()
    target = link.get_attribute("href").removeprefix("#")
    assert page.locator(f"dt#{target} + dd li code").first.is_visible()


def test_nothing_sticks_out_on_a_phone(visit):
    page = visit(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    for details in page.locator("details").all():
        details.evaluate("each => each.open = true")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360
    assert page.locator("#chart-curves svg").bounding_box()["width"] <= 340


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_by_day_and_by_night(visit, scheme):
    page = visit(color_scheme=scheme)
    paper, ink, muted = page.evaluate(
        """() => {
            const color = (element) => getComputedStyle(element).color.match(/[0-9.]+/g).map(Number);
            const back = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
            return [back, color(document.body), color(document.querySelector(".lead"))];
        }"""
    )
    assert (sum(paper) < 200) == (scheme == "dark")
    assert contrast(paper, ink) >= 7
    assert contrast(paper, muted) >= 4.5


def contrast(first, second):
    """Return the contrast ratio of two colors as the accessibility guidelines define it."""

    def luminance(color):
        parts = [value / 255 for value in color[:3]]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
