"""Models in GGUF files and in packages: what comes along, what is refused, and that a conversion is whole or absent."""

import importlib
import resource
import shutil
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from sample_models import tiny_model, tiny_tokenizer
from transformers import PreTrainedTokenizerFast

from loomrl.algorithms.language.build import build_tokenizer
from loomrl.errors import ConfigError
from loomrl.inference import gguf
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.gguf import find_model, is_model, model_folder, record_of
from loomrl.inference.model import open_model, open_tokenizer, save_model

pytest.importorskip("gguf", reason="needs gguf: pip install 'loomrl[gguf]'")
from loomrl.inference import gguf_export
from loomrl.inference.gguf_export import export_gguf

TEXT = "<|user|>What is 17 + 25?  é ½ don't\n\n 123 1234567<|end|>\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_model(tiny_model(), tiny_tokenizer(), folder)
    return folder


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    export_gguf(folder, file, "f16")
    return file


def written(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def converted(file: Path, artifacts: Path) -> Path:
    return model_folder(str(file), str(artifacts))


def test_weights_with_biases_and_rows_in_their_own_order_come_back_too(tmp_path: Path) -> None:
    model = tiny_model("qwen2")
    for name, weights in model.named_parameters():
        weights.data += name.endswith("bias")
    save_model(model, tiny_tokenizer(), tmp_path / "model")
    export_gguf(tmp_path / "model", tmp_path / "qwen.gguf", "f16")
    theirs = open_model(converted(tmp_path / "qwen.gguf", tmp_path)).state_dict()
    for name, weights in model.state_dict().items():
        assert torch.equal(theirs[name], weights if weights.dim() == 1 else weights.half().float()), name


def test_what_goes_out_as_gguf_comes_back_within_float16(folder: Path, file: Path, tmp_path: Path) -> None:
    back = converted(file, tmp_path)
    ours, theirs = open_model(folder).state_dict(), open_model(back).state_dict()
    assert ours.keys() == theirs.keys()
    for name, weights in ours.items():
        assert torch.equal(theirs[name], weights if weights.dim() == 1 else weights.half().float()), name
    before, after = open_tokenizer(folder), open_tokenizer(back)
    assert after.encode(TEXT) == before.encode(TEXT)
    assert after.get_vocab() == before.get_vocab()
    assert after.chat_template == before.chat_template
    assert ChatTemplate(after).stop == ChatTemplate(before).stop
    assert set(after.all_special_tokens) == set(before.all_special_tokens)
    again = tmp_path / "again" / file.name
    again.parent.mkdir()
    export_gguf(back, again, "f16")
    assert again.read_bytes() == file.read_bytes()


def test_blocks_of_eight_bits_are_near_what_went_in(folder: Path, tmp_path: Path) -> None:
    export_gguf(folder, tmp_path / "small.gguf", "q8_0")
    theirs = open_model(converted(tmp_path / "small.gguf", tmp_path)).state_dict()
    apart = [
        (weights - theirs[name]).norm() / weights.norm() for name, weights in open_model(folder).state_dict().items()
    ]
    assert 0 < max(apart) < 0.01


def test_a_built_tokenizer_that_joins_words_keeps_its_ids(tmp_path: Path) -> None:
    texts = ["What is 12 + 30?\nSay the number only.", "What is 7 times 81?\nSay the number only."] * 20
    tokenizer = build_tokenizer(texts, vocabulary=300)
    assert max(len(token) for token in tokenizer.get_vocab()) > 12, "no words were joined, so nothing is tried"
    save_model(tiny_model(), tokenizer, tmp_path / "model")
    export_gguf(tmp_path / "model", tmp_path / "built.gguf", "f16")
    back = open_tokenizer(converted(tmp_path / "built.gguf", tmp_path))
    for text in (*texts[:2], TEXT, "only. What is 1234567 numbers only.\n"):
        assert back.encode(text) == tokenizer.encode(text)


def test_a_conversion_happens_once_however_many_ask(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []
    real = gguf._convert
    monkeypatch.setattr(gguf, "_convert", lambda file, folder: (calls.append(folder), real(file, folder)))
    with ThreadPoolExecutor(3) as pool:
        found = set(pool.map(lambda _: converted(file, tmp_path), range(3)))
    assert len(calls) == len(found) == 1
    record = record_of(found.pop())
    assert record is not None
    assert (record["file"], record["bytes"]) == ("tiny.gguf", file.stat().st_size)
    copy = written(tmp_path, "other.gguf", file.read_bytes())
    assert converted(copy, tmp_path).name == f"other-{record['sha256'][:12]}"


def test_a_conversion_that_fails_or_was_killed_leaves_nothing_to_believe(file: Path, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # as if the disk were full after so many bytes
    try:
        with pytest.raises(
            ConfigError, match=r"tiny\.gguf.*its folder of 0\.00 GB in .* cannot be written: .*Make room"
        ):
            converted(file, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((tmp_path / "models").iterdir()) == []
    whole = converted(file, tmp_path)
    draft = whole.with_name(f".{whole.name}-killed")
    whole.rename(draft)
    assert converted(file, tmp_path) == whole
    assert not draft.exists()


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def up(kind: int) -> bytes:
    """An entry of the table of weights: name, two sizes, number format."""
    return string("blk.0.ffn_up.weight") + struct.pack("<IQQI", 2, 32, 48, kind)


FAULTS = {
    "not one": (lambda content: b"PK" + content, r"is not a GGUF file: it begins with b'PKGG'.*Give one"),
    "cut off": (lambda content: content[:-100], r"bytes end before what its header lists.*Copy it again"),
    "cut off in its header": (lambda content: content[:3000], r"bytes end before what its header lists"),
    "another architecture": (
        lambda content: content.replace(string("llama"), string("plamo"), 1),
        r"transformers cannot read it: .*plamo",
    ),
    "unknown blocks": (
        lambda content: content.replace(up(1), up(24)),
        r"weights of kind I8 cannot be unpacked. Take a file in F16",
    ),
    "weights that are not read": (
        lambda content: content.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"),
        r"does not follow all of it \(no weights for model.layers.1.mlp.up_proj.weight, weights blk.1.ffn_xx.weight\)",
    ),
    "text cut otherwise": (
        lambda content: content.replace(string("gpt-2"), string("bloom"), 1),
        r"tokenizer.ggml.pre='bloom' is a way to cut text that is not known.*Known: .*gpt-2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_followed_is_refused_by_name(fault: str, file: Path, tmp_path: Path) -> None:
    change, message = FAULTS[fault]
    content = change(file.read_bytes())
    assert content != file.read_bytes()
    with pytest.raises(ConfigError, match=message) as caught:
        converted(written(tmp_path, "bad.gguf", content), tmp_path)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "models").iterdir()) == []


def test_scaled_positions_and_weights_that_are_not_finite_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = gguf_export._add_shape

    def scaled(writer: object, config: object, **about: str) -> None:
        real(writer, config, **about)
        writer.add_rope_scaling_factor(4.0)  # type: ignore[attr-defined]

    with monkeypatch.context() as patch:
        patch.setattr(gguf_export, "_add_shape", scaled)
        export_gguf(folder, tmp_path / "scaled.gguf", "f16")
    with pytest.raises(ConfigError, match=r"llama.rope.scaling.factor=4.0.*Take the model's folder"):
        converted(tmp_path / "scaled.gguf", tmp_path)
    model = tiny_model()
    model.model.norm.weight.data[3] = float("nan")
    save_model(model, tiny_tokenizer(), tmp_path / "nan")
    export_gguf(tmp_path / "nan", tmp_path / "nan.gguf", "f16")
    with pytest.raises(ConfigError, match=r"weights of model.norm.weight are not finite"):
        converted(tmp_path / "nan.gguf", tmp_path)


def test_without_the_package_that_reads_it_a_file_is_refused_with_the_command(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'loomrl\[gguf\]'"):
        converted(file, tmp_path)


# -- packages -------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package of no content, which must not be imported to be looked into."""
    inside = tmp_path / "site" / "loomrl_sample_model"
    inside.mkdir(parents=True)
    written(inside, "__init__.py", b"raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(inside.parent))
    importlib.invalidate_caches()
    yield inside
    assert inside.name not in sys.modules


def test_a_package_is_a_name_for_the_one_model_in_it(package: Path, folder: Path, file: Path, tmp_path: Path) -> None:
    name = f"package:{package.name}"
    assert is_model(name)
    assert is_model(str(file))
    assert not is_model("math-1")
    with pytest.raises(ConfigError, match=r"holds none: no .gguf file and no folder with a config.json"):
        find_model(name)
    shutil.copytree(folder, package / "weights")
    assert model_folder(name.replace("_", "-")) == package / "weights"
    shutil.rmtree(package / "weights")
    inside = written(package, "one.gguf", file.read_bytes())
    assert find_model(name) == inside
    assert open_model(model_folder(name, str(tmp_path))).config.model_type == "llama"
    written(package, "two.gguf", b"")
    with pytest.raises(ConfigError, match=r"must hold one model, and holds 2: .*one\.gguf, .*two\.gguf. Give the path"):
        find_model(name)
    with pytest.raises(ConfigError, match=r"no such package. Install it: pip install --no-deps no-such-one"):
        find_model("package:no_such_one")
    with pytest.raises(ConfigError, match=r"nowhere\.gguf': no such file"):
        find_model("nowhere.gguf")


# -- export ---------------------------------------------------------------------------------------------------------


def test_the_modelfile_says_what_the_chat_template_says(file: Path, tmp_path: Path) -> None:
    said = file.with_name("Modelfile").read_text()
    assert said.startswith("FROM ./tiny.gguf\nPARAMETER num_ctx 256\n")
    assert 'PARAMETER stop "<|end|>"' in said
    assert said.endswith(
        'TEMPLATE """{{ if .System }}<|system|>{{ .System }}<|end|>{{ else }}{{ end }}{{ range .Messages }}'
        '{{ if eq .Role "user" }}<|user|>{{ .Content }}<|end|>{{ else if eq .Role "assistant" }}<|assistant|>'
        '{{ .Content }}<|end|>{{ end }}{{ end }}<|assistant|>"""\n'
    )


def test_a_template_with_a_preamble_of_its_own_keeps_it_where_no_system_message_is(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|system|>\nBe kind.<|end|>\n{% endif %}"
        "<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    )
    save_model(tiny_model(), tiny_tokenizer(template), tmp_path / "model")
    export_gguf(tmp_path / "model", tmp_path / "kind.gguf", "f16")
    said = (tmp_path / "Modelfile").read_text()
    assert "{{ .System }}<|end|>\n{{ else }}<|system|>\nBe kind.<|end|>\n{{ end }}{{ range .Messages }}" in said


@pytest.mark.parametrize(
    ("kind", "tokenizer", "message"),
    [
        ("mistral", tiny_tokenizer(), r"a model of type 'mistral' is not written as GGUF, only llama, qwen2, qwen3"),
        ("llama", None, r"cuts text in a way that is none of smollm, gpt-2.*other ids"),
    ],
)
def test_what_llama_cpp_would_read_otherwise_is_not_written(
    kind: str, tokenizer: PreTrainedTokenizerFast | None, message: str, tmp_path: Path
) -> None:
    if tokenizer is None:
        from tokenizers import pre_tokenizers

        tokenizer = tiny_tokenizer()
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split("i", behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    save_model(tiny_model(kind), tokenizer, tmp_path / "model")
    with pytest.raises(ConfigError, match=message):
        export_gguf(tmp_path / "model", tmp_path / "out.gguf", "f16")
    assert [each.name for each in tmp_path.iterdir()] == ["model"]
