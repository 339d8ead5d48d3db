"""The source of the first weights: a Hugging Face folder, or a model that was built and stored as an artifact."""

import hashlib
from functools import cache
from pathlib import Path

from loomrl.artifacts import open_artifacts
from loomrl.config import LanguageModel
from loomrl.files import scratch
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.model import open_tokenizer


def origin_of(model: LanguageModel, *, artifact_url: str, built: str) -> Path:
    """The folder to load the first weights from; `built` names the artifact of a model that has no path."""
    if model.path is not None:
        return Path(model.path)
    return _fetched(artifact_url, built)


@cache
def stops_of(origin: Path, *, trust_remote_code: bool) -> frozenset[int]:
    """The tokens that end a turn of this model's."""
    return ChatTemplate(open_tokenizer(origin, trust_remote_code=trust_remote_code)).stop


@cache
def _fetched(artifact_url: str, name: str) -> Path:
    """One copy per process and artifact, checked against its checksums."""
    folder = hashlib.sha256(name.encode()).hexdigest()[:16]
    return open_artifacts(artifact_url).get_folder(name, scratch("model") / folder)
