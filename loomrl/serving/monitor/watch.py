"""One monitored answer: its events as they may leave."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import numpy as np

from loomrl.config.monitor import STOPPED
from loomrl.safety.redaction import PatternRedactor
from loomrl.safety.rule import Asked, Use
from loomrl.safety.screen import RuleHit, Screen
from loomrl.serving.call import ChatRequest, ChoiceClosed, Event, PromptOpened, TokensDrawn
from loomrl.serving.monitor.monitor import AnswerOrigin, Monitor
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.store import judgements
from loomrl.types import Message

LOOK_S = 0.2
"""Time between two looks for a person's answer."""
RELEASE = "release"
WITHHOLD = "withhold"
NO_IDS = np.zeros(0, np.int32)
NO_LOGPROBS = np.zeros(0, np.float32)


class AskStable(Exception):
    """The stable arm shall answer; nothing has left yet."""


@dataclass(slots=True, eq=False)
class _Choice:
    """One choice on its way."""

    screen: Screen
    opened: PromptOpened | None = None
    """The prompt that is to be echoed, until something else leaves."""
    waiting: list[TokensDrawn] = field(default_factory=list)
    """Events with tokens, which leave when the whole choice may."""
    given: str = ""
    """The text that left."""
    cut: str = ""
    """The rule that ended it."""
    held: RuleHit | None = None
    """A person is to decide once it is whole."""


