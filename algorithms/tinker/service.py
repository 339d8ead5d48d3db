"""The service behind the wire: sessions, trainings, samplers, and the futures by which all work is answered.

It runs on the event loop of the HTTP server and never waits for the model there. A training that is not in memory is
its newest checkpoint and what its journal has beyond; this is how it comes back after a kill, and after it was idle.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loomrl.algorithms.tinker.base import OpenBase
from loomrl.algorithms.tinker.journal import JournalEntry
from loomrl.algorithms.tinker.training import (
    PATHS,
    SAMPLERS,
    SCHEME,
    LiveTraining,
    RemoteRun,
    find_path,
    require_base,
)
from loomrl.algorithms.tinker.wire import (
    CreateModelBody,
    CreateSamplerBody,
    CreateSessionBody,
    LoadWeightsBody,
    SampleBody,
    parse_request,
    require_adamw,
)
from loomrl.errors import ArtifactError, ConfigError, LoomError, StoreError, unknown
from loomrl.serving.request import Caller
from loomrl.store import LoomDB
from loomrl.store.notes import Notes, list_notes
from loomrl.store.runs import POLICIES, RunStatus, finish_run

log = logging.getLogger(__name__)
REPEAT_S = 10.0
"""Seconds of work after which a checkpoint is written, so that no more has to be done again."""
POLL_S = 20.0
"""Time for which a question for a result waits; the client allows 45 s."""
AGAIN_S = 0.2
"""Delay before a client asks again, which does so at once, for a training that left memory."""
SAMPLER_S = 3600.0
"""Time without use after which an earlier sampler of a training may lose its weights."""
ABANDONED_S = 86_400.0
"""Time without a sign of life, of which clients give six a minute, after which a session is ended."""
SAMPLES = 4096
"""Requests for samples that are open or not fetched yet; further ones are refused, and the client comes again."""
FETCHED_S = 60.0
"""Time for which samples that were handed out are kept."""
SEEN_S = 3600.0
SESSIONS = "tinker/session/"
SEEN = "tinker/seen/"
MODELS = "tinker/model/"
CHANGING = ("forward_backward", "optim_step", "load_weights")
"""Requests that are done again after a restart, though their results are known: the rest leaves the weights alone."""
ON_MODEL = ("forward_backward", "optim_step")


class TinkerRefusal(Exception):
    """A request that is refused with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Resident:
    """A training in memory, and the requests that wait for their turn."""

    training: LiveTraining
    upcoming: int
    """The number of the request that is next."""
    waiting: dict[int, JournalEntry] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    worker: asyncio.Task[None] | None = None
    gone: bool = False
    """It is no longer in memory: a client that waits for a result asks again."""

    @property
    def is_idle(self) -> bool:
        """True if nothing is asked of it."""
        return self.upcoming not in self.waiting

    async def settle(self) -> None:
        """Wait until nothing is asked of it."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.is_idle or self.gone)


@dataclass(slots=True)
class OpenSample:
    """Samples that were asked for."""

    task: asyncio.Task[bytes]
    fetched_at: float | None = None


class TinkerService:
    """Answers the verbs of the protocol, as plain data; a TinkerRefusal or LoomError says why not."""

    def __init__(self, base: OpenBase, db: LoomDB) -> None:
        self._base = base
        self._db = db
        self._notes = Notes(db)
        self._residents: dict[str, asyncio.Task[Resident]] = {}
        """By model, the one that was used last at the end."""
        self._leaving: dict[str, asyncio.Task[None]] = {}
        """By model, those that are saved before they leave memory."""
        self._samples: dict[str, OpenSample] = {}
        self._sampled_at: dict[str, float] = {}
        self._seen_at: dict[str, float] = {}

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def create_session(self, caller: Caller, asked: CreateSessionBody) -> Mapping[str, Any]:
        """Open a session of this caller."""
        session = f"{self._base.settings.name}-{secrets.token_hex(6)}"
        told = asked.model_dump(mode="json")
        about = {"key": caller.key, "base": self._base.identity, "at": time.time(), "over": None, **told}
        await asyncio.to_thread(self._notes.keep, SESSIONS + session, json.dumps(about))
        try:
            await self._end_abandoned()
        except LoomError as error:
            log.warning("an abandoned session could not be ended: %s", error)
        return {"type": "create_session", "session_id": session}

    async def beat(self, caller: Caller, session: str) -> Mapping[str, Any]:
        """A sign of life, noted once in a while. An idle session goes to the artifacts and comes back."""
        await self._session(caller, session)
        if time.time() - self._seen_at.get(session, 0.0) > SEEN_S:
            self._seen_at[session] = time.time()
            await asyncio.to_thread(self._notes.keep, SEEN + session, str(time.time()))
        return {"type": "session_heartbeat"}

    async def finish(self, caller: Caller, session: str, reason: str) -> Mapping[str, Any]:
        """End a session: its trainings are saved and their runs finished, its samplers and results let go of."""
        await self._end(session, await self._session(caller, session), reason)
        return {}

    async def _end_abandoned(self) -> None:
        """End the sessions on this base whose clients are gone without a word."""
        seen = await asyncio.to_thread(list_notes, self._db, SEEN)
        for key, text in (await asyncio.to_thread(list_notes, self._db, SESSIONS)).items():
            session = key.removeprefix(SESSIONS)
            about = json.loads(text)
            silent_s = time.time() - float(seen.get(SEEN + session, about["at"]))
            if about["over"] is None and about["base"] == self._base.identity and silent_s > ABANDONED_S:
                await self._end(session, about, "abandoned")

    async def _end(self, session: str, about: Mapping[str, Any], reason: str) -> None:
        for model in await self._models(session):
            resident = await self._resident(model)
            await resident.settle()
            while resident.gone:
                resident = await self._resident(model)
                await resident.settle()
            await self._let_go(model, resident)
            status = RunStatus.FAILED if reason == "errored" else RunStatus.FINISHED
            run = resident.training.about.run
            await asyncio.to_thread(
                finish_run, self._db, run, status=status, finished_at=time.time(), result={"reason": reason}
            )
            await asyncio.to_thread(resident.training.journal.clear)
        for sampler in await asyncio.to_thread(list_notes, self._db, f"{SAMPLERS}{session}:"):
            await asyncio.to_thread(self._notes.drop, sampler)
        await asyncio.to_thread(self._notes.drop, SEEN + session)
        await asyncio.to_thread(self._notes.keep, SESSIONS + session, json.dumps({**about, "over": reason}))

    async def _session(self, caller: Caller, session: str) -> dict[str, Any]:
        """The note on a session that is the caller's and not over; else a TinkerRefusal."""
        text = await asyncio.to_thread(self._notes.find, SESSIONS + session)
        if text is None:
            raise TinkerRefusal(404, f"session {session!r:.100} is unknown here. Create one.")
        about: dict[str, Any] = json.loads(text)
        if about["key"] != caller.key and not caller.is_admin:
            raise TinkerRefusal(403, f"session {session!r} belongs to another key.")
        if about["over"] is not None:
            raise TinkerRefusal(410, f"session {session!r} is over ({about['over']}). Create another one.")
        return about

    async def _models(self, session: str) -> list[str]:
        found = await asyncio.to_thread(list_notes, self._db, f"{MODELS}{session}:")
        return [key.removeprefix(MODELS) for key in found]

    # -- trainings ----------------------------------------------------------------------------------------------------

    async def create_model(self, caller: Caller, asked: CreateModelBody) -> Mapping[str, Any]:
        """Begin a training with additions that are zero."""
        if asked.lora_config is None:
            raise ConfigError("lora_config is missing: adapters are trained here, not whole models. Give a rank.")
        require_adamw(asked.optimizer_config)
        self._check_base(asked.base_model)
        seed = secrets.randbits(31) if asked.lora_config.seed is None else asked.lora_config.seed
        about = RemoteRun(
            model_id=f"{asked.session_id}:train:{asked.model_seq_id}",
            base_model=asked.base_model,
            lora={**asked.lora_config.model_dump(), "seed": seed},
            user_metadata=asked.user_metadata,
            created_at=time.time(),
        )
        return await self._begin(caller, about)

    async def _create_from(self, caller: Caller, asked: LoadWeightsBody) -> Mapping[str, Any]:
        """Begin a training with saved weights."""
        require_adamw(asked.optimizer_config)
        version = await asyncio.to_thread(find_path, self._db, asked.path)
        await asyncio.to_thread(require_base, self._base, self._db, version)
        source = await self._about(f"{version.rpartition('/')[0]}", by_run=True)
        base_model = asked.base_model or source.base_model
        self._check_base(base_model)
        about = RemoteRun(
            model_id=f"{asked.session_id}:train:{asked.model_seq_id}",
            base_model=base_model,
            lora=source.lora,
            parent=version,
            optimizer=asked.optimizer,
            user_metadata=asked.user_metadata,
            created_at=time.time(),
        )
        return await self._begin(caller, about)

    async def _begin(self, caller: Caller, about: RemoteRun) -> Mapping[str, Any]:
        await self._session(caller, about.session)
        await asyncio.to_thread(self._notes.keep_first, MODELS + about.model_id, about.dump())
        await self._resident(about.model_id)
        return {"request_id": f"{about.model_id}:0", "model_id": about.model_id}

    def _check_base(self, name: str) -> None:
        if name not in self._base.names:
            raise ConfigError("base_model " + unknown("base", name, self._base.names))

    async def _about(self, model: str, *, by_run: bool = False) -> RemoteRun:
        """The beginning of a training, by its model or its run."""
        if by_run:
            session, _, number = model.rpartition("-")
            model = f"{session}:train:{number}"
        text = await asyncio.to_thread(self._notes.find, MODELS + model)
        if text is None:
            raise TinkerRefusal(404, f"model {model!r:.100} is unknown here. Create one.")
        return RemoteRun.load(text)

    async def info(self, caller: Caller, model: str) -> Mapping[str, Any]:
        """A training's model."""
        await self._session(caller, model.partition(":")[0])
        about = await self._about(model)
        known = about.base_model in self._base.settings.aliases  # then the client knows where its tokenizer is
        tokenizer = None if known else str(self._base.folder)
        data = {"model_name": about.base_model, "tokenizer_id": tokenizer}
        lora = {"is_lora": True, "lora_rank": about.shape.rank}
        return {"type": "get_info", "model_data": data, "model_id": model, "model_name": about.base_model, **lora}

    async def submit(self, caller: Caller, verb: str, body: bytes) -> Mapping[str, Any]:
        """Take a request of a training; its future's id, once it is in the journal."""
        if verb == "forward_backward":
            asked = parse_request(body)
            model = asked.model_id
            seq = asked.seq_id
        else:
            told = _read_object(verb, body)
            if verb == "load_weights" and told.get("session_id") is not None:
                return await self._create_from(caller, LoadWeightsBody.parse(told, origin=verb))
            model = told.get("model_id")
            seq = told.get("seq_id")
        if not isinstance(model, str) or not isinstance(seq, int) or seq < 1:
            raise ConfigError(f"{verb}: model_id={model!r:.100} and seq_id={seq!r:.20}: a name and a number from 1 on.")
        await self._session(caller, model.partition(":")[0])
        entry = JournalEntry(seq, verb, body)
        while not await self._take(await self._resident(model), entry):
            pass
        return {"request_id": f"{model}:{seq}", "model_id": model}

    async def _take(self, resident: Resident, entry: JournalEntry) -> bool:
        """Put a request into the journal and in its place; False if the training has left memory meanwhile."""
        if entry.seq < resident.upcoming or entry.seq in resident.waiting:
            return True
        await asyncio.to_thread(resident.training.journal.add, entry)
        async with resident.changed:
            if not resident.gone and entry.seq >= resident.upcoming:
                resident.waiting.setdefault(entry.seq, entry)
                resident.changed.notify_all()
            return not resident.gone

    async def _resident(self, model: str) -> Resident:
        """The training in memory, brought there if need be."""
        found = self._residents.pop(model, None)
        if found is None or _is_lost(found):
            found = asyncio.create_task(self._open(model))
        self._residents[model] = found
        return await asyncio.shield(found)

    async def _open(self, model: str) -> Resident:
        about = await self._about(model)
        if model in self._leaving:
            await asyncio.wait([self._leaving[model]])
        await self._make_room()
        training = await asyncio.to_thread(LiveTraining.open, self._base, self._db, about)
        resident = Resident(training, training.settled + 1)
        entries = await asyncio.to_thread(lambda: list(training.journal.after(training.settled)))
        resident.waiting = {entry.seq: entry for entry in entries}
        resident.worker = asyncio.create_task(self._work(model, resident))
        return resident

    async def _make_room(self) -> None:
        """Save the training that was idle longest and let go of it, if there are as many as may be."""
        while len(self._residents) > self._base.settings.resident:
            for model, task in list(self._residents.items()):
                if _is_lost(task):
                    del self._residents[model]
                    break
                if task.done() and task.result().is_idle:
                    await self._let_go(model, task.result())
                    break
            else:
                return  # all of them work

    async def _let_go(self, model: str, resident: Resident) -> None:
        """Save an idle training, and drop it."""
        resident.gone = True  # first: a request that were done while it is saved would be lost
        leaving = self._leaving[model] = asyncio.create_task(asyncio.to_thread(resident.training.save))
        try:
            await leaving
        finally:
            if self._leaving.get(model) is leaving:
                del self._leaving[model]
            await self._drop(model, resident)

    async def _drop(self, model: str, resident: Resident) -> None:
        resident.gone = True
        if (task := self._residents.get(model)) is not None and _is_lost(task):
            del self._residents[model]
        if resident.worker is not None and resident.worker is not asyncio.current_task():
            resident.worker.cancel()
        async with resident.changed:
            resident.changed.notify_all()

    async def _work(self, model: str, resident: Resident) -> None:
        """Do a training's requests in their order."""
        try:
            while True:
                async with resident.changed:
                    await resident.changed.wait_for(lambda: not resident.is_idle)
                await self._carry_out(resident.training, resident.waiting[resident.upcoming])
                async with resident.changed:
                    del resident.waiting[resident.upcoming]
                    resident.upcoming += 1
                    resident.changed.notify_all()
        except Exception as error:  # noqa: BLE001 - of the place, not of the request: it is done again from there
            log.warning("training %s leaves memory: %s: %s", model, type(error).__name__, error)
            await self._drop(model, resident)

    async def _carry_out(self, training: LiveTraining, entry: JournalEntry) -> None:
        """Do a request, and keep its result before it is told."""
        known = entry.seq in training.journal.answered
        if known and entry.verb not in CHANGING:
            return
        try:
            if entry.verb in ON_MODEL:
                result = await self._base.thread.call(training.perform, entry)
            else:
                result = await asyncio.to_thread(training.perform, entry)
        except (StoreError, ArtifactError):
            raise
        except LoomError as error:
            result = failure(str(error), "user")
        except Exception as error:
            log.exception("request %s of %s failed", entry.seq, training.about.model_id)
            result = failure(f"{type(error).__name__}: {error}", "server")
        await asyncio.to_thread(training.journal.answer, entry.seq, result)
        if training.unsaved_s > REPEAT_S and training.settled == entry.seq:
            await asyncio.to_thread(training.save)
        if entry.verb == "save_weights_for_sampler":
            await self._release_samplers(training.about)

    # -- samplers -----------------------------------------------------------------------------------------------------

    async def create_sampler(self, caller: Caller, asked: CreateSamplerBody) -> Mapping[str, Any]:
        """Open a sampler of saved weights, or of the base."""
        await self._session(caller, asked.session_id)
        if asked.base_model is not None:
            self._check_base(asked.base_model)
        version = ""
        if asked.model_path is not None:
            version = await asyncio.to_thread(find_path, self._db, asked.model_path)
            await asyncio.to_thread(require_base, self._base, self._db, version)
        sampler = f"{asked.session_id}:sample:{asked.sampling_session_seq_id}"
        await asyncio.to_thread(self._notes.keep, SAMPLERS + sampler, version)
        return {"type": "create_sampling_session", "sampling_session_id": sampler}

    async def sampler(self, caller: Caller, sampler: str) -> Mapping[str, Any]:
        """A sampler, as the client reads it."""
        await self._version(caller, sampler)
        return {"sampler_id": sampler, "base_model": self._base.names[0]}

    async def sample(self, caller: Caller, asked: SampleBody) -> Mapping[str, Any]:
        """Take a request for samples; its future's id."""
        version = await self._version(caller, asked.sampling_session_id)
        self._sampled_at[asked.sampling_session_id] = time.monotonic()
        request = f"{asked.sampling_session_id}:{asked.seq_id}"
        if request not in self._samples:
            self._sweep()
            if len(self._samples) >= SAMPLES:
                raise TinkerRefusal(429, f"{SAMPLES} requests for samples are open. Come again.")
            task = asyncio.create_task(self._base.thread.run(self._base.sample(asked, version)))
            self._samples[request] = OpenSample(task)
        ids = [f"{request}:{number}" for number in range(asked.num_samples)]
        return {"request_id": request, "sample_sequence_ids": ids}

    async def _version(self, caller: Caller, sampler: str) -> str:
        await self._session(caller, sampler.partition(":")[0])
        version = await asyncio.to_thread(self._notes.find, SAMPLERS + sampler)
        if version is None:
            raise TinkerRefusal(404, f"sampler {sampler!r:.100} is unknown here, or was not used for an hour.")
        return version

    def _sweep(self) -> None:
        """Forget samples that were handed out."""
        now = time.monotonic()
        old = [
            id for id, one in self._samples.items() if one.fetched_at is not None and now - one.fetched_at > FETCHED_S
        ]
        for id in old:
            del self._samples[id]

    async def _release_samplers(self, about: RemoteRun) -> None:
        """Let go of the training's earlier samplers that are not used any more; their weights may be pruned then."""
        notes = await asyncio.to_thread(list_notes, self._db, f"{SAMPLERS}{about.session}:")
        now = time.monotonic()
        own = [key for key, version in notes.items() if version.rpartition("/")[0] == about.run]
        newest = max(own, key=lambda key: int(notes[key].rpartition("/")[2]), default=None)
        for key in own:
            used = self._sampled_at.setdefault(key.removeprefix(SAMPLERS), now)
            if key != newest and now - used > SAMPLER_S:
                await asyncio.to_thread(self._notes.drop, key)

    # -- futures ------------------------------------------------------------------------------------------------------

    async def retrieve(self, caller: Caller, request: str) -> bytes | None:
        """The result of a request; None while there is none. A TinkerRefusal 410 if it was lost or let go of."""
        owner, _, number = request.rpartition(":")
        if not number.isdecimal():
            raise ConfigError(f"request_id={request!r:.100} is none of this server's.")
        await self._session(caller, owner.partition(":")[0])
        if ":sample:" in owner:
            return await self._retrieve_sample(request)
        if number == "0":
            about = await self._about(owner)
            kind = "create_model" if about.parent is None else "load_weights"
            return json.dumps({"type": kind, "model_id": about.model_id}).encode()
        return await self._retrieve_result(owner, int(number))

    async def _retrieve_result(self, model: str, seq: int) -> bytes | None:
        resident = await self._resident(model)
        answered = resident.training.journal.answered
        try:
            async with asyncio.timeout(POLL_S), resident.changed:
                await resident.changed.wait_for(
                    lambda: seq < resident.upcoming or seq not in resident.waiting or resident.gone
                )
        except TimeoutError:
            return None
        if resident.gone:
            await asyncio.sleep(AGAIN_S)
            return None
        if seq not in answered:
            raise TinkerRefusal(410, f"request {model}:{seq} is unknown, or its result was let go of. Send it again.")
        return await asyncio.to_thread(resident.training.journal.result, seq)

    async def _retrieve_sample(self, request: str) -> bytes | None:
        found = self._samples.get(request)
        if found is None:
            raise TinkerRefusal(410, f"samples {request} were lost with an earlier process, or handed out. Ask again.")
        done, _ = await asyncio.wait([found.task], timeout=POLL_S)
        if not done:
            return None
        found.fetched_at = time.monotonic()
        error = found.task.exception()
        if error is None:
            return found.task.result()
        return failure(str(error), "user" if isinstance(error, LoomError) else "server")

    # -- what is there ------------------------------------------------------------------------------------------------

    def capabilities(self) -> Mapping[str, Any]:
        """The models that can be trained."""
        can = {"max_context_length": self._base.context, "trainable": True, "sampleable": True}
        return {"supported_models": [{"model_name": name, **can} for name in self._base.names]}

    async def training_run(self, model: str) -> Mapping[str, Any]:
        """A training as the client's listings have it."""
        about = await self._about(model)
        return {
            "training_run_id": model,
            "base_model": about.base_model,
            "model_owner": about.session,
            "is_lora": True,
            "lora_rank": about.shape.rank,
            "last_request_time": iso(about.created_at),
            "user_metadata": about.user_metadata,
        }

    async def checkpoints(self, model: str) -> Mapping[str, Any]:
        """The names under which a training's weights are saved."""
        await self._about(model)
        notes = await asyncio.to_thread(list_notes, self._db, f"{PATHS}{model}/")
        return {"checkpoints": [_checkpoint(key.removeprefix(PATHS), json.loads(text)) for key, text in notes.items()]}

    async def delete_checkpoint(self, caller: Caller, path: str) -> Mapping[str, Any]:
        """Let go of a name; its version stays on record, its files until they are pruned."""
        await self._session(caller, path.partition(":")[0])
        await asyncio.to_thread(self._notes.drop, PATHS + path)
        return {}

    async def weights_info(self, path: str) -> Mapping[str, Any]:
        """The shape of the adapter that is saved under a path."""
        version = await asyncio.to_thread(find_path, self._db, path)
        run = POLICIES.require(self._db, version).run
        about = await self._about(run, by_run=True)
        lora = about.shape
        parts = {"train_unembed": lora.train_unembed, "train_mlp": lora.train_mlp, "train_attn": lora.train_attn}
        return {"base_model": about.base_model, "is_lora": True, "lora_rank": lora.rank, **parts}


def _is_lost(task: asyncio.Task[Resident]) -> bool:
    """True if a training could not be brought to memory, or has left it."""
    return task.done() and (task.cancelled() or task.exception() is not None or task.result().gone)


def _read_object(verb: str, body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except ValueError as error:
        raise ConfigError(f"{verb}: the body is no JSON: {error}.") from None
    if not isinstance(told, dict):
        raise ConfigError(f"{verb}: the body must be an object, got {type(told).__name__}.")
    return told


def failure(message: str, category: str) -> bytes:
    """A failed result, as the client reads it."""
    return json.dumps({"error": " ".join(message.split()), "category": category}).encode()


def iso(at: float) -> str:
    """A time as the client reads it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _checkpoint(path: str, note: Mapping[str, Any]) -> Mapping[str, Any]:
    _, kind, name = path.split("/")
    return {
        "checkpoint_id": f"{kind}/{name}",
        "checkpoint_type": "training" if kind == "weights" else "sampler",
        "time": iso(note["at"]),
        "tinker_path": SCHEME + path,
        "user_metadata": note["user_metadata"],
        "expires_at": None if note["expires_at"] is None else iso(note["expires_at"]),
    }
