"""`/sessions/ID/complete`: the end of a session, with what it was worth."""

from typing import Any

import msgspec

from loomrl.serving.body import Body, read_body
from loomrl.serving.gateway import Gateway
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import HttpReply, HttpRequest, read_json


class CompleteBody(Body):
    """The request."""

    reward: float | None = None
    success: float | None = None
    outcome: dict[str, Any] | None = None


async def answer_complete(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """End a session: its trajectory, if it is recorded, and its outcome, if it is measured."""
    caller = await gateway.keys.caller(request.token, scope="record")
    asked = read_body(CompleteBody, read_json(await request.body(gateway.settings.max_bytes) or b"{}"))
    session = request.session
    worth = {"reward": asked.reward, "success": asked.success}
    is_measured = gateway.measures is not None and gateway.measures.complete(session, key=caller.key, **worth)
    trajectory = ""
    if gateway.recorder is not None:
        try:
            made = await gateway.recorder.complete(session, key=caller.key, **worth, outcome=asked.outcome)
            trajectory = made.id
        except Refusal as refusal:
            if refusal.cause is not RefusalCause.UNKNOWN or not is_measured:
                raise
    elif not is_measured:
        raise Refusal(RefusalCause.UNKNOWN, f"session {session!r:.100} is unknown: this endpoint records nothing.")
    await reply.whole(200, msgspec.json.encode({"session": session, "trajectory": trajectory}))
