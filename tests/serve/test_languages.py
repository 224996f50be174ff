"""Answers and the page in the language of a person."""

import pytest

from tests.serve.parts import TREES, files, png
from tests.serve.test_page import server as server, upload, violations

FRENCH = "Sur 100 listes de ce type, 90 contiennent la bonne classe."


@pytest.mark.parametrize(
    ("options", "header", "beginning"),
    [
        ({}, None, "90 of 100 such lists"),
        ({"lang": "fr"}, "de", FRENCH),
        ({}, "nl, de-AT;q=0.5", "Von 100 solchen Listen enthalten 90"),
        ({"lang": "ja"}, "fr", "90 of 100 such lists"),
    ],
)
def test_promises_are_in_the_language_of_the_request(client, options, header, beginning):
    headers = {} if header is None else {"accept-language": header}
    sent = {"params": {"coverage": 0.9, **options}, "headers": headers, "files": files(png(1))}
    assert client.post("/v1/identify", **sent).json()["promise"]["words"].startswith(beginning)
    each = client.post("/v1/identify/batch", **sent).json()["answers"]
    assert each[0]["promise"]["words"].startswith(beginning)


def test_other_sentences_are_too(client):
    ladder = client.get("/v1/ladder", params={"lang": "it"}).json()
    assert ladder["words"].startswith("Una copertura è promessa")
    assert client.get("/v1/ladder").json()["words"].startswith("A coverage is promised")
    body = client.post("/v2/identify/all", params={"lang": "es"}, files=files(png(1))).json()
    assert body["promise"]["words"].startswith("Estas listas tienen 6 clases")


@pytest.mark.parametrize(
    ("path", "header", "language"),
    [("/", None, "en"), ("/", "pt-BR,pt;q=0.9", "pt"), ("/?lang=it", "fr", "it"), ("/?lang=xx", "fr", "en")],
)
def test_the_page_is_in_the_language_of_the_browser(client, path, header, language):
    answer = client.get(path, headers={} if header is None else {"accept-language": header})
    assert f'<html lang="{language}">' in answer.text and answer.headers["vary"] == "Accept-Language"


def test_a_person_changes_the_language_and_the_browser_remembers_it(browser, server):
    context = browser.new_context(viewport={"width": 390, "height": 844}, locale="fr-FR")
    view = context.new_page()
    troubles = []
    view.on("pageerror", lambda error: troubles.append(str(error)))
    view.goto(server[0])
    assert view.locator("html").get_attribute("lang") == "fr"
    assert view.locator("h1").inner_text() == "Qu'est-ce que c'est ?"
    upload(view, png(3))
    view.wait_for_selector("li.candidate")
    view.locator("#promise summary").click()
    assert view.locator("#promise-words").inner_text().startswith("Sur 100 listes de ce type, 90 ")
    view.get_by_label("Langue").select_option("de")
    view.wait_for_function("() => document.querySelector('#promise-words').textContent.startsWith('Von 100')")
    assert view.locator("html").get_attribute("lang") == "de"
    assert view.locator("h1").inner_text() == "Was ist das?" and view.title().startswith("Was ist das?")
    assert view.locator("#search").get_attribute("placeholder") == "Namen suchen"
    assert "von 100 Listen" in view.locator("#setting").inner_text()
    assert view.locator("li.candidate h3").first.inner_text() in TREES.names
    assert view.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(view) == []
    view.reload()
    view.wait_for_function("() => document.documentElement.lang === 'de'")
    assert view.locator("#choose").inner_text() == "Fotos auswählen"
    view.get_by_label("Sprache").select_option("en")
    view.wait_for_function("() => document.querySelector('h1').textContent === 'What is it?'")
    context.close()
    assert troubles == []


@pytest.mark.parametrize("language", ["en", "fr", "de", "es", "pt", "it"])
def test_no_language_is_wider_than_a_phone(browser, server, language):
    context = browser.new_context(viewport={"width": 390, "height": 844}, locale=language)
    view = context.new_page()
    view.goto(server[0])
    upload(view, png(3), png(4))
    view.wait_for_selector("li.candidate")
    assert view.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
