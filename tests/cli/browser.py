"""A real browser without a window, spoken to by its own protocol over pipes; Python's standard library is enough."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """Opens one page. `events` holds what the page did: requests, messages, exceptions."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="funicular-browser-")
        command_read, self.commands = os.pipe()
        self.answers, answer_write = os.pipe()
        words = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run",
                 "--disable-background-networking", "--window-size=1280,2400", f"--user-data-dir={self.profile}"]
        # The protocol's descriptors are 3 and 4.
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{command_read} 4>&{answer_write}', "browser", *words],
                                        pass_fds=(command_read, answer_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(command_read)
        os.close(answer_write)
        self.numbers, self.events, self.buffer, self.session = itertools.count(1), [], b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(domain + ".enable")

    def message(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.answers], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            found = os.read(self.answers, 1 << 20)
            if not found:
                raise EOFError("the browser has ended")
            self.buffer += found
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        number, deadline = next(self.numbers), time.monotonic() + 120
        request = {"id": number, "method": method, "params": parameters, **({"sessionId": self.session} if self.session else {})}
        os.write(self.commands, json.dumps(request).encode() + b"\0")
        while True:
            found = self.message(deadline)
            if found.get("id") == number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return found["result"]
            self.events.append(found)

    def open(self, path):
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + 120
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message(deadline))

    def evaluate(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def requests(self):
        return [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]

    def complaints(self):
        found = [event["params"] for event in self.events if event.get("method") == "Runtime.exceptionThrown"]
        found += [event["params"] for event in self.events if event.get("method") == "Log.entryAdded" and
                  event["params"]["entry"]["level"] in ("error", "warning")]
        return found + [event["params"] for event in self.events if event.get("method") == "Runtime.consoleAPICalled" and
                        event["params"]["type"] in ("error", "warning", "assert")]

    def screenshot(self, path):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        shutil.rmtree(self.profile, ignore_errors=True)
