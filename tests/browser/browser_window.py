"""A real browser without a window: starting it, and the few questions that tests ask of a page.

What must not live here: tests and fixtures.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
ADVICE = "Install Debian's packages chromium and chromium-driver, or name others in CHROMIUM and CHROMEDRIVER."


def _found(variable: str, name: str) -> str:
    path = os.environ.get(variable) or shutil.which(name)
    if not path or not Path(path).exists():
        pytest.fail(f"These tests need {name}, which is not here. {ADVICE}", pytrace=False)
    return path


@dataclass
class Window:
    """A browser that shows one page at a time."""

    driver: webdriver.Chrome

    @classmethod
    def start(cls, profile: Path, *, javascript: bool = True) -> Window:
        """Start a browser with a profile of its own; a missing browser fails the test and says what to install."""
        options = webdriver.ChromeOptions()
        options.binary_location = _found("CHROMIUM", "chromium")
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")
        if not javascript:
            options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        try:
            driver = webdriver.Chrome(options=options, service=Service(_found("CHROMEDRIVER", "chromedriver")))
        except WebDriverException as error:
            pytest.fail(f"The browser did not start: {error.msg}. {ADVICE}", pytrace=False)
        return cls(driver)

    def show(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False, hash_: str = "") -> None:
        """Open a page as it looks at a size and in a colour scheme; older logs are thrown away."""
        self.size(width, height)
        self.emulate(dark=dark)
        self.driver.get("about:blank")
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        self.driver.get(f"{page.as_uri()}{hash_}")

    def size(self, width: int, height: int) -> None:
        """Give the window a size in pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def emulate(self, *, dark: bool = False, media: str = "") -> None:
        """Prefer dark or light, show as on a screen or on paper."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def ask(self, script: str, *arguments: Any) -> Any:
        """What a script's expression comes to in the page."""
        return self.driver.execute_script(f"return {script}", *arguments)

    def column(self, number: int) -> list[str]:
        """The texts of one column of the rows that are shown, in their order."""
        rows = "[...document.querySelectorAll('#cases tbody tr')].filter(r => !r.hidden)"
        return self.ask(f"{rows}.map(r => r.cells[{number}].textContent)")

    def press(self, selector: str) -> None:
        """Click what a selector finds."""
        self.driver.find_element("css selector", selector).click()

    def head(self, number: int) -> Any:
        """The button in the heading of a column, counted from 0."""
        return self.driver.find_elements("css selector", "#cases thead th button")[number]

    def colour(self, selector: str, name: str) -> str:
        """The computed colour of an element, as the browser writes it."""
        return self.ask(f"getComputedStyle(document.querySelector(arguments[0])).{name}", selector)

    def complaints(self) -> list[str]:
        """What the console holds."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The address of everything that the page asked for since it was opened."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
