"""`millstream generate systemd|compose|dockerfile`: ways to run a node for good."""

import shutil
import sys
from pathlib import Path
from typing import Final

import click

from millstream import __version__
from millstream.cli.output import echo

_PORT: Final = 9092
# Every connection and every open segment needs one.
_DESCRIPTORS: Final = 100_000
# A clean stop writes checkpoints, so that the next start is quick.
_STOP_SECONDS: Final = 60


@click.command()
@click.option("--data-dir", default="/var/lib/millstream", show_default=True)
@click.option("--user", default="millstream", show_default=True)
@click.option("--config", "config_file", type=click.Path(), help="A config file of the node.")
@click.option("--listen", default=f"127.0.0.1:{_PORT}", show_default=True, metavar="HOST:PORT")
def systemd(data_dir: str, user: str, config_file: str | None, listen: str) -> None:
    """Print a systemd unit that runs a node.

    Example: millstream generate systemd > /etc/systemd/system/millstream.service
    """
    options = ["--data-dir", data_dir]
    options += ["--listen", listen] if config_file is None else ["--config", config_file]
    echo(
        f"""[Unit]
Description=Millstream, an event log that speaks the Kafka protocol
After=network-online.target
Wants=network-online.target

[Service]
User={user}
ExecStart={_program()} broker {" ".join(_quoted(each) for each in options)}
Restart=on-failure
RestartSec=2
TimeoutStopSec={_STOP_SECONDS}
LimitNOFILE={_DESCRIPTORS}
# The node writes to its data directory, and to nothing else.
ProtectSystem=strict
ReadWritePaths={_quoted(data_dir)}
ProtectHome=read-only
PrivateTmp=true
NoNewPrivileges=true

[Install]
WantedBy=multi-user.target"""
    )
    echo(
        f"\nBefore the first start:\n"
        f"  useradd --system {user}\n"
        f"  install -d -o {user} {data_dir}\n"
        "Then: systemctl daemon-reload && systemctl enable --now millstream",
        err=True,
    )


@click.command()
@click.option("--python", "version", default="3.13", show_default=True, help="Of the base image.")
def dockerfile(version: str) -> None:
    """Print a Dockerfile of an image that runs a node.

    Example: millstream generate dockerfile | docker build -t millstream -
    """
    echo(
        f"""FROM python:{version}-slim
RUN pip install --no-cache-dir millstream=={__version__} \\
    && useradd --system millstream \\
    && install -d -o millstream /data
USER millstream
VOLUME /data
EXPOSE {_PORT}
# Stops cleanly on the SIGTERM of `docker stop`.
ENTRYPOINT ["millstream", "broker", "--data-dir", "/data"]
# Clients outside the container must reach the advertised address.
CMD ["--set", "listeners=PLAINTEXT://0.0.0.0:{_PORT}", \\
     "--set", "advertised.listeners=PLAINTEXT://localhost:{_PORT}", \\
     "--set", "allow.insecure.listeners=true"]"""
    )


@click.command()
@click.option("--host", default="localhost", show_default=True, help="As clients reach the node.")
@click.option("--port", default=_PORT, show_default=True, type=click.IntRange(1, 65535))
@click.option("--image", default=f"millstream:{__version__}", show_default=True)
def compose(host: str, port: int, image: str) -> None:
    """Print a docker-compose file with one node and a volume for its data.

    Containers of the same file use millstream:29092; everybody else uses HOST:PORT. Build the image
    with `millstream generate dockerfile`.
    """
    listeners = f"OUTSIDE://0.0.0.0:{_PORT},INSIDE://0.0.0.0:29092"
    advertised = f"OUTSIDE://{host}:{port},INSIDE://millstream:29092"
    echo(
        f"""services:
  millstream:
    image: {image}
    command:
      - --set=listeners={listeners}
      - --set=advertised.listeners={advertised}
      - --set=listener.security.protocol.map=OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT
      - --set=inter.broker.listener.name=INSIDE
      # The port is published on this machine only; see `millstream secure` before you change that.
      - --set=allow.insecure.listeners=true
    ports:
      - "127.0.0.1:{port}:{_PORT}"
    volumes:
      - data:/data
    stop_grace_period: {_STOP_SECONDS}s
    ulimits:
      nofile: {_DESCRIPTORS}
    healthcheck:
      test: ["CMD", "millstream", "wait", "--timeout", "5"]
      interval: 5s
volumes:
  data:"""
    )


def _program() -> str:
    """The command that runs now, by its absolute path: systemd knows no PATH of a person."""
    beside = Path(sys.executable).with_name("millstream")
    return str(beside) if beside.exists() else shutil.which("millstream") or "millstream"


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text else text
