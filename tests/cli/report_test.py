"""The page of funicular report, opened in a real browser: it needs nothing from anywhere, and shows the run's numbers.

FUNICULAR_SCREENSHOT=FILE.png keeps a picture of it.
"""

import os
import re

import browser
from harness import *


class Pages(ProgramTest):
    def made(self):
        """A run and an evaluation, with text that HTML would take for more; the page of both."""
        rows = [(label, text + " <b>&amp;</script>") for label, text in sentiment_rows(24)]
        data = write_rows(self.folder / "rows.tsv", ("label", "text"), rows)
        self.succeeds(*self.finetune_words(self.model(), train=data, eval=data, logging_steps=1, num_train_epochs=None, max_steps=5, eval_steps=2))
        self.succeeds("evaluate", "--model", self.folder / "run" / "model", "--data", data, "--output", self.folder / "tested")
        page = self.folder / "page.html"
        result = self.succeeds("report", "--input", self.folder / "run", self.folder / "tested", "--output", page, "--title", "A small run")
        return page, result

    def test_compare_what_was_measured_as_text_too(self):
        _, result = self.made()
        found = json.loads((self.folder / "tested" / "evaluation.json").read_text())
        models, runs = result.out.split("\n\n")
        head, row = [line.split() for line in models.splitlines()]
        told = dict(zip(head, row, strict=True))
        lines = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        self.assertIn(f"{min(line['loss'] for line in lines if 'loss' in line):.4g}", runs.splitlines()[1].split())
        self.assertEqual(told["accuracy"], f"{found['metrics']['accuracy']:.4f}")
        self.assertEqual((told["layers"], told["MB"], told["speed"]), (str(found["layers"]), f"{found['bytes'] / 1e6:.1f}", "1.00x"))

    @unittest.skipUnless(browser.find(), "NOT TESTED: no browser here (the Debian package chromium) to open the page in")
    def test_opened_in_a_browser_ask_for_nothing_and_show_the_numbers_of_the_run(self):
        page, _ = self.made()
        reader = browser.Browser(browser.find())
        self.addCleanup(reader.close)
        reader.open(page)
        self.assertEqual(reader.evaluate("document.title"), "A small run")
        if "FUNICULAR_SCREENSHOT" in os.environ:
            reader.screenshot(pathlib.Path(os.environ["FUNICULAR_SCREENSHOT"]))
        self.assertEqual([url for url in reader.requests() if not url.startswith("data:")], [page.resolve().as_uri()])
        self.assertEqual(reader.complaints(), [])

        lines = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        titles = reader.evaluate("[...document.querySelectorAll('figcaption')].map(one => one.textContent)")
        for title, field in (("training loss", "loss"), ("loss, evaluated", "eval_loss"), ("accuracy, evaluated", "eval_accuracy"),
                             ("learning rate", "learning_rate"), ("tokens per second", "tokens_per_second"), ("memory, bytes", "memory_bytes")):
            expected = [(line["step"], line[field]) for line in lines if field in line]
            self.assertEqual(self.drawn(reader, titles.index(title)), expected, title)

        cells = reader.evaluate("[...document.querySelectorAll('.matrix td')].map(one => Number(one.textContent))")
        found = json.loads((self.folder / "tested" / "evaluation.json").read_text())
        self.assertEqual(cells, [count for row in found["confusion_matrix"] for count in row])
        texts = reader.evaluate("[...document.querySelectorAll('.mistakes td.text')].map(one => one.textContent)")
        self.assertEqual(texts, [" | ".join(wrong["texts"]) for wrong in found["mistakes"]])
        self.assertTrue(all(text.endswith("<b>&amp;</script>") for text in texts))
        legend = reader.evaluate("[...document.querySelectorAll('.legend')].map(one => Number(one.querySelector('b').textContent))")
        losses = [line["loss"] for line in lines if "loss" in line]
        self.assertAlmostEqual(legend[titles.index("training loss")], losses[-1], places=3)
        for width in (1280, 420):
            reader.call("Emulation.setDeviceMetricsOverride", width=width, height=2400, deviceScaleFactor=1, mobile=width < 1000)
            self.assertTrue(reader.evaluate("document.documentElement.scrollWidth <= window.innerWidth"),
                            f"nothing stands beyond the edge of a window of {width} pixels")

    def drawn(self, reader, place):
        """(step, value) of each point of a chart: of the picture's, or of uPlot's where the page has it."""
        if reader.evaluate("typeof uPlot != 'undefined'"):
            steps, values = reader.evaluate(f"reportCharts[{place}].data.map(list => [...list])")
            self.assertGreater(reader.evaluate(f"reportCharts[{place}].ctx.canvas.width"), 0)
            return list(zip(steps, values, strict=True))
        told = reader.evaluate(f"[...document.querySelectorAll('figure')[{place}].querySelectorAll('circle title')].map(one => one.textContent)")
        return [(int(step), float(value)) for value, step in (re.fullmatch(r".*: (\S+) at step (\d+)", one).groups() for one in told)]


if __name__ == "__main__":
    unittest.main()
