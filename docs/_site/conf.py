"""The documentation as a site: Sphinx reads the Markdown pages as they are.

docs/README.md is the front page; the pages that each of its sections names become its chapters.
"""

import posixpath
import re
import shutil
from importlib.metadata import version as installed
from pathlib import Path

project = "dralab"
author = "the dralab authors"
version = release = installed("dralab")
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown"}
exclude_patterns = ["_site", "_build"]
myst_heading_anchors = 3
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_title = f"dralab {version}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}
nitpicky = True

LINK = re.compile(
    r"\[[^\]]*\]\(((?:guides|tutorials|reproductions|concepts|decisions|reference)/[\w-]+|figures|first-steps)\.md\)"
)
UPWARDS = re.compile(r"!?\[([^\]]*)\]\(((?:\.\./)+[^)#]*)[^)]*\)")


def within(page, text):
    """Return a page in which files outside of the site are named without a link."""

    def named(link):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[2]))
        return link[1] if target.startswith("..") else link[0]

    return UPWARDS.sub(named, text)


def with_chapters(_app, page, source):
    """Give the front page its table of contents, and leave the site by no link."""
    text = within(page, source[0])
    if page == root_doc:
        seen = set()
        for part in text.split("\n## ")[1:]:
            title = part.partition("\n")[0]
            pages = [each for each in LINK.findall(part) if each not in seen]
            if title.startswith("You are"):
                continue
            seen.update(pages)
            entries = "\n".join(pages)
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n"
        text = text.replace(
            "\n## You are", "\n```{toctree}\n:hidden:\n\nfirst-steps\n```\n\n## You are", 1
        )
    source[0] = text


def publish_schemas(app, error):
    """Put the JSON schemas where their pages link to: editors read them by their address."""
    if error is None:
        schemas = "reference/schemas"
        shutil.copytree(Path(app.srcdir, schemas), Path(app.outdir, schemas), dirs_exist_ok=True)


def setup(app):
    """Connect."""
    app.connect("build-finished", publish_schemas)
    app.connect("source-read", with_chapters)
