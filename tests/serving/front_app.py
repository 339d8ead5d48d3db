"""A trivial server behind the front: `python front_app.py PORT`; it answers with its own name, slowly if asked."""

import asyncio
import os
import sys

import uvicorn


async def app(scope, receive, send):  # type: ignore[no-untyped-def]
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["path"].endswith("/slow"):
        await asyncio.sleep(1.0)
    headers = [(b"content-type", b"text/plain"), (b"x-pid", str(os.getpid()).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if scope["path"].endswith("/stream"):
        for _ in range(20):
            await send({"type": "http.response.body", "body": b"x" * 100, "more_body": True})
            await asyncio.sleep(0.02)
    await send({"type": "http.response.body", "body": b"%d" % len(body)})


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
