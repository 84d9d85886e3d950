"""Hooks of the documentation site: the README is the home page, links to other files of the repository become text."""

import re
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify_unicode
from mkdocs.structure.files import File, Files

_OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+((?:examples|services|libs|schemas|k8s|tests|README|CONTRIBUTING|CHANGELOG)[^)]*)\)"
)
_FROM_ROOT = re.compile(r"\[([^\]]+)\]\((?!https?:|#|docs/)([^)]+)\)")


def on_config(config: Any) -> Any:
    """Make the ids of headings as GitHub does, where Chinese headings have some, too."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify_unicode
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the README as the home page."""
    text = Path(config.config_file_path).with_name("README.md").read_text(encoding="utf-8")
    text = _FROM_ROOT.sub(r"\1 (`\2`)", text).replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace links to files that are not part of the site by the path of the file."""
    return _OUTSIDE.sub(r"\1 (`\2`)", markdown)
