"""A model's folder as a GGUF file for llama.cpp, with a Modelfile for Ollama beside it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerBase

from loomrl.errors import ConfigError, unknown
from loomrl.files import write_whole
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.gguf import INSTALL, GgufKind, cutter
from loomrl.inference.model import config_of, open_tokenizer

FAMILIES = ("llama", "qwen2", "qwen3")
"""Model types that are written: those that llama.cpp calls by the same name and that it was tried with."""
PROBE = """I've been 'told he's there, 'RE you sure? 3 33 333 3333 33333 3.3 3..3  a

 b 		 c

   d ½² é我想在apple工作1314151天～ 🚀 (normal) ''''......!!!!!!?????? x=17+25;
  'M not"""
"""Text that is cut differently by every way that llama.cpp has."""
WAYS = ("smollm", "gpt-2", "qwen2", "llama-bpe", "superbpe")
WHOLE_WORDS = ("llama-bpe",)
"""Ways with which a word that is a token is not merged from its parts."""
SAMPLE = 4000
"""Tokens of a vocabulary whose texts are cut for a trial."""


def export_gguf(folder: Path, file: Path, kind: GgufKind) -> None:
    """Write the model in a folder as a GGUF file, and `Modelfile` beside it; the file gets its name when complete."""
    if kind not in get_args(GgufKind):
        raise ConfigError("--gguf " + unknown("kind", kind, get_args(GgufKind)))
    try:
        import gguf
    except ImportError:
        raise ConfigError(f"--gguf: GGUF files are written with the package gguf. Install: {INSTALL}") from None
    config = config_of(folder)
    _check_family(config)
    tokenizer = open_tokenizer(folder)
    draft = file.with_name(f".{file.name}.draft")
    try:
        writer = gguf.GGUFWriter(draft, config.model_type)
        _add_shape(writer, config, name=file.stem, kind=kind)
        _add_tokenizer(writer, tokenizer, rows=config.vocab_size)
        _write(writer, folder, config, kind)
        draft.replace(file)
    except OSError as error:
        raise ConfigError(f"--gguf: {file} cannot be written: {error}. Make room, or name another folder.") from error
    finally:
        draft.unlink(missing_ok=True)
    write_whole(file.with_name("Modelfile"), _modelfile(file.name, tokenizer, config).encode())


def _check_family(config: Any) -> None:
    kind = config.model_type
    if kind not in FAMILIES:
        raise ConfigError(
            f"--gguf: a model of type {kind!r} is not written as GGUF, only {', '.join(FAMILIES)}. "
            "llama.cpp's own convert_hf_to_gguf.py takes the exported folder."
        )
    rope = config.rope_parameters.get("rope_type", "default")
    found = [f"rope_type={rope!r}"] * (rope != "default")
    found += [
        f"{name}=true" for name in ("attention_bias", "mlp_bias", "use_sliding_window") if getattr(config, name, 0)
    ]
    found += [f"hidden_act={config.hidden_act!r}"] * (config.hidden_act != "silu")
    if found:
        raise ConfigError(f"--gguf: {', '.join(found)} is not written; llama.cpp's convert_hf_to_gguf.py may do it.")


def _add_shape(writer: Any, config: Any, *, name: str, kind: GgufKind) -> None:
    from gguf import LlamaFileType

    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_type("model")
    writer.add_name(name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(LlamaFileType.MOSTLY_F16 if kind == "f16" else LlamaFileType.MOSTLY_Q8_0)


# -- tokenizer ------------------------------------------------------------------------------------------------------


def _add_tokenizer(writer: Any, tokenizer: PreTrainedTokenizerBase, *, rows: int) -> None:
    from gguf import TokenType

    if not tokenizer.is_fast:
        raise ConfigError(f"--gguf: a {type(tokenizer).__name__} is not written, only byte-level BPE of tokenizers.")
    core: Any = tokenizer.backend_tokenizer
    state = json.loads(core.to_str())
    parts = [(state[name] or {}).get("type") for name in ("model", "decoder", "normalizer")]
    # llama.cpp joins no accents with their letters (NFC), and all files of Qwen do without.
    if parts[:2] != ["BPE", "ByteLevel"] or parts[2] not in (None, "NFC"):
        raise ConfigError(
            f"--gguf: a tokenizer of {parts[0]} with decoder {parts[1]} and normalizer {parts[2]} is not written, only "
            "byte-level BPE. llama.cpp's own convert_hf_to_gguf.py takes the exported folder."
        )
    names = {id: token for token, id in tokenizer.get_vocab().items()}
    added = core.get_added_tokens_decoder()
    kinds = [TokenType.NORMAL if id in names else TokenType.UNUSED for id in range(rows)]
    for id, token in added.items():
        kinds[id] = TokenType.CONTROL if token.special else TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_way_of(core))
    writer.add_token_list([names.get(id, f"[PAD{id}]") for id in range(rows)])
    writer.add_token_types(kinds)
    merges = state["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    for name in ("bos", "eos", "unk", "pad"):
        id = getattr(tokenizer, f"{name}_token_id")
        if id is not None:
            getattr(writer, f"add_{name}_token_id")(id)
    writer.add_eot_token_id(ChatTemplate(tokenizer).end)
    writer.add_add_bos_token(_begins_with_bos(tokenizer))
    writer.add_chat_template(tokenizer.chat_template)


def _begins_with_bos(tokenizer: PreTrainedTokenizerBase) -> bool:
    return tokenizer.bos_token_id is not None and tokenizer.encode("a")[:1] == [tokenizer.bos_token_id]


def _way_of(core: Tokenizer) -> str:
    """llama.cpp's name for a way to cut text after which this vocabulary gives the same ids."""
    texts = list(_trials(core))
    expected = [core.encode(text, add_special_tokens=False).ids for text in texts]
    for way in WAYS:
        other: Any = Tokenizer.from_str(core.to_str())
        other.pre_tokenizer = _cutter(way)
        other.model.ignore_merges = way in WHOLE_WORDS
        if [other.encode(text, add_special_tokens=False).ids for text in texts] == expected:
            return way
    raise ConfigError(
        f"--gguf: the tokenizer cuts text in a way that is none of {', '.join(WAYS)}: llama.cpp would see other ids. "
        "Use the exported folder with transformers or vLLM."
    )


def _trials(core: Tokenizer) -> Iterator[str]:
    """Texts that would show another way: hard ones, and the vocabulary's own tokens side by side."""
    yield PROBE
    ids = [id for id in range(core.get_vocab_size()) if id not in core.get_added_tokens_decoder()]
    stride = max(1, len(ids) // SAMPLE)
    for first in (0, 1):
        texts = [core.decode([id]) for id in ids[first * (stride // 2) :: stride]]
        yield "".join(texts)
        yield "".join(reversed(texts))
        yield " 7".join(texts[:1000])


def _cutter(way: str) -> Any:
    from tokenizers import Regex
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    if way not in GGUF_PRE_TOKENIZER_SPLITS:
        return cutter(way)
    split = pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[way]), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# -- weights --------------------------------------------------------------------------------------------------------


def _write(writer: Any, folder: Path, config: Any, kind: GgufKind) -> None:
    """The file, a tensor at a time: no more than one is in memory."""
    from gguf import GGMLQuantizationType, quants
    from safetensors import safe_open

    with_names = list(_tensors(folder, config))
    formats = {}
    for name, file, source in with_names:
        with safe_open(file, "pt") as opened:
            shape = tuple(opened.get_slice(source).get_shape())
        formats[name] = chosen = _format_of(shape, kind)
        bytes_ = np.empty(0, chosen[1]).itemsize * int(np.prod(shape))
        if chosen[0] is GGMLQuantizationType.Q8_0:
            shape = quants.quant_shape_to_byte_shape(shape, chosen[0])
            bytes_ = int(np.prod(shape))
        writer.add_tensor_info(name, shape, np.dtype(chosen[1]), bytes_, raw_dtype=chosen[0])
    turned = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    heads = turned if config.model_type == "llama" else {}
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, file, source in with_names:
        with safe_open(file, "pt") as opened:
            weights = opened.get_tensor(source).float()
        values = _interleaved(weights, heads.get(name.split(".")[-2])).numpy()
        quantisation, dtype = formats[name]
        if dtype is np.uint8:
            values = quants.quantize(values, quantisation)
        elif np.abs(values).max(initial=0) > np.finfo(dtype).max:
            raise ConfigError(f"--gguf: weights of {source} are beyond {dtype.__name__}, which ends at 65,504.")
        writer.write_tensor_data(np.ascontiguousarray(values.astype(dtype)))
    writer.close()


def _tensors(folder: Path, config: Any) -> Iterator[tuple[str, Path, str]]:
    """Name in the GGUF file, file and name in the folder."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
    from safetensors import safe_open

    (kind,) = (kind for kind, name in MODEL_ARCH_NAMES.items() if name == config.model_type)
    known = get_tensor_name_map(kind, config.num_hidden_layers)
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            for source in opened.keys():  # noqa: SIM118 – a safetensors file is not a mapping
                if source == "lm_head.weight" and config.tie_word_embeddings:
                    continue
                name = known.get_name(source, try_suffixes=(".weight", ".bias"))
                if name is None:
                    raise ConfigError(f"--gguf: llama.cpp's {config.model_type} has no weights like {source}.")
                yield name, file, source


def _format_of(shape: tuple[int, ...], kind: GgufKind) -> tuple[Any, Any]:
    """Norms stay in float32; rows that no block of 32 fits into are in float16."""
    from gguf import GGMLQuantizationType

    if len(shape) == 1:
        return GGMLQuantizationType.F32, np.float32
    if kind == "q8_0" and shape[-1] % 32 == 0:
        return GGMLQuantizationType.Q8_0, np.uint8
    return GGMLQuantizationType.F16, np.float16


def _interleaved(weights_OI: torch.Tensor, heads: int | None) -> torch.Tensor:
    """Rows in llama.cpp's order: it turns neighbours in a head, transformers a head's halves."""
    if heads is None:
        return weights_OI
    return weights_OI.view(heads, 2, -1, weights_OI.shape[1]).transpose(1, 2).reshape(weights_OI.shape)


# -- Ollama ---------------------------------------------------------------------------------------------------------


class _ChatParts(NamedTuple):
    """The text that a chat template puts around the messages of a conversation."""

    preamble: str
    system: tuple[str, str]
    user: tuple[str, str]
    assistant: tuple[str, str]


def _modelfile(file: str, tokenizer: PreTrainedTokenizerBase, config: Any) -> str:
    chat = ChatTemplate(tokenizer)
    lines = [f"FROM ./{file}", f"PARAMETER num_ctx {config.max_position_embeddings}", "PARAMETER temperature 1"]
    lines += [f"PARAMETER stop {json.dumps(tokenizer.convert_ids_to_tokens(id))}" for id in sorted(chat.stop)]
    turns = _turns_of(tokenizer)
    if turns is not None:
        lines.append(f'TEMPLATE """{_go(turns)}"""')
    return "\n".join(lines) + "\n"


def _turns_of(tokenizer: PreTrainedTokenizerBase) -> _ChatParts | None:
    """The parts of the template; None if it is not made of parts, and Ollama has to read it by itself."""

    def render(*roles: str, ask: bool = False) -> str:
        told = [{"role": role, "content": f"@{index}@"} for index, role in enumerate(roles)]
        text = str(tokenizer.apply_chat_template(told, tokenize=False, add_generation_prompt=ask))
        bos = str(tokenizer.bos_token) if _begins_with_bos(tokenizer) else ""
        return text.removeprefix(bos)  # llama.cpp puts it there by itself

    try:
        plain = render("user")
        asked = render("user", ask=True)
        begin, _, rest = render("user", "assistant", "user").partition("@0@")
        between, _, tail = rest.partition("@1@")
        user = tail.partition("@2@")
        system = render("system", "user").partition("@0@")
    except Exception:  # noqa: BLE001 – the boundary: templates are programs, and this one takes no such roles
        return None
    speak = asked.removeprefix(plain)
    ended = render("user", "assistant").partition("@1@")[2]
    if not (between.endswith(speak) and user[0].startswith(ended) and begin.endswith(user[0].removeprefix(ended))):
        return None
    opens = user[0].removeprefix(ended)
    closes = between.removesuffix(speak)
    turns = _ChatParts(
        preamble=begin.removesuffix(opens),
        system=(system[0], system[2].partition("@1@")[0].removesuffix(opens)),
        user=(opens, closes),
        assistant=(speak, ended),
    )
    whole = "".join([turns.system[0], "@0@", turns.system[1], opens, "@1@", closes, speak, "@2@", ended])
    return turns if whole == render("system", "user", "assistant") and "{{" not in whole else None


def _go(turns: _ChatParts) -> str:
    """A template in the language of Go."""
    roles = [("user", turns.user), ("assistant", turns.assistant)]
    said = " else ".join(f'if eq .Role "{role}" }}}}{a}{{{{ .Content }}}}{b}{{{{' for role, (a, b) in roles)
    begin, end = turns.system
    return (
        f"{{{{ if .System }}}}{begin}{{{{ .System }}}}{end}{{{{ else }}}}{turns.preamble}{{{{ end }}}}"
        f"{{{{ range .Messages }}}}{{{{ {said} end }}}}{{{{ end }}}}{turns.assistant[0]}"
    )
