"""A process that keeps calls from many sessions at once, and says which are on record."""

import asyncio
import sys

from loomrl.serving.durable import open_recorder
from tests.serving.scripted import Desk, ask, reply, user


async def main(url: str, number: str) -> None:
    desk = Desk(open_recorder(url))
    print("ready", flush=True)

    async def session(name: str) -> None:
        asked = ask(user("hello"))
        while True:
            call = await desk.call(name, asked)
            print(call.id, flush=True)
            asked = ask(*asked.messages, reply(call), user("more"))

    await asyncio.gather(*(session(f"{number}.{index}") for index in range(16)))


asyncio.run(main(*sys.argv[1:]))
