"""The frames of the channel between a policy's replica and the gateways.

A frame is its length, its kind, the number of the call, and MessagePack. Any number of calls share a connection.
"""

import asyncio
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

import msgspec
import numpy as np
from typing_extensions import override

from loomrl.hub.array import check_dtype
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.call import ChoiceClosed, PromptOpened, TokensDrawn
from loomrl.serving.policy import About, ActRequest, ActResult, Continuation
from loomrl.serving.refusal import RefusalCause

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


log = redacted_logger(__name__)
HEAD = struct.Struct("<IBI")
MAX_FRAME = 256 << 20
HELLO_S = 10.0
"""Time for the first frames of a connection."""
_ARRAY = 1


class FrameKind(IntEnum):
    """The kind of a frame."""

    HELLO = 0
    ABOUT = 1
    ANSWER = 2
    ACT = 3
    CANCEL = 4
    OPENED = 5
    DRAWN = 6
    CLOSED = 7
    OVER = 8
    ACTED = 9
    REFUSED = 10


@dataclass(frozen=True, slots=True)
class RefusedFrame:
    """A refusal as a frame."""

    cause: RefusalCause
    message: str
    where: str = ""
    retry_after_s: float | None = None


def _convert(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        head = struct.pack(f"<2sB{value.ndim}I", value.dtype.str[1:].encode(), value.ndim, *value.shape)
        return msgspec.msgpack.Ext(_ARRAY, head + value.tobytes())
    raise TypeError(f"{type(value).__name__} cannot be sent")


def _restore(code: int, data: memoryview) -> Any:
    if code != _ARRAY:
        raise ValueError(f"extension {code} is unknown")
    kind, axes = struct.unpack_from("<2sB", data)
    shape = struct.unpack_from(f"<{axes}I", data, 3)
    return np.frombuffer(data, np.dtype(f"<{kind.decode()}"), offset=3 + 4 * axes).reshape(shape).copy()


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_convert)
_DECODERS = {
    kind: msgspec.msgpack.Decoder(form, ext_hook=_restore, dec_hook=check_dtype)
    for kind, form in {
        FrameKind.HELLO: str,
        FrameKind.ABOUT: About,
        FrameKind.ANSWER: Continuation,
        FrameKind.ACT: ActRequest,
        FrameKind.CANCEL: None,
        FrameKind.OPENED: PromptOpened,
        FrameKind.DRAWN: TokensDrawn,
        FrameKind.CLOSED: ChoiceClosed,
        FrameKind.OVER: None,
        FrameKind.ACTED: ActResult,
        FrameKind.REFUSED: RefusedFrame,
    }.items()
}
EVENTS: dict[type, FrameKind] = {
    PromptOpened: FrameKind.OPENED,
    TokensDrawn: FrameKind.DRAWN,
    ChoiceClosed: FrameKind.CLOSED,
}


class FrameProtocol(asyncio.Protocol):
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._unsent: list[bytes] = []
        self.transport: asyncio.Transport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        self.transport.set_write_buffer_limits(high=8 << 20)

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= HEAD.size:
                length, kind, number = HEAD.unpack_from(self._buffer, start)
                if length > MAX_FRAME:
                    raise ValueError(f"a frame of {length} bytes")
                end = start + HEAD.size + length
                if len(self._buffer) < end:
                    break
                body = bytes(memoryview(self._buffer)[start + HEAD.size : end])
                start = end
                self.on_frame(FrameKind(kind), number, _DECODERS[FrameKind(kind)].decode(body))
        except (ValueError, msgspec.DecodeError) as error:
            log.warning("A connection of the channel was closed: %s", error)
            if self.transport is not None:
                self.transport.abort()
            return
        del self._buffer[:start]

    def send(self, kind: FrameKind, number: int, value: Any = None) -> None:
        """Write one frame, with all others of this turn of the loop; does nothing on a lost connection."""
        if self.transport is None or self.transport.is_closing():
            return
        body = _ENCODER.encode(value)
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self.flush)
        self._unsent += (HEAD.pack(len(body), kind, number), body)

    def flush(self) -> None:
        """Hand over what is written."""
        if self._unsent and self.transport is not None:
            self.transport.write(b"".join(self._unsent))
        self._unsent = []

    def on_frame(self, kind: FrameKind, number: int, value: Any) -> None:
        """Take a frame."""
        raise NotImplementedError