class AnswerScreen:
    """Lets the events of one answer leave as far as the rules allow."""

    def __init__(
        self,
        monitor: Monitor,
        ask: ChatRequest,
        origin: AnswerOrigin,
        *,
        deadline: float,
        call: str,
        earlier: Sequence[RuleHit] = (),
    ) -> None:
        self._monitor = monitor
        self._ask = ask
        self._deadline = deadline
        self._call = call
        self.origin = origin
        asked = Asked(
            system="\n".join(said.text for said in ask.messages if said.role == "system"),
            tools={tool.name: tool.parameters for tool in ask.tools} if ask.tool_choice != "none" else {},
        )
        self._asked = asked
        self._flows = ask.stream and not ask.drawing.logprobs  # tokens would tell the text that is held back
        self._choices = [_Choice(Screen(asked)) for _ in range(ask.drawing.n)]
        self._ignored: frozenset[str] = frozenset()
        self.hits = list(earlier)
        """Hits in this answer, and in the one that it replaces."""
        self.has_moved = False
        """The stable arm shall answer."""

    def said(self, index: int) -> tuple[str, str]:
        """The rule that changed a choice, and what the caller got of it; both empty if none did."""
        choice = self._choices[index]
        return (choice.cut, choice.given) if choice.cut else ("", "")

    async def events(self, drawn: AsyncIterator[Event], *, may_move: bool) -> AsyncGenerator[Event, None]:
        """The events that may leave. A Refusal where nothing more may; AskStable if `may_move` and nothing has left."""
        async for event in drawn:
            choice = self._choices[event.index]
            if isinstance(event, PromptOpened):
                choice.opened = event if self._ask.drawing.echo else None
            if choice.cut or isinstance(event, PromptOpened):
                continue
            async with aclosing(self._event(choice, event, may_move=may_move)) as allowed:
                async for one in allowed:
                    if choice.opened is not None:  # only now is it certain whose answer it begins
                        yield choice.opened
                        choice.opened = None
                    yield one
            if all(each.cut for each in self._choices):
                return

    async def _event(
        self, choice: _Choice, event: TokensDrawn | ChoiceClosed, *, may_move: bool
    ) -> AsyncGenerator[Event, None]:
        self._take(choice, event)
        if choice.held is None:
            await self._look(choice)
        if (hit := choice.screen.hit) is not None and choice.held is None:
            for one in await self._intervene(choice, hit, event.index, may_move=may_move):
                yield one
        if choice.cut:
            return
        if isinstance(event, ChoiceClosed):
            if choice.held is not None:
                await self._person(choice, choice.held, event)
            for one in self._whole(choice, event):
                yield one
        elif choice.held is None and self._flows and (text := choice.screen.take()):
            choice.given += text
            yield _text(event.index, text)

    def _take(self, choice: _Choice, event: TokensDrawn | ChoiceClosed) -> None:
        if isinstance(event, TokensDrawn):
            choice.screen.add(event.text)
            if self._ask.drawing.logprobs:
                choice.waiting.append(event)
            return
        if not event.text.startswith(choice.screen.text):
            choice.screen = Screen(self._asked)
        choice.screen.add(event.text[len(choice.screen.text) :])
        choice.screen.end([Use(name=call.name, arguments=call.arguments) for call in event.calls])

    async def _look(self, choice: _Choice) -> None:
        """Check everything that has come; rules that only count do not stop it."""
        screen = choice.screen
        while (saying := screen.next()) is not None:
            screen.settle(saying, await self._monitor.look(saying, self.origin, without=self._ignored))
            if screen.hit is None:
                continue
            if screen.hit.has_failed:  # counted as a failure of the rule, never as a violation of the arm
                return
            self.hits.append(screen.hit)
            self._monitor.count(self.origin, screen.hit.rule, screen.hit.what)
            if self._monitor.rules[screen.hit.rule].then != "count":
                return
            self._ignored |= {screen.hit.rule}
            screen.again()

    async def _intervene(self, choice: _Choice, hit: RuleHit, index: int, *, may_move: bool) -> Sequence[Event]:
        rule = self._monitor.rules[hit.rule]
        if hit.has_failed and rule.then != "hold":  # no reason to lock the session, or to blame its arm
            return self._replace(choice, hit, index)
        if rule.then == "quarantine":
            choice.cut = hit.rule
            await self._monitor.ledger.hold(self.origin.endpoint, self.origin.session, hit.rule)
            self._monitor.refuse_held(self.origin.endpoint, self.origin.session)
        if rule.then == "hold":
            choice.held = hit
            return ()
        if rule.then == "stable" and may_move and not (self._flows and any(each.screen.left for each in self._choices)):
            choice.cut = hit.rule
            self.has_moved = True
            raise AskStable
        return self._replace(choice, hit, index)

    def _replace(self, choice: _Choice, hit: RuleHit, index: int) -> Sequence[Event]:
        """Put the rule's text in the place of everything that has not left."""
        choice.cut = hit.rule
        before = choice.screen.text[: hit.start] if self._flows and choice.screen.left else ""
        text = before[len(choice.given) :] + (self._monitor.rules[hit.rule].text or STOPPED)
        choice.given += text
        closed = ChoiceClosed(index=index, text=choice.given, finish="filtered")
        return (_text(index, text), closed)

    def _whole(self, choice: _Choice, closed: ChoiceClosed) -> list[Event]:
        """The rest of a choice that may leave."""
        if self._ask.drawing.logprobs:
            return [*choice.waiting, closed]
        rest = closed.text[len(choice.given) :] if closed.text.startswith(choice.given) else ""
        choice.given += rest
        return [_text(closed.index, rest), closed] if rest else [closed]

    async def _person(self, choice: _Choice, hit: RuleHit, closed: ChoiceClosed) -> None:
        """Wait for a person until the deadline; a Refusal unless the answer is released."""
        redact = PatternRedactor().redact
        conversation = [Message(said.role, redact(said.text).text) for said in self._ask.messages]
        calls = "".join(f"\n{call.name}({call.arguments})" for call in closed.calls)
        conversation.append(Message("assistant", redact(closed.text + calls).text))
        now = time.time()
        loop = asyncio.get_running_loop()
        asked = judgements.Judgement(
            id=f"held-{self._call}-{closed.index}",
            question=f"Rule {hit.rule!r} found: {hit.what}. May this answer leave?",
            conversation=tuple(conversation),
            choices=(WITHHOLD, RELEASE),
            created_at=now,
            expires_at=now + max(0.0, self._deadline - loop.time()),
        )
        judged = await asyncio.to_thread(judgements.ask, self._monitor.db, asked)
        while judged.choice is None and loop.time() < self._deadline - 2 * LOOK_S:
            await asyncio.sleep(LOOK_S)
            found = await asyncio.to_thread(judgements.JUDGEMENTS.find, self._monitor.db, asked.id)
            judged = found or judged
        if judged.choice == RELEASE:
            return
        choice.cut = hit.rule
        cause = "A person withheld this answer." if judged.choice else "No person looked at this answer in time."
        raise Refusal(RefusalCause.FORBIDDEN, f"{cause} It is on record as {asked.id}.")


def _text(index: int, text: str) -> TokensDrawn:
    return TokensDrawn(index=index, ids_T=NO_IDS, logprobs_T=NO_LOGPROBS, versions_T=NO_IDS, text=text)
