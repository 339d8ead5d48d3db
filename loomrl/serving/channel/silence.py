"""Connections to a host that is gone without a word: its power is cut, or its cable."""

import asyncio
import socket

SILENT_S = 4.0
"""A host that acknowledges nothing for so long is gone: what waits for it goes elsewhere."""


def end_when_silent(transport: asyncio.BaseTransport) -> None:
    """Have the kernel end a connection whose other end is silent, with or without anything under way."""
    there: socket.socket = transport.get_extra_info("socket")
    there.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    settings = {"TCP_KEEPIDLE": SILENT_S / 4, "TCP_KEEPINTVL": SILENT_S / 4, "TCP_KEEPCNT": 3}
    settings["TCP_USER_TIMEOUT"] = 1000 * SILENT_S
    for name, value in settings.items():
        if hasattr(socket, name):  # not everywhere, as on macOS
            there.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), round(value))
