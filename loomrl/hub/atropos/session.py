"""One Atropos trainer and its environments on top of a hub, durably.

The protocol has no ack, no lease, and no retry that says it is one. They are read out of its calls:

- A batch is a lease. Trainers collect batches until they are told `null`, then train on what they collected. So the
  first poll after a `null` acks every batch before it; after `UNACKED` batches there is a `null` in any case.
- A batch whose answer did not get out whole is given back at the next poll. What a dead trainer left unacked comes back
  when the hub's `lease_s` is over (every poll renews it), or at once when a trainer registers.
- A post is remembered until its answer got out whole. The same body again before that is a retry and stores nothing;
  after that it is another group that happens to be equal, as short or greedy samples are. With an `Idempotency-Key`
  it is a retry for `RETRY_WINDOW_S`, even if the answer was lost.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from loomrl.errors import Conflict, LeaseLost
from loomrl.hub.atropos.batch import Candidate, compose
from loomrl.hub.atropos.groups import ScoredData, from_group, to_trajectories
from loomrl.hub.atropos.state import (
    PREFIX,
    Answer,
    Environment,
    Handed,
    Held,
    RegisterEnv,
    Registration,
    State,
    Submission,
)
from loomrl.hub.hub import Hub, Lease
from loomrl.store.notes import Notes
from loomrl.types import NO_VERSION, Trajectory

log = logging.getLogger(__name__)

NOTE = "atropos"
CONSUMER = "atropos trainer"
UNACKED = 8
RETRY_WINDOW_S = 600.0
APPEND_AT_ONCE = 1000
LOOKAHEAD = 4096
"""A batch is made from this many of the oldest ready groups."""

Settle = Callable[[], None]
"""To be called when the answer is as good as received."""


class AtroposSession:
    """The protocol's calls, from any thread. One process per store may serve them: the state is written through."""

    def __init__(self, hub: Hub, notes: Notes, *, clock: Callable[[], float]) -> None:
        self._hub = hub
        self._notes = notes
        self._clock = clock
        self._lock = threading.Lock()
        note = notes.find(NOTE)
        self.state = State() if note is None else State.model_validate_json(note)
        """Replaced, never changed: reading it needs no lock."""

    def register(self, registration: Registration) -> Answer:
        """Take on a trainer. What the one before it left unacked is ready again; steps go on."""
        with self._change() as state:
            for handed in state.handed:
                self._take_back(state, handed)
            state.trainer = registration
            state.handed = []
            state.drained = False
            state.step = max(state.step, registration.starting_step)
        return {"uuid": uuid.uuid4().int}

    def register_environment(self, asked: RegisterEnv) -> Answer:
        """Take on an environment, once the trainer has begun to poll."""
        with self._change() as state:
            trainer = state.trainer
            if trainer is None or not state.started:
                return {"status": "wait for trainer to start"}
            namesakes = sum(known.desired_name == asked.desired_name for known in state.environments)
            environment = Environment(**asked.model_dump(), name=f"{asked.desired_name}_{namesakes}")
            state.environments.append(environment)
        return {
            "status": "success",
            "env_id": len(state.environments) - 1,
            "wandb_name": environment.name,
            "checkpoint_dir": trainer.checkpoint_dir,
            "starting_step": state.step,
            "checkpoint_interval": trainer.save_checkpoint_interval,
            "num_steps": trainer.num_steps,
        }

    def disconnect(self, env_id: int) -> Answer:
        """Let an environment go. What it left waiting to be made up waits no more."""
        with self._change() as state:
            environment = state.environment(env_id)
            if environment is None:
                return _no_such(env_id)
            environment.connected = False
            state.held = [held for held in state.held if held.environment != env_id]
        return {"status": "success"}

    def submit(
        self, groups: Sequence[ScoredData], *, content: str, key: str | None = None
    ) -> tuple[list[Answer], Settle]:
        """Store groups once; one answer for each. `content` is the hash of what was posted."""
        name = content if key is None else f"key {key}"
        now = self._clock()
        with self._change() as state:
            fresh = {k: post for k, post in state.submissions.items() if now - post.at < RETRY_WINDOW_S}
            state.submissions = fresh
            if name not in fresh:
                id = uuid.uuid4().hex
                answers = [_queue(state, data, group=f"{id}.{number}") for number, data in enumerate(groups)]
                fresh[name] = Submission(id=id, content=content, at=now, answers=answers)
            post = fresh[name]
        if post.content != content:
            raise Conflict(f"Idempotency-Key={key!r} came with another body before. Give new data a new key.")
        rows: list[Trajectory] = []
        for number, data in enumerate(groups):
            rows += to_trajectories(data, group=f"{post.id}.{number}", environment=state.hub_name(data.env_id))
        for start in range(0, len(rows), APPEND_AT_ONCE):
            self._hub.append(rows[start : start + APPEND_AT_ONCE])

        def settle() -> None:
            with self._change() as state:
                if key is None:
                    state.submissions.pop(name, None)

        return post.answers, settle

    def batch(self) -> tuple[Answer, Settle]:
        """The next batch, or null. Acks, renews or takes back what was handed out before."""
        if self.state.trainer is None:
            return {
                "status": "error",
                "message": "Trainer not registered. Call /register first.",
                "batch": [],
            }, _nothing
        with self._change() as state:
            state.started = True
            self._review(state)
        with self._change() as state:
            chosen = self._choose(state)
            lease = uuid.uuid4().hex
            if chosen:
                state.handed.append(Handed(lease=lease))
                state.step += 1
        if chosen:
            ids = [group.id for group in chosen]
            lent = self._lease(ids, CONSUMER, lease)
            if lent.groups:
                return {"batch": [from_group(group) for group in lent.groups]}, lambda: self._receive(lease)
        return {"batch": None}, self._drain

    def queue(self) -> list[Candidate]:
        """The groups that batches are made from, oldest first."""
        waiting = {held.group for held in self.state.held}
        return [group for group in self._ready() if group.id not in waiting]

    def status_of(self, env_id: int) -> Answer:
        """The numbers by which an environment throttles itself."""
        state = self.state
        return state.status_of(env_id, self.queue()) if state.environment(env_id) else _no_such(env_id)

    def reset(self) -> None:
        """Forget trainer and environments. Queued groups stay stored, acked by `reset_data`, and are not trained on."""
        with self._lock:
            for handed in self.state.handed:
                self._hub.release(handed.lease)
            while ids := [group.id for group in self._ready()][:64]:
                lease = self._lease(ids, "reset_data")
                self._hub.ack(lease.id, version=self.state.step)
            self._keep(State())

    @contextmanager
    def _change(self) -> Iterator[State]:
        """A copy to change, believed once it is stored."""
        with self._lock:
            draft = self.state.model_copy(deep=True)
            yield draft
            if draft != self.state:
                self._keep(draft)

    def _keep(self, state: State) -> None:
        self._notes.keep(NOTE, state.model_dump_json())
        self.state = state

    def _lease(self, ids: Sequence[str], consumer: str, lease_id: str | None = None) -> Lease:
        """All of these groups or none."""
        count = len(ids)
        return self._hub.lease(
            count, version=NO_VERSION, consumer=consumer, at_least=count, lease_id=lease_id, groups=ids
        )

    def _ready(self) -> list[Candidate]:
        ready = self._hub.ready(limit=LOOKAHEAD)
        ours = [group for group in ready if group.environment.startswith(PREFIX)]
        return [Candidate(group.id, group.environment, group.size) for group in ours]

    def _choose(self, state: State) -> list[Candidate]:
        if state.trainer is None or len(state.handed) >= UNACKED:
            return []
        return compose(self.queue(), batch_size=state.trainer.batch_size, minimums=state.minimums)

    def _review(self, state: State) -> None:
        """Bring what was handed out up to date: this poll says what became of it."""
        state.handed = []
        for handed in self.state.handed:
            try:
                if not handed.received:
                    self._take_back(state, handed)
                elif state.drained:
                    self._hub.ack(handed.lease, version=self.state.step)
                else:
                    self._hub.renew(handed.lease)
                    state.handed.append(handed)
            except LeaseLost:
                log.warning("The trainer did not poll for so long that batch %s went back.", handed.lease)
                state.step -= 1
        state.drained = False

    def _take_back(self, state: State, handed: Handed) -> None:
        self._hub.release(handed.lease)
        state.step -= 1

    def _receive(self, lease: str) -> None:
        with self._change() as state:
            for handed in state.handed:
                handed.received |= handed.lease == lease

    def _drain(self) -> None:
        with self._change() as state:
            state.drained = bool(state.handed)


def _queue(state: State, data: ScoredData, *, group: str) -> Answer:
    """Count a group in: it is ready once stored, unless it has to be made up to its environment's size first."""
    environment = state.environment(data.env_id)
    size = len(data.tokens)
    if environment is None or data.env_id is None or size >= environment.group_size:
        return {"status": "received"}
    state.held.append(Held(group=group, environment=data.env_id, size=size))
    waiting = [Candidate(held.group, "", held.size) for held in state.held if held.environment == data.env_id]
    complete = compose(waiting, batch_size=environment.group_size, minimums={})
    ready = {candidate.id for candidate in complete}
    state.held = [held for held in state.held if held.group not in ready]
    left = sum(candidate.size for candidate in waiting) - sum(candidate.size for candidate in complete)
    return {"status": "buffered", "buffer_size": left}


def _no_such(env_id: int) -> Answer:
    return {"status": "failure", "error": f"env_id={env_id} is not registered. POST /register-env first."}


def _nothing() -> None:
    return
