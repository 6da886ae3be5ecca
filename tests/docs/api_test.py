"""The page of public headers lists what Doxygen reads, everything in these headers is documented, and the site's hook finds broken links."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOXYFILE = ROOT / "docs/reference/Doxyfile"


def undocumented(doxyfile, root):
    """What Doxygen warns of."""
    with tempfile.TemporaryDirectory() as folder:
        settings = f"{doxyfile}\nOUTPUT_DIRECTORY = {folder}\nWARN_AS_ERROR = NO\n"
        done = subprocess.run(["doxygen", "-"], input=settings, cwd=root, capture_output=True, text=True, check=False)
        return [line for line in done.stderr.splitlines() if line]


def site_hook():
    """tools/site/api.py, with stand-ins for the parts of mkdocs that it imports."""
    modules = {name: types.ModuleType(name) for name in ("mkdocs", "mkdocs.exceptions", "mkdocs.structure", "mkdocs.structure.files")}
    modules["mkdocs.exceptions"].PluginError = RuntimeError
    modules["mkdocs.structure.files"].File = None
    spec = importlib.util.spec_from_file_location("site_api", ROOT / "tools/site/api.py")
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, modules):
        spec.loader.exec_module(module)
    return module


class PublicHeaders(unittest.TestCase):
    def test_the_page_lists_what_doxygen_reads(self):
        read = re.findall(r"funicular/\w+/\w+\.h", DOXYFILE.read_text())
        listed = re.findall(r"`(funicular/\w+/\w+\.h)`", (ROOT / "docs/reference/api.md").read_text())
        self.assertEqual(sorted(read), sorted(listed))
        self.assertEqual([header for header in read if not (ROOT / header).is_file()], [])

    @unittest.skipUnless(shutil.which("doxygen"), "needs doxygen")
    def test_everything_in_them_is_documented(self):
        self.assertEqual(undocumented(DOXYFILE.read_text(), ROOT), [])

    @unittest.skipUnless(shutil.which("doxygen"), "needs doxygen")
    def test_what_is_not_documented_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "one.h").write_text("/// A class.\nclass A {\n public:\n  int f();\n};\n")
            settings = re.sub(r"INPUT .*", "INPUT = one.h", DOXYFILE.read_text(), flags=re.DOTALL)
            self.assertIn("f()", " ".join(undocumented(settings, folder)))


class SiteHook(unittest.TestCase):
    def test_headers_on_the_page_lead_to_their_pages(self):
        page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="reference/api.md"))
        text = site_hook().on_page_markdown("| `funicular/train/trainer_options.h` |", page, None, None)
        self.assertEqual(text, "| [`funicular/train/trainer_options.h`](cpp/trainer__options_8h.html) |")

    def test_links_that_lead_to_no_page_or_no_place_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            cpp = pathlib.Path(folder) / "reference/cpp"
            cpp.mkdir(parents=True)
            (cpp.parent / "api.html").write_text("<p>")
            (cpp / "a.html").write_text('<a name="here"></a><a href="#here"></a><a href="b.html#there"></a><a href="../api.html"></a>'
                                        '<a href="https://x.invalid/y"></a><a href="gone.html"></a><img src="gone.png">')
            (cpp / "b.html").write_text('<h1 id="there"></h1><a href="a.html#nowhere"></a>')
            self.assertEqual(site_hook().broken_links(pathlib.Path(folder)),
                             ["a.html: gone.html", "a.html: gone.png", "b.html: a.html#nowhere"])


if __name__ == "__main__":
    unittest.main()
