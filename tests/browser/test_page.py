"""The HTML report in a real browser."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import msgspec
import pytest
from reports import within

from pytest_qnn.report import loaded
from pytest_qnn.report.compare.differences import compare
from tests.browser.browsers import AXE, Visit

PAGES = ("plugin", "libqnnhtp", "many")
FINDINGS = ("fail", "crash", "hang", "contradiction")
NARROW = {"viewport": {"width": 360, "height": 740}}
DARK = {"color_scheme": "dark"}
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)><style>*{display:none}</style>"


def rules(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for target in document["targets"] for rule in target["rules"]]


def shown(page: Any, selector: str) -> list[str]:
    """Ids of the rules whose elements of this kind are to be seen, in order."""
    found: list[str] = page.eval_on_selector_all(
        f"{selector}[data-rule]",
        "all => all.filter(each => each.getClientRects().length).map(each => each.dataset.rule)",
    )
    return sorted(found)


def violations(page: Any) -> list[tuple[str, str, str]]:
    """What axe-core finds: the rule, in words, and the first element that breaks it."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert found["passes"], "axe-core looked at nothing"
    return [(each["id"], each["help"], each["nodes"][0]["html"][:200]) for each in found["violations"]]


def until(page: Any, condition: str) -> None:
    """Wait until it holds. The page's own policy forbids what playwright's wait_for_function does."""
    with within(5):
        while not page.evaluate(condition):
            page.wait_for_timeout(20)


