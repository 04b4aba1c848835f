"""A small client that plays a trace against a server of the OpenAI protocol and writes what guidellm 0.8.1 writes.

Its ``--fault`` options are what real clients do wrong. Run it by its path; it needs Python only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def _send(asked: argparse.Namespace, start: float, line: dict[str, Any]) -> dict[str, Any]:
    """Send one request of the trace at its time; its entry as guidellm has it."""
    target = start + line["timestamp"]
    time.sleep(max(0.0, target - time.time()))
    connection = http.client.HTTPConnection(urlsplit(asked.url).netloc, timeout=30)
    body = {
        "model": asked.model,
        "messages": [{"role": "user", "content": line["prompt"]}],
        "max_tokens": line["output_tokens"],
        "stream": True,
    }
    sent = time.time()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        return {"failed": f"status {answer.status}"}
    came: list[float] = []
    for raw in answer:
        text = raw.strip()
        if text.startswith(b"data: {") and json.loads(text[6:])["choices"][0]["delta"].get("content"):
            came.append(time.time())
    ended = time.time()
    gap = 1000 * (came[-1] - came[0]) / (len(came) - 1) if len(came) > 1 else None
    return {
        "type_": "generative_request_stats",
        "request_start_time": sent,
        "request_end_time": ended,
        "request_latency": ended - sent,
        "request_dispatch_delay": sent - target,
        "request_scheduled_latency": None if asked.from_sending else ended - target,
        "output_tokens": len(came),
        "time_to_first_token_ms": 1000 * (came[0] - sent),
        "inter_token_latency_ms": gap,
    }


def _play(asked: argparse.Namespace) -> dict[str, Any]:
    lines = [json.loads(line) for line in Path(asked.trace).read_text(encoding="utf-8").splitlines()]
    lines = lines[: len(lines) - 1] if asked.fault == "fewer" else lines
    entries: list[dict[str, Any]] = []
    start = time.time() + 0.1
    threads = [threading.Thread(target=lambda one=line: entries.append(_send(asked, start, one))) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    requests = {
        "successful": [entry for entry in entries if "failed" not in entry],
        "incomplete": [],
        "errored": [entry for entry in entries if "failed" in entry],
    }
    return {"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": [{"requests": requests}]}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--trace", default="")
    parser.add_argument("--from-sending", action="store_true", help="leave out when each request was to be sent")
    parser.add_argument("--fault", default="")
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    print(f"CPUs {sorted(os.sched_getaffinity(0))}", flush=True)
    if options.fault == "exit":
        print("no such backend", file=sys.stderr)
        sys.exit(1)
    if options.fault == "hang":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "left by load_client.py"])
        time.sleep(600)
    if options.fault != "no_file":
        text = json.dumps(_play(options))
        found = {"garbage": "<html>", "cut": text[: len(text) // 2], "empty": json.dumps(
            {"benchmarks": [{"requests": {"successful": []}}]}
        )}.get(options.fault, text)  # fmt: skip
        path = Path(options.output)
        (path / "benchmarks.json" if path.is_dir() else path).write_text(found, encoding="utf-8")
