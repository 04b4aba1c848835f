"""What mkdocs calls while it builds the site: generated pages, pages of the repository's root, the nav.

What must not live here: the content of a page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.generate.reference import commands_page, scenario_page, workloads_page  # noqa: E402

FROM_ROOT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Page of the repository -> its name in the site."""
_GENERATED = {"scenario.md": scenario_page, "commands.md": commands_page, "workloads.md": workloads_page}
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?://|#)([^)#]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Leave pages out of the nav that are not written (yet)."""
    made = {*_GENERATED, *FROM_ROOT.values()}
    config.nav = _there(config.nav, Path(config.docs_dir), made)
    return config


def _there(nav: list[Any], folder: Path, made: set[str]) -> list[Any]:
    kept: list[Any] = []
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            kept.append({title: _there(target, folder, made)})
        elif target in made or (folder / target).is_file():
            kept.append(entry)
    return kept


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are no files of the folder."""
    for name, make in _GENERATED.items():
        files.append(File.generated(config, name, content=make()))
    for source, name in FROM_ROOT.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links at pages of the site; a link to another file of the repository becomes the file's name."""

    def placed(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        name = target.removeprefix("../").removeprefix("docs/")
        name = FROM_ROOT.get(name, name)
        if files.get_file_from_path(name):
            return f"[{words}]({name}{anchor})"
        return words if words.startswith("`") else f"`{target.removeprefix('../')}`" if words == target else words

    # Code is left alone: brackets and parentheses mean something else there.
    parts = re.split(r"(^```.*?^```|`[^`\n]*`)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if place % 2 else _LINK.sub(placed, part) for place, part in enumerate(parts))