@pytest.mark.parametrize("look", [{}, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_the_screen(visit: Visit, name: str, look: dict[str, Any]) -> None:
    with visit(name, **look) as page:
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= page.viewport_size["width"]


@pytest.mark.parametrize(
    ("name", "look"),
    [("many", {}), ("plugin", {}), ("plugin", NARROW | DARK)],
    ids=["many, wide", "plugin, wide", "plugin, narrow and dark"],
)
def test_axe_finds_nothing(visit: Visit, name: str, look: dict[str, Any]) -> None:
    """Nor in the page of libQnnHtp: `test_what_has_changed_is_seen_and_leads_to_the_finding`."""
    with visit(name, **look) as page:
        assert violations(page) == []


@pytest.mark.parametrize("look", [{}, NARROW], ids=["wide", "narrow"])
def test_a_table_is_a_table_for_assistive_tools_however_it_is_laid_out(
    visit: Visit, documents: dict[str, Any], look: dict[str, Any]
) -> None:
    with visit("plugin", **look) as page:
        tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in tree if not node["ignored"]]
    assert roles.count("row") > len(rules(documents["plugin"]))
    assert roles.count("rowheader") >= len(rules(documents["plugin"]))


@pytest.mark.parametrize("look", [{}, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize(
    ("name", "answer"), list(zip(PAGES, ("Conforms", "Does not conform", "Does not conform"), strict=True))
)
def test_the_answer_is_on_the_first_screen(
    visit: Visit, name: str, answer: str, look: dict[str, Any]
) -> None:
    with visit(name, **look) as page:
        heading = page.locator(".answer .words").first
        box = heading.bounding_box()
        assert heading.text_content() == answer
        assert box["y"] + box["height"] < page.viewport_size["height"] / 2


@pytest.mark.parametrize(
    "wanted",
    [
        {"level": "SHOULD"},
        {"verdict": "crash"},
        {"area": "EXE"},
        {"area": "EXT", "verdict": "fail", "level": "MUST"},
        {"verdict": "unsupported"},
    ],
    ids=lambda wanted: " ".join(wanted.values()),
)
def test_the_filters_show_the_rules_that_fit(
    visit: Visit, documents: dict[str, Any], wanted: dict[str, str]
) -> None:
    fitting = [
        rule
        for rule in rules(documents["libqnnhtp"])
        if all((rule[key] or rule["state"]) == value for key, value in wanted.items())
    ]
    with visit("libqnnhtp") as page:
        for key, value in wanted.items():
            page.select_option(f"select[name={key}]", value)
        assert fitting
        assert shown(page, "tr") == sorted(rule["id"] for rule in fitting)
        assert shown(page, "article") == sorted(rule["id"] for rule in fitting if rule["verdict"] in FINDINGS)
        assert page.locator(".shown").text_content().startswith(f"{len(fitting)} rule")
        empty = page.eval_on_selector_all(
            ".cause:not([hidden])", "all => all.filter(each => !each.querySelector('article:not([hidden])'))"
        )
        assert empty == []
        page.click("button[type=reset]")
        until(page, "document.querySelectorAll('tr[data-rule][hidden]').length === 0")


def test_every_word_of_a_search_is_looked_for(visit: Visit, documents: dict[str, Any]) -> None:
    with visit("many") as page:
        everything = shown(page, "tr")
        page.fill("input[name=search]", "REG-08")
        assert shown(page, "tr") == ["REG-08"]
        page.fill("input[name=search]", "qnn_MEM_error register")
        found = shown(page, "article")
        texts = page.locator("article:not([hidden])").all_text_contents()
        assert 0 < len(found) < page.locator("article").count()
        assert all("qnn_mem_error" in text.lower() and "register" in text.lower() for text in texts)
        page.fill("input[name=search]", "no such word")
        assert shown(page, "tr") == shown(page, "article") == []
        page.press("input[name=search]", "Escape")
        until(page, "document.querySelectorAll('tr[data-rule][hidden]').length === 0")
        assert shown(page, "tr") == everything


@pytest.mark.parametrize("name", ["Replay", "Debug"])
def test_a_copy_button_copies_what_it_stands_beside(visit: Visit, name: str) -> None:
    permitted = {"permissions": ["clipboard-read", "clipboard-write"]}
    with visit("libqnnhtp", **permitted) as page:
        commands = page.locator(f"pre[data-copy={name}]").all_text_contents()
        page.get_by_label(f"Copy: {name}").nth(1).click()
        until(page, "document.getElementById('said').textContent === 'Copied'")
        page.focus("input[name=search]")
        page.keyboard.press("Control+V")
        assert page.input_value("input[name=search]") == commands[1]
        assert commands[1] != commands[0]


def test_everything_is_reached_by_the_keyboard(visit: Visit) -> None:
    with visit("libqnnhtp") as page:
        focused = "document.activeElement.outerHTML"
        page.keyboard.press("Tab")
        assert 'class="skip"' in page.evaluate(focused)
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#main"
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.name") == "search"
        assert page.input_value("input[name=search]") == ""
        reached = set()
        for _ in range(80):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.tagName"))
        assert {"SELECT", "BUTTON", "A", "SUMMARY", "DIV"} <= reached
        summary = page.locator("details:not([open]) > summary").first
        summary.focus()
        opened = summary.element_handle()
        page.keyboard.press("Enter")
        assert page.evaluate("element => element.parentElement.open", opened)


def test_a_link_shows_what_a_filter_hides(visit: Visit) -> None:
    with visit("libqnnhtp") as page:
        page.fill("input[name=search]", "no such word")
        page.evaluate("location.hash = 'EXE-05'")
        until(page, "!document.getElementById('EXE-05').hidden")
        assert page.locator("#EXE-05").is_visible()


def test_a_link_that_is_followed_again_shows_what_a_filter_has_hidden_since(visit: Visit) -> None:
    with visit("libqnnhtp") as page:
        for _ in range(2):
            page.fill("input[name=search]", "no such word")
            assert not page.locator("#cause-1-1").is_visible()
            page.locator("a[href='#cause-1-1']").click()
            until(page, "!document.getElementById('cause-1-1').hidden")
            assert page.locator("#cause-1-1").is_visible()


@pytest.mark.parametrize("place", ["", "#rule-EXE-05"])
def test_who_comes_back_sees_what_the_filters_say(visit: Visit, place: str) -> None:
    with visit("libqnnhtp") as page:
        page.goto(f"{page.url}{place}")
        page.select_option("select[name=verdict]", "pass")
        passed = shown(page, "tr")
        page.goto("about:blank")
        page.go_back()
        chosen = page.input_value("select[name=verdict]")
        assert chosen == ("" if place else "pass")
        assert (shown(page, "tr") == passed) is (chosen == "pass")
        assert not place or page.locator(place).is_visible()


def test_every_link_leads_somewhere(visit: Visit) -> None:
    for name in PAGES:
        with visit(name) as page:
            lost = page.eval_on_selector_all(
                "a[href^='#']",
                "all => all.map(each => each.hash.slice(1)).filter(id => !document.getElementById(id))",
            )
            assert lost == []


@pytest.mark.parametrize("name", PAGES)
def test_without_script_everything_can_be_read(visit: Visit, documents: dict[str, Any], name: str) -> None:
    found = [rule["id"] for rule in rules(documents[name]) if rule["verdict"] in FINDINGS]
    with visit(name, java_script_enabled=False) as page:
        assert page.locator(".answer .words").first.is_visible()
        assert not page.locator("#filters").is_visible()
        assert page.locator("button.copy").count() == 0
        assert page.locator("article.finding:visible").count() == len(found)
        assert page.locator("tr[data-rule]:visible").count() == len(rules(documents[name]))


def test_print_shows_all_of_it_and_no_controls(visit: Visit) -> None:
    with visit("libqnnhtp") as page:
        assert page.locator("details:not([open])").count() > 0
        assert page.pdf()[:5] == b"%PDF-"
        assert page.locator("details:not([open])").count() == 0
        page.emulate_media(media="print")
        assert not page.locator("#filters").is_visible()
        assert not page.locator("button.copy").first.is_visible()


def test_paper_says_what_a_filter_has_left_out(visit: Visit, documents: dict[str, Any]) -> None:
    found = rules(documents["libqnnhtp"])
    with visit("libqnnhtp") as page:
        everything = f"{len(found)} rules, {sum(rule['verdict'] in FINDINGS for rule in found)} findings"
        assert page.locator(".shown").text_content() == everything
        page.select_option("select[name=level]", "MUST")
        page.fill("input[name=search]", "QnnMem_register")
        page.emulate_media(media="print")
        left = page.locator("#filters > :visible")
        assert left.count() == 1
        number = len(shown(page, "tr"))
        assert f"{number} rules of {len(found)}, " in left.text_content()
        assert left.get_attribute("data-chosen") == "level MUST, search qnnmem_register"
        assert "only what fits" in left.evaluate("each => getComputedStyle(each, '::before').content")


@pytest.mark.parametrize("width", [718, 740], ids=["A4", "Letter"])
def test_paper_of_either_size_has_all_figures_by_name(
    visit: Visit, documents: dict[str, Any], width: int
) -> None:
    (judged, *_) = [rule for rule in rules(documents["libqnnhtp"]) if rule["state"] == "judged"]
    with visit("libqnnhtp", viewport={"width": width, "height": 1000}) as page:
        page.emulate_media(media="print")
        assert page.locator(".minor:not(:visible)").count() == 0
        cells = page.locator(f"#rule-{judged['id']} td.minor")
        assert cells.nth(0).text_content() == str(judged["examples"])
        heads = page.locator(".rules thead").first.evaluate("each => getComputedStyle(each).position")
        names = [
            cells.nth(place).evaluate("each => getComputedStyle(each, '::before').content")
            for place in range(cells.count())
        ]
        assert (heads == "static") or all(name not in ("none", "normal", "") for name in names)
        assert len(names) == 3


def test_dark_is_dark(visit: Visit) -> None:
    def brightness(page: Any) -> float:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3

    with visit("plugin", **DARK) as dark, visit("plugin") as light:
        assert brightness(dark) < 64
        assert brightness(light) > 192


def earlier(document: dict[str, Any]) -> dict[str, Any]:
    """The same report of a library without the first finding, with one more, and with another crash."""
    made = copy.deepcopy(document)
    by_id = {rule["id"]: rule for rule in rules(made)}
    violation = copy.deepcopy(by_id["CAP-03"]["violation"])
    by_id["CAP-03"] |= {"verdict": "pass", "violation": None}
    by_id["CAP-01"] |= {"verdict": "fail", "violation": violation}
    by_id["EXE-05"]["violation"]["seen"] = HOSTILE
    return made


@pytest.mark.parametrize("look", [{}, NARROW | DARK], ids=["wide", "narrow and dark"])
def test_what_has_changed_is_seen_and_leads_to_the_finding(
    visit: Visit, documents: dict[str, Any], look: dict[str, Any]
) -> None:
    now = documents["libqnnhtp"]
    old, new = (loaded.decode(json.dumps(each).encode()) for each in (earlier(now), now))
    with visit("changed", now, msgspec.to_builtins(compare(old, new)), **look) as page:
        rows = page.locator(".changes tbody tr")
        assert rows.locator("td:first-child").all_text_contents() == ["new", "gone", "changed"]
        assert rows.locator("th").all_text_contents() == ["CAP-03", "CAP-01", "EXE-05"]
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        assert rows.locator("[data-label=before]").last.text_content() == f"crash {HOSTILE}"
        assert violations(page) == []
        rows.locator("a").first.click()
        assert page.evaluate("location.hash") == "#CAP-03"
        assert page.locator("#CAP-03 .new").is_visible()


@pytest.mark.parametrize("look", [{}, NARROW | DARK], ids=["wide", "narrow and dark"])
def test_the_table_of_the_input_domain_opens_and_says_what_became_of_each_operator(
    visit: Visit, documents: dict[str, Any], look: dict[str, Any]
) -> None:
    (covered,) = (rule["coverage"] for rule in rules(documents["plugin"]) if "coverage" in rule)
    with visit("plugin", **look) as page:
        part = page.locator("section:has(> h3[id^=domain-])")
        rows = part.locator("tbody tr")
        assert rows.count() == len(covered) > 100
        assert not rows.first.is_visible()
        part.locator("summary").focus()
        page.keyboard.press("Enter")
        assert rows.last.is_visible()
        told = [row.split()[:3] for row in rows.all_inner_texts()]
        assert told == [[row["op"], row["dtype"], row["ranks"]] for row in covered]
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        assert violations(page) == []


def test_the_rule_of_the_input_domain_is_found_by_filters_and_its_table_stays(visit: Visit) -> None:
    with visit("plugin") as page:
        page.select_option("select[name=area]", "DOM")
        assert shown(page, "tr") == ["DOM-01"]
        page.locator("section:has(> h3[id^=domain-]) summary").click()
        assert page.locator("section:has(> h3[id^=domain-]) tbody tr").first.is_visible()


def test_foreign_text_stays_text(visit: Visit, documents: dict[str, Any]) -> None:
    document = copy.deepcopy(documents["libqnnhtp"])
    for rule in rules(document):
        if rule["violation"]:
            rule["violation"] |= {"seen": HOSTILE, "where": HOSTILE, "picture": HOSTILE}
            rule["replay"] = HOSTILE
    document["targets"][0]["spec"] = HOSTILE
    with visit("hostile", document) as page:
        assert page.locator("dd.seen").first.text_content() == HOSTILE
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 1
