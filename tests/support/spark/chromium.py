"""Headless Chromium, which reads a file and says what it made of it. Each run has an empty profile of its own."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from support.tools import need

QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"
# What an iframe may do in which no script runs.
NO_SCRIPTS = 'sandbox="allow-same-origin"'

# A page that holds another one, and tells what is in it once it is loaded.
_OBSERVER = """<!DOCTYPE html><body><iframe id="page" FRAME width="WIDTH" height="900" src="PAGE"></iframe>
<pre id="seen"></pre>
<script>
document.getElementById("page").onload = (event) => {
  const inner = event.target.contentDocument, root = inner.documentElement;
  const all = (what) => [...inner.querySelectorAll(what)];
  document.getElementById("seen").textContent = JSON.stringify({
    title: inner.title, sections: all("section").map((one) => one.id),
    height: root.scrollHeight, width: root.scrollWidth, room: root.clientWidth,
    plots: all(".plot").map((one) => one.querySelectorAll("path, rect, line").length),
    cut: all("svg.field, svg.lane").filter((one) => one.getBoundingClientRect().right > root.clientWidth)
      .map((one) => one.getAttribute("aria-label")),
    active: all("script, img, iframe, object, embed, link, form, [onerror], [onload]").length,
    loaded: event.target.contentWindow.performance.getEntriesByType("resource").map((one) => one.name),
    ink: getComputedStyle(inner.body).color, paper: getComputedStyle(inner.body).backgroundColor,
    small: Math.min(...all("svg text").map((one) => one.getBoundingClientRect().height).filter((high) => high)),
  });
};
</script>"""


def run(*arguments: str) -> str:
    """Return what Chromium prints."""
    with tempfile.TemporaryDirectory() as profile:
        command = [need("chromium"), *QUIET, f"--user-data-dir={profile}", *arguments]
        done = subprocess.run(command, capture_output=True, timeout=240, check=True, cwd=profile)
    return done.stdout.decode()


def observe(page: Path, width: int, *arguments: str, frame: str = "") -> dict[str, Any]:
    """Return what Chromium has of a page in a frame of some width, with some attributes; see _OBSERVER."""
    outer = page.with_name(f"observer-{width}.html")
    text = _OBSERVER.replace("WIDTH", str(width)).replace("PAGE", page.as_uri()).replace("FRAME", frame)
    outer.write_text(text)
    access = ("--allow-file-access-from-files", "--virtual-time-budget=20000")
    dumped = run(*access, *arguments, "--dump-dom", outer.as_uri())
    found = dumped.partition('<pre id="seen">')[2].partition("</pre>")[0]
    seen: dict[str, Any] = json.loads(found)
    return seen
