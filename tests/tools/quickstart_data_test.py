"""The quickstart's data: what becomes of Debian's lists, and of a folder of one's own texts."""
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools/quickstart"

TRANSLATION = """\
Package: librust-foo-dev
Description-md5: 1
Description-en: Foo crate, in librust-foo-dev
 First line
 second line of librust-foo-dev, not of librust-foo-devel.
 .
 A new   paragraph.

Package: gimp
Description-md5: 2
Description-en: The gimp image editor
 Edits images.
"""
PACKAGES = """\
Package: librust-foo-dev
Source: foo (1.0-2)
Description: Foo crate
Description-md5: 1
Tag: role::program,
 use::editing
Section: contrib/rust

Package: gimp
Description: The gimp image editor
Description-md5: 2
Section: graphics

Package: gimp
Version: 2
Description: A newer gimp of the updates
Description-md5: 3
Section: graphics

Package: gimp-copy
Description: The gimp image editor
Description-md5: 2
Section: graphics

Package: unknown
Description: Only a short description is known
Section: misc
"""


def shell(script: str, folder: str) -> subprocess.CompletedProcess:
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script, "test", folder], cwd=ROOT, text=True,
                          capture_output=True)


def rows(*lists: str) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(lists):
            pathlib.Path(folder, str(number)).write_text(text, encoding="utf-8")
        done = shell(f"LC_ALL=C awk -f {TOOLS}/descriptions.awk $1/*", folder)
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]


class Descriptions(unittest.TestCase):
    def test_markup_is_removed_and_the_packages_own_name_hidden(self):
        self.assertEqual(rows(TRANSLATION, PACKAGES)[0][2:], [
            "rust", "Foo crate, in this package\x01First line second line of this package, not of librust-foo-devel."
            "\x01A new paragraph."])

    def test_a_text_comes_once_and_a_package_comes_once(self):
        self.assertEqual([row[3] for row in rows(TRANSLATION, PACKAGES)][1:],
                         ["The gimp image editor\x01Edits images.", "Only a short description is known"])

    def test_short_descriptions_stand_in_where_long_ones_are_missing(self):
        self.assertEqual([row[3] for row in rows(PACKAGES)][-1], "Only a short description is known")

    def test_packages_of_one_source_are_in_one_split_and_the_splits_have_their_shares(self):
        text = "".join(f"Package: p{i}-{kind}\nSource: p{i}\nDescription: Text number {i} of kind {kind}\nSection: misc\n\n"
                       for i in range(2000) for kind in ("dev", "doc", "bin"))
        splits, shares = {}, {}
        for _, split, _, description in rows(text):
            splits.setdefault(description.split()[2], set()).add(split)
            shares[split] = shares.get(split, 0) + 1
        self.assertEqual({len(found) for found in splits.values()}, {1})
        self.assertEqual(len(splits), 2000)
        self.assertAlmostEqual(shares["test"] / 6000, 0.1, delta=0.03)
        self.assertAlmostEqual(shares["eval"] / 6000, 0.1, delta=0.03)

    def test_small_sections_are_read_but_not_labelled_and_the_test_split_is_not_read(self):
        lines = "\n".join(["1\ttrain\tbig\tone\x01two", "2\ttrain\tsmall\tthree", "3\ttest\tbig\tfour", "4\teval\tbig\tfive"])
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "counts").write_text("big\t3\nsmall\t1\n")
            (folder / "all").write_text(lines + "\n")
            done = shell(f"awk -v out=$1 -v smallest=2 -f {TOOLS}/write_splits.awk $1/counts $1/all", name)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((folder / "text-train.txt").read_text(), "one\ntwo\n\nthree\n\n")
            self.assertFalse((folder / "text-test.txt").exists())
            self.assertEqual((folder / "text-eval.txt").read_text(), "five\n\n")
            self.assertEqual((folder / "sections-train.tsv").read_text(), "big\tone two\n")
            self.assertEqual((folder / "sections-test.tsv").read_text(), "big\tfour\n")


