"""What the endpoint is measured against: nginx with one worker, and uvicorn with FastAPI.

nginx is Debian's, and serves the document as a static file after the same check of the header,
with open files cached and no log. FastAPI is what one writes first: the header and the version are
declared as parameters, the document is returned as JSON; uvicorn with uvloop and httptools, no
log. It is installed into an environment that is thrown away.
"""

import os
import shutil
import socket
import subprocess
import venv
from pathlib import Path

from bench.processes import Process

NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    default_type "application/json; charset=utf-8";
    client_body_temp_path {folder}/nginx-body;
    open_file_cache max=16 inactive=1h;
    open_file_cache_valid 1h;
    keepalive_requests 1000000000;
    keepalive_timeout 75s;
    server {{
        listen 127.0.0.1:{port} backlog=4096 deferred;
        location = /metadata/scheduledevents {{
            if ($http_metadata != "true") {{ return 400; }}
            alias {folder}/document.json;
        }}
    }}
}}
"""

FASTAPI = """\
import json
from pathlib import Path

from fastapi import FastAPI, Header, HTTPException, Query

DOCUMENT = json.loads((Path(__file__).parent / "document.json").read_bytes())
app = FastAPI()


@app.get("/metadata/scheduledevents")
async def scheduled_events(
    metadata: str = Header(), api_version: str = Query(alias="api-version")
) -> dict:
    if metadata != "true" or api_version != "2020-07-01":
        raise HTTPException(400)
    return DOCUMENT
"""

PACKAGES = ("fastapi==0.162.4", "uvicorn[standard]==0.54.0")
DEBIAN = ("wrk", "nginx-light")


def missing_tools() -> str:
    """Why there is no wrk or nginx, after trying to install them where that is ours to do."""
    if _all_there():
        return ""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"needs Debian's {' and '.join(DEBIAN)}"
    # Installed for its program: RUNLEVEL keeps Debian from starting it as a service.
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", *DEBIAN]):
        subprocess.run(command, env=environment, check=False, capture_output=True)  # noqa: S603
    return "" if _all_there() else f"apt-get could not install {' and '.join(DEBIAN)}"


def _all_there() -> bool:
    return shutil.which("wrk") is not None and shutil.which("nginx", path=_path()) is not None


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def start_nginx(folder: Path, core: int, port: int) -> Process:
    """nginx, serving `document.json` of the folder, which others may have to read."""
    folder.chmod(0o755)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port), "utf-8")
    nginx = shutil.which("nginx", path=_path())
    assert nginx is not None
    command = [nginx, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]
    return Process(command, core, folder / "nginx.log")


def install_fastapi(folder: Path) -> str:
    """Why it cannot be had; nothing where it can."""
    venv.create(folder / "venv", with_pip=True)
    command = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", *PACKAGES]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    return f"pip could not install FastAPI: {done.stderr[-200:]}" if done.returncode else ""


def start_fastapi(folder: Path, core: int, port: int) -> Process:
    """Uvicorn with FastAPI, once installed, returning `document.json` of the folder."""
    (folder / "peer.py").write_text(FASTAPI, "utf-8")
    command = [str(folder / "venv/bin/python"), "-m", "uvicorn", "peer:app"]
    command += ["--app-dir", str(folder), "--port", str(port), "--no-access-log"]
    command += ["--loop", "uvloop", "--http", "httptools", "--log-level", "critical"]
    return Process(command, core, folder / "fastapi.log")
