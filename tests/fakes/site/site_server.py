"""A small website with the contract's endpoints: one page of notes a session, and one of each thing a browser can meet."""

import html
import json
import os
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

SESSIONS: dict[str, dict[str, Any]] = {}
OTHER = os.environ.get("SITE_SESSION", "")  # whose answers it says these are
PACKS = {"default": ["Milk"], "other": ["Bread", "Salt"]}

HEAD = """<!doctype html><html lang=en><title>{title}</title><link rel=icon href="data:,"><style>body{{margin:0;height:3000px}}
#drop,#chip{{position:absolute;width:80px;height:40px;background:#cde}}#chip{{left:20px;top:400px}}#drop{{left:300px;top:400px;width:200px}}
#cover{{position:absolute;left:600px;top:400px;width:200px;height:60px;background:#fa0}}#covered{{position:absolute;left:620px;top:410px}}</style>"""
PAGE = """<h1>Notes of {session}</h1>
<form method=post action=/notes><label for=title>Title</label><input id=title name=title>
<select id=color name=color><option value=r>Red<option value=g>Green</select>
<button id=save>Save</button></form><ul id=list>{rows}</ul>
<a id=second href=/second>Second page</a> <a id=new-tab href=/second target=_blank>In a new tab</a> <a id=export href=/export download>Export</a>
<button id=slow onclick="fetch('/slow').then(r=>r.text()).then(t=>result.textContent=t)">Ask slowly</button><output id=result></output>
<button id=later onclick="setTimeout(()=>{{keys.innerHTML='<i id=arrived>late</i>'}},300)">Later</button>
<button id=complain onclick="console.error('a complaint');undefinedThing()">Complain</button>
<button id=ask onclick="result.textContent=confirm('Sure?')">Ask</button>
<button id=hidden hidden>Hidden</button><button id=off disabled>Off</button><button class=twin>Twin</button>
<button class=twin>Twin</button>
<button id=spin onclick="for(;;);">Spin</button>
<input type=file id=file multiple onchange="result.textContent=[...file.files].map(f=>f.name+':'+f.size).join()">
<div id=chip>chip</div><div id=drop>drop</div><button id=covered>Under</button><div id=cover></div><p id=keys></p>
<script>let held=null;chip.onpointerdown=e=>{{held=1}};
document.onpointerup=e=>{{if(held&&document.elementFromPoint(e.clientX,e.clientY)===drop)drop.textContent='dropped';held=null}};
document.addEventListener('keydown',e=>{{if(e.ctrlKey&&e.key==='s'){{e.preventDefault();keys.textContent='saved by key'}}}});
document.addEventListener('click',e=>{{if(e.clientX===7&&e.clientY===650)keys.textContent='point'}})</script>"""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(parts.query).items()}
        if parts.path == "/health":
            self.answer(200, {"status": "ok"})
        elif parts.path in ("/state", "/log"):
            rows = self.session(query.get("session_id", ""))
            if rows is not None:
                self.answer(200, {"notes": [{"title": title} for title in rows["notes"]]} if parts.path == "/state" else rows["log"])
        else:
            self.page(parts.path, query)

    def page(self, path: str, query: dict[str, str]) -> None:
        session = query.get("session_id") or dict(p.strip().partition("=")[::2] for p in self.headers.get("Cookie", "").split(";")).get("session", "")
        cookie = {"Set-Cookie": f"session={session}; Path=/; HttpOnly"} if query.get("session_id") else {}
        if session not in SESSIONS:
            self.answer(404, HEAD.format(title="No session") + "<p>reset this session first</p>", **cookie)
        elif path == "/slow":
            time.sleep(0.4)
            self.answer(200, "slow answer")
        elif path == "/export":
            self.answer(200, "notes", **{"Content-Disposition": "attachment; filename=notes.txt"})
        elif path == "/second":
            self.answer(200, HEAD.format(title="Second") + "<h1 id=second-head>Second page</h1><a id=home href=/>Home</a>", session, **cookie)
        else:
            rows = "".join(f"<li>{html.escape(title)}" for title in SESSIONS[session]["notes"])
            self.answer(200, HEAD.format(title="Notes") + PAGE.format(session=html.escape(session), rows=rows), session, **cookie)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/notes":
            self.write(parse_qs(body.decode()))
            return
        asked = json.loads(body)
        session = asked.get("sessionId", "")
        if self.path == "/reset":
            pack = asked.get("dataPack", "default")
            if pack not in PACKS:
                self.answer(404, {"error": {"type": "PackNotFound", "message": f"no pack {pack!r}", "hint": f"packs: {', '.join(PACKS)}"}})
                return
            log = SESSIONS.get(session, {"log": []})["log"]
            log.append({"n": len(log) + 1, "event_type": "control", "value": "reset", "caller": self.headers.get("X-Caller"), "at": time.time()})
            SESSIONS[session] = {"notes": list(PACKS[pack]), "log": log}
            self.answer(200, {"message": "reset", "dataPack": pack, "resetSummary": {}, "loadSummary": {"notes": len(PACKS[pack])}})
        elif (rows := self.session(session)) is not None:
            results = [{"id": check["id"], "success": check["asserts"][0]["value"] in rows["notes"]} for check in asked["checks"]]
            self.answer(200, {"session_id": session, "success": all(r["success"] for r in results), "verifiers": results})

    def write(self, form: dict[str, list[str]]) -> None:
        session = dict(p.strip().partition("=")[::2] for p in self.headers.get("Cookie", "").split(";")).get("session", "")
        title, log = form.get("title", [""])[0], SESSIONS[session]["log"]
        SESSIONS[session]["notes"].append(title)
        log.append({"n": len(log) + 1, "event_type": "save", "element_id": "save", "value": title})
        self.answer(303, "", Location="/")

    def session(self, name: str) -> dict[str, Any] | None:
        if name not in SESSIONS:
            message = f"no session {name!r}"
            self.answer(404, {"error": {"type": "SessionNotFound", "message": message, "hint": "call /reset with this sessionId first"}})
        return SESSIONS.get(name)

    def answer(self, status: int, document: Any, session: str = "", **headers: str) -> None:
        page = isinstance(document, str)
        data = document.encode() if page else json.dumps(document).encode()
        self.send_response(status)
        kind = {} if "Content-Disposition" in headers else {"Content-Type": "text/html; charset=utf-8" if page else "application/json"}
        for name, value in {**kind, **headers, "Content-Length": str(len(data)), **({"X-Session": OTHER or session} if OTHER or session else {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        print(format % args, flush=True)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=int(os.environ["LISTEN_FD"]))
server.serve_forever()