class OwnTexts(unittest.TestCase):
    def prepare(self, files: dict[str, str]) -> tuple[subprocess.CompletedProcess, dict[str, str]]:
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "in").mkdir()
            (root / "out/data").mkdir(parents=True)
            for path, text in files.items():
                (root / "in" / path).write_text(text, encoding="utf-8", newline="")
            done = shell(f". tools/common.sh; title() {{ say \"$*\"; }}; here={TOOLS}; data=$1/in; folder=$1/out; "
                         f". {TOOLS}/data.sh; own_data", name)
            return done, {path.name: path.read_text() for path in (root / "out/data").iterdir()}

    def test_every_tenth_document_is_held_out(self):
        one = "".join(f"document {i}\r\n\r\n" for i in range(15))
        two = "\n\n".join(f"document {i}" for i in range(15, 20))
        done, files = self.prepare({"a.txt": one, "b.txt": two})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(files["text-eval.txt"], "document 9\n\ndocument 19\n\n")
        self.assertEqual(len(files["text-train.txt"].split()), 36)
        self.assertNotIn("train.tsv", files)

    def test_a_line_of_spaces_separates_documents_and_too_few_are_told(self):
        done, files = self.prepare({"a.txt": "one\n \ntwo\n\t\nthree\n"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(files["text-train.txt"], "one\n\ntwo\n\nthree\n\n")
        self.assertIn("3 documents", done.stdout)
        self.assertIn("none is held out", done.stdout)

    def test_labels_are_split_label_by_label(self):
        labels = "label\ttext\n" + "".join(f"{'ab'[i % 2]}\ttext {i}\n" for i in range(80))
        done, files = self.prepare({"a.txt": "one\n\ntwo\n", "labels.tsv": labels})
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, count in (("train", 72), ("eval", 4), ("test", 4)):
            lines = files[name + ".tsv"].splitlines()
            self.assertEqual(lines[0], "label\ttext")
            self.assertEqual([line[0] for line in lines[1:]].count("a"), count / 2, name)

    def test_only_labels_that_can_be_learnt_are_asked_for(self):
        with tempfile.TemporaryDirectory() as name:
            pathlib.Path(name, "train").write_text("b\tone\nc\ttwo\nd\tthree\n")
            pathlib.Path(name, "test").write_text("a\tfour\nb\tfive\nd\tsix\nc\tseven\nb\teight\n")
            done = shell(f". {TOOLS}/data.sh; labelled 2 $1/train >$1/some; labelled 2 $1/test $1/some; cat $1/some", name)
            self.assertEqual(done.stdout, "label\ttext\nb\tfive\nc\tseven\nlabel\ttext\nb\tone\nc\ttwo\n", done.stderr)

    def test_folders_of_one_name_do_not_share_results(self):
        with tempfile.TemporaryDirectory() as name:
            for parent in "ab":
                pathlib.Path(name, parent, "texts").mkdir(parents=True)
            take = f". tools/common.sh; . {TOOLS}/data.sh; folder=$1/out; data=$1/%s/texts; own_folder; echo $folder"
            taken = [shell(take % parent, name).stdout.strip() for parent in "abab"]
            first = f"{name}/out/own/texts"
            self.assertEqual(taken, [first, first + "-2", first, first + "-2"])

    def test_a_folder_is_not_taken_while_another_works_in_it(self):
        with tempfile.TemporaryDirectory() as name:
            done = shell(f". {TOOLS}/data.sh; folder=$1/out; take_folder; (sleep 60) & exec 9>&-; "
                         "take_folder && echo twice; kill $!; wait $! || true; take_folder && echo free", name)
            self.assertEqual(done.stdout, "free\n", done.stderr)

    def test_text_that_is_not_utf8_is_named(self):
        with tempfile.TemporaryDirectory() as name:
            pathlib.Path(name, "latin.txt").write_bytes(b"na\xefve\n")
            done = shell(f". tools/common.sh; title() {{ :; }}; . {TOOLS}/data.sh; data=$1; folder=$1/out; own_data", name)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"quickstart: {name}/latin.txt is not UTF-8", done.stderr)

    def test_wrong_input_is_named(self):
        done, _ = self.prepare({"labels.tsv": "a\tb\n"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("no *.txt in", done.stderr)
        done, _ = self.prepare({"a.txt": "one\n", "labels.tsv": "a\tb\na b\n"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("labels.tsv:2: expected label TAB text, found 1 columns", done.stderr)


if __name__ == "__main__":
    unittest.main()
