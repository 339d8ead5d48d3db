"""`/v1/feedback`: what people and programs say of an answer."""

from dataclasses import asdict

import msgspec

from loomrl.serving.feedback.intake import read_feedback_body
from loomrl.serving.gateway import Gateway
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import HttpReply, HttpRequest, read_json

MOST_BYTES = 1 << 17
"""The longest correction in any script, and all around it."""


async def answer_feedback(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """Store one judgement."""
    caller = await gateway.keys.caller(request.token, scope="feedback")
    body = await request.body(MOST_BYTES, read_on=2 * gateway.settings.max_bytes)
    key = request.headers.get("idempotency-key", "")
    judgement = read_feedback_body(read_json(body), session=caller.session or request.session, key=key)
    if gateway.intake is None:
        raise Refusal(RefusalCause.UNKNOWN, "nothing is known here: this endpoint records nothing.", where="session")
    stored = await gateway.intake.give(judgement, caller=caller, deadline=gateway.deadline())
    await reply.whole(200, msgspec.json.encode({"object": "feedback", **asdict(stored)}))
