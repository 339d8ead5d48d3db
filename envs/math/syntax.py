"""Text → expression tree. Plain notation and LaTeX, ASCII digits only, bounded in length, depth and digits.

from loomrl.gym.generate import words
The tree keeps how a thing was written, so that `3 + 4` and `7` can be told apart; `evaluate` gives its exact value.
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from loomrl.envs.math.value import Calculator, Unreadable, Value, atom, constant, rational
from loomrl.gym.generate import words

MAX_LENGTH = 400
MAX_DIGITS = 30
MAX_DEPTH = 24

_SIGNS = str.maketrans(
    {
        "−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "∞": " infty ", "π": " pi ",
        "√": " sqrt ", "∪": " cup ", "≤": "<=", "≥": ">=", "±": " pm ", "°": " degree ",
        "∗": "*", "⁄": "/", "∕": "/", "‐": "-", "‑": "-", "﹣": "-", "∈": " in ", "⩽": "<=", "⩾": ">=", "≦": "<=",
        "≧": ">=", "∨": " or ",
        "\t": " ", "\n": " ",
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u2061\u2062", ""),
    }
)  # fmt: skip
_LATEX = {
    r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cdot": "*", r"\times": "*", r"\div": "/", r"\pi": " pi ",
    r"\infty": " infty ", r"\cup": " cup ", r"\leq": "<=", r"\geq": ">=", r"\le": "<=", r"\ge": ">=", r"\pm": " pm ",
    r"\left": "", r"\right": "", r"\{": " lbrace ", r"\}": " rbrace ", r"\,": " ", r"\;": " ", r"\!": "", r"\ ": " ",
    r"\%": "%", r"\$": " ", r"\(": " ", r"\)": " ", r"\[": " ", r"\]": " ", r"^\circ": " degree ", r"\quad": " ",
    r"\:": " ", r"\qquad": " ", r"\cfrac": r"\frac", r"\lor": " or ", r"\vee": " or ",
    r"\lvert": "|", r"\rvert": "|", r"\displaystyle": " ", r"\in": " in ", r"\lt": "<", r"\gt": ">",
}  # fmt: skip
_HIGH = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿˣ", "0123456789+-()nx")
_LOW = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_RAISED = re.compile(r"([⁰¹²³⁴-⁹⁺⁻⁽⁾ⁿˣ]+)(?:[⁄/]([₀-₉]+))?")
_VULGAR = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5",
    "⅙": "1/6", "⅚": "5/6", "⅐": "1/7", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8", "⅑": "1/9", "⅒": "1/10",
}  # fmt: skip
_VULGAR_SIGN = re.compile(rf"(\d?)\s?([{''.join(_VULGAR)}])")
_THIN = "'’\u00a0\u2009\u200a\u202f"
_COMMAND = re.compile(r"\^\s*\{?\\circ\}?|\\[A-Za-z]+|\\[^A-Za-z]")
_TEXT = re.compile(r"\\(?:text|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|\\frac|\\sqrt|\\?[A-Za-z]+|<=|>=|[-+*/^()\[\]{}|,;%=<>])")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?![\d,])")
_THIN_THOUSANDS = re.compile(rf"(?<![\d.])\d{{1,3}}(?:(?:[{_THIN}]|\\,)\d{{3}})+(?![\d,])")
_NO_DIGIT = re.compile(r"\D")
_SPACE_BEFORE_FRACTION = re.compile(r"(?<![\d./^])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.])")

UNCOMPUTED = words("sec csc cot arcsin arccos arctan sinh cosh tanh")
"""Functions that are read, and computed only by the second opinion."""
FUNCTIONS = ("sqrt", "sin", "cos", "tan", "ln", "log", "exp", *UNCOMPUTED)
WORDS = frozenset({*FUNCTIONS, "pi", "infty", "cup", "pm", "degree", "lbrace", "rbrace", "in", "and", "or"})


class SyntaxNode(NamedTuple):
    """A piece of an expression: a number, a symbol, or an operation on further pieces."""

    kind: str
    """`number`, `mixed`, `symbol`, `+ - * / ^ negate percent abs`, or the name of a function."""
    parts: tuple["SyntaxNode", ...] = ()
    number: Fraction = Fraction(0)
    name: str = ""


def tokens(raw: str) -> list[str]:
    """The tokens of a text in one plain notation; Unreadable where a character has no meaning here."""
    if len(raw) > MAX_LENGTH:
        raise Unreadable(f"longer than {MAX_LENGTH} characters")
    plain = _plain(raw)
    found: list[str] = []
    position = 0
    end = len(plain.rstrip())
    while position < end:
        match = _TOKEN.match(plain, position)
        if match is None:
            raise Unreadable(f"{plain[position]!r} has no meaning here")
        found.append(match[1])
        if len(match[1]) > MAX_DIGITS:
            raise Unreadable("too many digits")
        position = match.end()
    return found


def _plain(raw: str) -> str:
    """LaTeX and typographic signs in their ASCII spelling, dollar signs and layout dropped."""
    text = raw if raw.isascii() else _ascii(raw)
    if len(text) > 2 * MAX_LENGTH:
        raise Unreadable("too long when its signs are spelt out")
    text = text.replace("**", "^")
    if not text.isascii():
        raise Unreadable("a character outside ASCII and the usual mathematical signs")
    if "$" in text:
        text = text.replace("$", " ")
    if "\\" in text:
        text = _TEXT.sub(r" \1 ", text)
        text = _COMMAND.sub(_command, text)
        if text.lstrip().startswith(r"\boxed"):
            text = text.replace(r"\boxed", " ", 1)
    return text


def _ascii(raw: str) -> str:
    """Typographic signs in ASCII: x⁴ as x^4, ½ as 1/2, ⅝ behind a number as a mixed number."""
    text = _VULGAR_SIGN.sub(_vulgar, raw)
    return _RAISED.sub(_read_exponent, text).translate(_SIGNS)


def _vulgar(match: re.Match[str]) -> str:
    over = _VULGAR[match[2]].replace("/", "}{")
    return rf"{match[1]}\frac{{{over}}}"


def _read_exponent(match: re.Match[str]) -> str:
    """An exponent; ⁵⁄₇ is a fraction."""
    high = match[1].translate(_HIGH)
    if match[2]:
        return rf"\frac{{{high}}}{{{match[2].translate(_LOW)}}}"
    return f"^{high}" if len(high) == 1 else f"^({high})"


def _command(match: re.Match[str]) -> str:
    command = match[0]
    if command.startswith("^"):
        return " degree "
    if command in _LATEX:
        return _LATEX[command]
    return command if command in (r"\frac", r"\sqrt", r"\boxed") else f" {command[1:]} "


def unwrap_text(text: str) -> str:
    """`\\text{cm}^2` as `cm^2`, and LaTeX spaces as spaces."""
    return _TEXT.sub(r" \1 ", text.replace("\\,", " ").replace("\\ ", " ")) if "\\" in text else text


def join_thin(text: str) -> str:
    """`12 345` with a thin space as `12345`."""
    return _THIN_THOUSANDS.sub(lambda match: _NO_DIGIT.sub("", match[0]), text)


def join_thousands(text: str) -> str:
    """`12,345` as `12345`: only for a text that is one number, never for a list."""
    if not text.isascii() or "\\," in text or "{," in text or "'" in text:
        text = join_thin(text.replace("{,}", ","))
    return _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)


class SyntaxReader:
    """Recursive descent over tokens.

    `variables` are the only letters that may occur, besides e, which is Euler's number.
    """

    def __init__(self, tokens: list[str], variables: str) -> None:
        self.tokens = tokens
        self.variables = variables
        self.position = 0
        self.depth = 0

    def next(self) -> str:
        """The token ahead, empty at the end."""
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self, token: str) -> bool:
        """Step over `token` if it is ahead."""
        if self.next() != token:
            return False
        self.position += 1
        return True

    def expect(self, token: str) -> None:
        """Step over `token`, which must be ahead."""
        if not self.take(token):
            raise Unreadable(f"{token!r} expected before {self.next()!r}")

    def whole(self) -> SyntaxNode:
        """The expression that all tokens make up."""
        node = self.sum()
        if self.next():
            raise Unreadable(f"{self.next()!r} was not expected")
        return node

    def sum(self) -> SyntaxNode:
        """Terms joined by + and -."""
        self._deeper()
        node = self._product()
        while self.next() in ("+", "-"):
            kind = self.tokens[self.position]
            self.position += 1
            node = SyntaxNode(kind, (node, self._product()))
        self.depth -= 1
        return node

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("too deeply nested")

    def _product(self) -> SyntaxNode:
        node = self._read_signed()
        while True:
            if self.take("*"):
                node = SyntaxNode("*", (node, self._read_signed()))
            elif self.take("/"):
                node = SyntaxNode("/", (node, self._read_signed()))
            elif self._starts_factor():
                node = SyntaxNode("*", (node, self._power()))
            else:
                return node

    def _starts_factor(self) -> bool:
        """True if a factor follows without a sign: 2x, 3(x + 1), x sqrt(2) – but not x2 or 2 3."""
        token = self.next()
        if token in ("(", "{", "[", r"\frac", r"\sqrt"):
            return True
        return token.lstrip("\\").isalpha() and (token not in WORDS or token in FUNCTIONS or token == "pi")

    def _read_signed(self) -> SyntaxNode:
        negative = False
        while self.next() in ("+", "-"):
            negative ^= self.take("-") or not self.take("+")
        node = self._power()
        return SyntaxNode("negate", (node,)) if negative else node

    def _power(self) -> SyntaxNode:
        node = self._atom()
        while self.next() in ("%", "^"):
            if self.take("%"):
                node = SyntaxNode("percent", (node,))
                continue
            self.expect("^")
            node = SyntaxNode("^", (node, self._exponent()))
        return node

    def _exponent(self) -> SyntaxNode:
        """The exponent; 2^3^2 is 2^9."""
        negative = self.take("-")
        node = self._atom()
        if self.take("^"):
            self._deeper()
            node = SyntaxNode("^", (node, self._exponent()))
            self.depth -= 1
        return SyntaxNode("negate", (node,)) if negative else node

    def _read_closed(self, bracket: str) -> SyntaxNode:
        node = self.sum()
        self.expect(bracket)
        return node

    def _atom(self) -> SyntaxNode:
        token = self.next()
        self.position += 1
        if token and token[0] in "0123456789.":
            return self._number(token)
        if token == "(":
            return self._read_closed(")")
        if token in ("{", "["):
            return self._read_closed("}" if token == "{" else "]")
        if token == "|":
            return SyntaxNode("abs", (self._read_closed("|"),))
        if token == r"\frac":
            return SyntaxNode("/", (self._read_braced(), self._read_braced()))
        if token.removeprefix("\\") in FUNCTIONS:
            return self._function(token.removeprefix("\\"))
        if token == "pi":
            return SyntaxNode("symbol", name="pi")
        if token.isalpha():
            return self._letters(token)
        raise Unreadable(f"{token!r} was not expected")

    def _number(self, token: str) -> SyntaxNode:
        node = SyntaxNode("number", number=Fraction(token), name=token)
        if self.next() != r"\frac" or not token.isdecimal():
            return node
        start = self.position
        self.position += 1
        over = SyntaxNode("/", (self._read_braced(), self._read_braced()))
        if all(part.kind == "number" and part.name.isdecimal() for part in over.parts):
            return SyntaxNode("mixed", (node, over))
        self.position = start
        return node

    def _read_braced(self) -> SyntaxNode:
        """The argument of a LaTeX command: `{…}`, or a single digit or letter as in `\\frac12`."""
        if self.take("{"):
            return self._read_closed("}")
        token = self.next()
        if token.isdecimal() and len(token) > 1:
            self.tokens[self.position : self.position + 1] = list(token)
        return self._atom()

    def _letters(self, token: str) -> SyntaxNode:
        """A variable, e, or a product of variables written together."""
        if token in WORDS or not all(letter in self.variables or letter == "e" for letter in token):
            raise Unreadable(f"{token!r} is not a variable of this problem")
        if len(token) > 1:
            self.tokens[self.position - 1 : self.position] = list(token)
        return SyntaxNode("symbol", name=token[0])

    def _function(self, name: str) -> SyntaxNode:
        if name == "sqrt" and self.take("["):
            degree = self._read_closed("]")
            return SyntaxNode("root", (self._read_braced(), degree))
        exponent = self._exponent() if name != "sqrt" and self.take("^") else None
        node = SyntaxNode("ln" if name == "log" else name, (self._argument(name),))
        return node if exponent is None else SyntaxNode("^", (node, exponent))

    def _argument(self, name: str) -> SyntaxNode:
        """`sin 2x` takes the product 2x, `sin(2x)y` and `√2x` only the next factor."""
        self._deeper()
        bracketed = self.next() in ("(", "{", "|")
        node = self._atom() if bracketed or name == "sqrt" else self._power()
        while not bracketed and name != "sqrt" and self._starts_factor() and self.next() not in ("(", *FUNCTIONS):
            node = SyntaxNode("*", (node, self._power()))
        self.depth -= 1
        return node


@lru_cache(maxsize=2048)
def read(text: str, variables: str = "") -> SyntaxNode:
    """The tree of one expression, or Unreadable."""
    if " " in text and "/" in text:
        text = _SPACE_BEFORE_FRACTION.sub(r"\1\\frac{\2}{\3}", text.strip())
    return SyntaxReader(tokens(text), variables).whole()


def evaluate(node: SyntaxNode, calculator: Calculator) -> Value:
    """The exact value of a tree."""
    if node.kind == "number":
        return constant(node.number)
    parts = without_bars(node).parts
    return combine(node, [evaluate(part, calculator) for part in parts], calculator)


def combine(node: SyntaxNode, values: Sequence[Value], calculator: Calculator) -> Value:
    """The value of a tree from those of its parts."""
    if node.kind == "symbol":
        return atom(node.name)
    if node.kind in UNCOMPUTED:
        raise Unreadable(f"{node.kind} is left to the second opinion")
    if len(values) == 1:
        return _UNARY[node.kind](calculator, values[0])
    return _BINARY[node.kind](calculator, *values)


def without_bars(node: SyntaxNode) -> SyntaxNode:
    """ln|u| is read as ln u."""
    if node.kind == "ln" and node.parts[0].kind == "abs":
        return node._replace(parts=node.parts[0].parts)
    return node


def _absolute(calculator: Calculator, value: Value) -> Value:
    number = rational(value)
    if number is None:
        raise Unreadable("the absolute value of something that is not a rational number")
    return constant(number if number >= 0 else -number)


def _nth_root(calculator: Calculator, value: Value, degree: Value) -> Value:
    number = rational(degree)
    if number is None or number.denominator != 1:
        raise Unreadable("a root of a degree that is not whole")
    return calculator.nth_root(value, int(number))


_UNARY: dict[str, Callable[[Calculator, Value], Value]] = {
    "negate": Calculator.negate,
    "percent": lambda calculator, value: calculator.multiply(value, constant(Fraction(1, 100))),
    "abs": _absolute,
    "sqrt": Calculator.root,
    "sin": Calculator.sine,
    "cos": Calculator.cosine,
    "tan": lambda calculator, value: calculator.divide(calculator.sine(value), calculator.cosine(value)),
    "ln": Calculator.logarithm,
    "exp": lambda calculator, value: calculator.power(atom("e"), value),
}
_BINARY: dict[str, Callable[[Calculator, Value, Value], Value]] = {
    "+": Calculator.add,
    "-": Calculator.subtract,
    "*": Calculator.multiply,
    "/": Calculator.divide,
    "^": Calculator.power,
    "mixed": Calculator.add,
    "root": _nth_root,
}
