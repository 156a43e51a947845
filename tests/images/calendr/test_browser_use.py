"""browser-use, an agent of others, completes a task of Calendr through the URL that `view` gives; its model is a script behind an endpoint like OpenAI's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli, lacking
from tests.images.calendr.conftest import NAMES

VERSION = "0.13.14"
TASK = "no-pottery-once"
# What is clicked, by the ids of the page: the model's part of the work.
CLICKS = ("event-evt-pottery_2026-03-17", "delete", "scope-this", "confirm-delete")
AGENT = """
import asyncio, sys
from browser_use import Agent, BrowserProfile, ChatOpenAI

model, url, prompt, chromium, folder = sys.argv[1:]
profile = BrowserProfile(executable_path=chromium, headless=True, chromium_sandbox=False, enable_default_extensions=False, user_data_dir=folder)
llm = ChatOpenAI(model="scripted", base_url=model, api_key="none", max_retries=0)
agent = Agent(
    f"{prompt} The calendar is at {url}", llm=llm, browser_profile=profile, use_vision=False, use_judge=False, initial_actions=[{"navigate": {"url": url}}]
)
history = asyncio.run(agent.run(max_steps=12))
assert history.is_successful(), history.errors()
print(history.final_result())
"""


@pytest.fixture(scope="session")
def browser_use(pytestconfig: pytest.Config) -> Path:
    """A Python that has browser-use: in a venv of its own, since it pins packages that we have in other versions; kept for the next run."""
    assert pytestconfig.cache is not None
    folder = Path(pytestconfig.cache.mkdir(f"browser-use-{VERSION}"))
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        for words in ([sys.executable, "-m", "venv", "--clear", str(folder)], [str(python), "-m", "pip", "install", "-q", f"browser-use=={VERSION}"]):
            made = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
            if made.returncode:
                lacking("browser", f"browser-use cannot be installed: {made.stderr[-300:]}")
        done.touch()
    return python


class Script:
    """Answers the chat completions of an agent: first the page to open, then each click, then that it is done."""

    def __init__(self, url: str) -> None:
        self.left: list[tuple[str, str]] = [("navigate", url), *(("click", target) for target in CLICKS), ("done", "The evening is out.")]
        self.asked: list[str] = []

    def answer(self, document: Any) -> dict[str, Any]:
        """The next action. A click's index is looked up in the page that the agent describes; one that is not there yet is waited for."""
        page = json.dumps(document["messages"], ensure_ascii=False).replace("\\n", "\n")
        self.asked.append(page)
        name, word = self.left[0]
        actions: dict[str, dict[str, Any]] = {"navigate": {"url": word}, "done": {"text": word, "success": True}}
        action: dict[str, Any] = {name: actions.get(name)}
        if name == "click":
            found = re.findall(rf"\[(\d+)\]<[^>]*\bid={re.escape(word)}[\s/>]", page)
            action = {"click": {"index": int(found[-1])}} if found else {"wait": {"seconds": 1}}
        if "wait" not in action:
            del self.left[0]
        content = {"thinking": "", "evaluation_previous_goal": "", "memory": "", "next_goal": word, "action": [action]}
        message = {"role": "assistant", "content": json.dumps(content)}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "chat-1", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice], "usage": usage}


@pytest.fixture
def model() -> Iterator[tuple[str, list[Script]]]:
    """The endpoint's base URL, and the list whose last script it plays."""
    scripts: list[Script] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(scripts[-1].answer(document)).encode() if self.path == "/v1/chat/completions" else b"{}"
            self.send_response(200 if self.path == "/v1/chat/completions" else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", scripts
        server.shutdown()
        thread.join()


def test_it_completes_a_task(cli: Cli, browser_use: Path, model: tuple[str, list[Script]]) -> None:
    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        lacking("browser", f"none of {', '.join(NAMES)} is on PATH")
    endpoint, scripts = model
    cli("run", "calendr", "--runner", "local", "--port", "0")
    prompt = cli("reset", "calendr", "--task", TASK).out.splitlines()[-1]
    cli("verify", "calendr", code=1)
    url = cli("view", "calendr", "--json").json["url"]
    week = f"{url.partition('/?')[0]}/week/2026-03-16"
    scripts.append(Script(week))
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    env |= {"ANONYMIZED_TELEMETRY": "false", "BROWSER_USE_VERSION_CHECK": "false", "BROWSER_USE_CONFIG_DIR": str(cli.folder / "browser-use")}
    argv = [str(browser_use), "-c", AGENT, endpoint, url, prompt, chromium, str(cli.folder / "profile")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=180, check=False, cwd=cli.folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.strip().endswith("The evening is out.")
    assert not scripts[0].left
    assert cli("verify", "calendr", "--json").json["verdict"] == "passed"
