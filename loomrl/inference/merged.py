"""A version that is low-rank additions to a base: merged into a whole model, or the additions alone."""

import json
from pathlib import Path

from loomrl.errors import ConfigError
from loomrl.inference.model import open_model, save_model
from loomrl.inference.weights.adapter import merge, open_adapter
from loomrl.inference.weights.sealed import Sealed, identify
from loomrl.run.version import BASE, BASE_FILE


def whole_model(checkpoint: Path, *, trust_remote_code: bool = False) -> Path:
    """The model's folder in a copy of a checkpoint; low-rank additions are merged into the base that lies beside it."""
    folder = checkpoint / "model"
    reference = checkpoint / BASE_FILE
    if not reference.is_file():
        return folder
    about = json.loads(reference.read_text())
    base = checkpoint.with_name(BASE)
    model = open_model(base, dtype=about["dtype"], trust_remote_code=trust_remote_code)
    if identify(model.state_dict().items()) != about["identity"]:
        raise ConfigError(f"model path={str(base)!r} is not the base that the low-rank additions were trained on.")
    model.load_state_dict(merge(model.state_dict(), model, sealed_adapter(checkpoint)))
    save_model(model, None, folder)
    return folder


def sealed_adapter(checkpoint: Path, version: int = 0) -> Sealed:
    """The low-rank additions in a copy of a checkpoint, for an engine that holds their base."""
    about = json.loads((checkpoint / BASE_FILE).read_text())
    return open_adapter(checkpoint / "adapter", base=about["identity"], version=version)
