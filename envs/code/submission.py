"""Parsing of a policy's code: the last complete fenced block, of bounded size."""

from loomrl.envs.code.subset import MAX_SOURCE

FENCE = "```"
CODE_FORMAT = "Reply with the whole function in a ```python block."
NO_CODE = f"No complete ```python block of at most {MAX_SOURCE} letters was found. {CODE_FORMAT}"
_LANGUAGES = ("", "py", "python", "python3")


def parse_code(text: str) -> str | None:
    """The code of the last complete Python block, or None. Linear in the text.

    Fences begin their lines. A last block that is never closed withdraws earlier ones.
    """
    code: str | None = None
    block: list[str] | None = None
    ours = False
    for line in text.split("\n"):
        if block is None:
            if line.startswith(FENCE):
                ours = line[len(FENCE) :].strip().lower() in _LANGUAGES
                block, code = [], None if ours else code
        elif line.rstrip() == FENCE:
            code, block = "\n".join(block) + "\n" if ours else code, None
        else:
            block.append(line)
    return code if code is not None and len(code) <= MAX_SOURCE and code.strip() else None
