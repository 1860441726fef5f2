"""`tidemill health`: asks a running server whether it is live or ready; REST needs only the standard library.

The healthcheck of the container image, the probe of a pod that clients must show certificates to, and `helm test`.
"""

from __future__ import annotations

import argparse
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping

__all__ = ["add_arguments", "execute"]

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("question", nargs="?", choices=["live", "ready"], default="ready", help="what to ask (ready)")
    parser.add_argument("--url", help="the server's REST address; by default this machine's, by TIDEMILL_HTTP_PORT")
    parser.add_argument("--grpc", metavar="HOST:PORT", help="ask the gRPC face too whether it is ready")
    parser.add_argument("--insecure", action="store_true", help="take any certificate, as one asks one's own machine")
    parser.add_argument("--certificate", metavar="PEM", help="certificate to show, with its key, where one is wanted")
    parser.add_argument("--certificate-key", metavar="PEM", help="its key, if that is a file of its own")
    parser.add_argument("--timeout", type=float, default=3.0, help="seconds to wait for an answer (3)")


def execute(args: argparse.Namespace) -> int:
    """Ask a running server whether it is live or ready; the exit status is 0 if it is."""
    url = f"{(args.url or _local_url(os.environ)).rstrip('/')}/v2/health/{args.question}"
    fault = _ask_rest(url, args.timeout, _tls(args))
    if not fault and args.grpc:
        fault = _ask_grpc(args.grpc)
    print(fault or args.question)
    return int(bool(fault))


def _local_url(environ: Mapping[str, str]) -> str:
    host = environ.get("TIDEMILL_HOST", "")
    scheme = "https" if environ.get("TIDEMILL_TLS_CERTIFICATE") else "http"
    return f"{scheme}://{_ANYWHERE.get(host, host)}:{environ.get('TIDEMILL_HTTP_PORT', '8000')}"


def _tls(args: argparse.Namespace) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if args.insecure or not args.url:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if args.certificate:
        context.load_cert_chain(args.certificate, args.certificate_key)
    return context


def _ask_rest(url: str, timeout: float, tls: ssl.SSLContext) -> str:
    """What is wrong; "" if nothing is."""
    # A proxy for the outside has no business between a server and its own healthcheck.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    key = os.environ.get("TIDEMILL_API_KEY")
    try:
        request = urllib.request.Request(url, headers={"X-API-Key": key} if key else {})
        with opener.open(request, timeout=timeout):
            return ""
    except urllib.error.HTTPError as error:
        with error:
            return f"{url} answered {error.code}: {error.read(1000).decode(errors='replace').strip()}"
    except (OSError, ValueError) as error:
        return f"{url} did not answer: {getattr(error, 'reason', error)}"


def _ask_grpc(address: str) -> str:
    """What is wrong; "" if nothing is."""
    from tidemill.client import Client
    from tidemill.errors import TidemillError

    with Client(f"grpc://{address}") as client:
        try:
            return "" if client.server_ready() else f"grpc://{address} is not ready"
        except TidemillError as error:
            return f"grpc://{address} did not answer: {error}"
