"""A hook of mkdocs: Doxygen's reference of the public headers becomes part of the site, below reference/cpp/.

Each header that docs/reference/api.md names leads to its page. Links between the pages are checked when the site is built.
"""

import html.parser
import os
import pathlib
import re
import subprocess
import tempfile
import urllib.parse

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

FOLDER = "reference/cpp"
PAGE = "reference/api.md"
HEADER = re.compile(r"`(funicular/\w+/(\w+)\.h)`")
BAR = '<p style="margin:0;padding:.6em 1em;background:#546e7a"><a style="color:white" href="../../index.html">Funicular</a> · ' \
      '<a style="color:white" href="../api.html">Public C++ headers</a></p>'


def page_of(name):
    """Doxygen's name of the page of a header."""
    return name.replace("_", "__") + "_8h.html"


def make_reference(root, folder):
    settings = (root / "docs/reference/Doxyfile").read_text(encoding="utf-8")
    # Without EXTRACT_ALL a header has no page, and functions of a namespace are left out.
    settings += f"\nOUTPUT_DIRECTORY = {folder}\nEXTRACT_ALL = YES\nWARN_AS_ERROR = NO\nSEARCHENGINE = NO\nHTML_COLORSTYLE_SAT = 30\n"
    done = subprocess.run(["doxygen", "-"], input=settings, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PluginError(f"doxygen failed:\n{done.stderr}")
    for page in (folder / "html").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(re.sub(r"(<body[^>]*>)", lambda body: body[0] + BAR, text, count=1), encoding="utf-8")
    return folder / "html"


def on_config(config):
    config["cpp_reference"] = tempfile.TemporaryDirectory()
    return config


def on_files(files, config):
    made = make_reference(pathlib.Path(config["docs_dir"]).parent, pathlib.Path(config["cpp_reference"].name))
    for path in sorted(made.rglob("*")):
        if path.is_file():
            files.append(File.generated(config, f"{FOLDER}/{path.relative_to(made).as_posix()}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri != PAGE:
        return markdown
    return HEADER.sub(lambda header: f"[{header[0]}](cpp/{page_of(header[2])})", markdown)


class Links(html.parser.HTMLParser):
    """What a page leads to, and the places in it that others may lead to."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update(values[name] for name in ("id", "name") if values.get(name))
        self.targets += [values[name] for name in ("href", "src") if values.get(name)]


def broken_links(site):
    """Links of the reference that lead to no file, or to no place in it, as "PAGE: LINK"."""
    known = {}

    def links(path):
        if path not in known:
            known[path] = Links(path.read_text(encoding="utf-8"))
        return known[path]

    broken = []
    for page in sorted((site / FOLDER).glob("*.html")):
        for target in links(page).targets:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = pathlib.Path(os.path.normpath(page.parent / urllib.parse.unquote(parts.path))) if parts.path else page
            if not path.is_file() or (path.suffix == ".html" and urllib.parse.unquote(parts.fragment) not in links(path).anchors):
                broken.append(f"{page.name}: {target}")
    return broken


def on_post_build(config):
    config["cpp_reference"].cleanup()
    broken = broken_links(pathlib.Path(config["site_dir"]))
    if broken:
        raise PluginError("links of the C++ reference lead nowhere:\n" + "\n".join(broken))
