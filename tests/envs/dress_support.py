"""Answers and commands as chat models write them: the same content in random dress, right or wrong.

A dress is drawn from a seed and composed of independent layers, so that a right and a wrong answer can wear the same.
"""

import json
import re
from fractions import Fraction
from random import Random

from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import latex
from loomrl.envs.math.syntax import read

MARKS = ("{}",) * 4 + ("**{}**", "*{}*", "__{}__", "`{}`", "***{}***", "**`{}`**", "```\n{}\n```", "```text\n{}\n```")
MATH_MARKS = (
    *MARKS, "${}$", "$${}$$", r"\({}\)", r"\[{}\]", r"\boxed{{{}}}", r"$\boxed{{{}}}$", r"**$\boxed{{{}}}$**",
    r"**${}$**", r"$$\boxed{{{}}}$$", r"\mathbf{{{}}}", r"$\displaystyle {}$",
)  # fmt: skip
LEADS = ("",) * 6 + (
    "= ", "Answer: ", "Final answer: ", "**Answer:** ", "**Final Answer:** ", "The answer is ", "The answer is: ",
    "The final answer is ", "So the answer is ", "Therefore, the answer is ", "Thus, the answer is: ", "Result: ",
    "The result is ", "Hence ", "So, ", "### Answer\n", "**Final answer**: ", "answer: ", "ANSWER: ", "It is ",
    "We get ",
)  # fmt: skip
TAILS = ("",) * 5 + (".", " .", "!", "\n", "  ", ".\n")
OPENINGS = (
    "", "", "Let me think.\n", "First I look at what is given, then I work it out.\n\n",
    "**Reasoning**\n\nStep by step.\n",
    "- The first step is easy.\n- So is the second.\n\n",
)  # fmt: skip
SPACES = ("\u2009", "\u202f", "\u00a0", "\u200a")


def wrap_answer(text, seed, *, marks=MARKS, leads=LEADS, loud=True):
    """`text` with words before it, marks of emphasis around it and a full stop behind it."""
    rng = Random(f"answer {seed}")
    lead = rng.choice(leads)
    mark = rng.choice(marks)
    tail = rng.choice(TAILS)
    if tail == "!" and not loud and " is " not in lead:
        tail = "."  # 5! is a number
    if "```" in mark and ("\n" not in lead or tail.strip()):
        lead = ""
        tail = ""
    if "\n" in text:
        text = _list(text, rng)
        mark = rng.choice(("{}", "```\n{}\n```"))
        tail = ""
        lead = rng.choice(("", "**Answer:**\n", "Answer:\n")) if mark == "{}" else ""
    inside = rng.random() < 0.3 and "\n" not in lead and "*" not in lead + mark and "`" not in mark
    bare = mark == "{}" or "*" in mark or "_" in mark
    if inside and bare:
        return mark.format(f"{lead}{text}{tail.rstrip()}")
    return f"{lead}{mark.format(text)}{tail}"


def _list(text, rng):
    """Lines as a list, with bullets or numbers, some of them bold."""
    bullet, mark, tail = (
        rng.choice(("", "", "- ", "* ", "• ", "{}. ")),
        rng.choice(("{}", "{}", "**{}**")),
        rng.choice(("", ".")),
    )
    lines = enumerate(text.split("\n"), start=1)
    return "\n".join(bullet.format(number) + mark.format(line) + tail for number, line in lines)


def add_tags(answer, seed):
    """A reply with this answer between tags."""
    rng = Random(f"tags {seed}")
    around = rng.choice(("{}", "{}", "{}", " {} ", "\n{}\n"))
    after = rng.choice(("", "", "", "\n", "\n\nI hope this helps!"))
    return f"{rng.choice(OPENINGS)}<answer>{around.format(answer)}</answer>{after}"


# Math

LABELS = {
    "derivative": (
        "f'(x) = ", "y' = ", "dy/dx = ", "f′(x) = ", "f’(x) = ", r"\frac{dy}{dx} = ", "f' = ", r"f^{\prime}(x) = ",
        "d/dx f(x) = ", "df/dx = ", r"\frac{d}{dx} f(x) = ", "f'(x)=", "The derivative is ",
        "The derivative is f'(x) = ",
        "Derivative: ", "the derivative of f(x) is ",
    ),
    "integral": (
        "F(x) = ", "∫ f(x) dx = ", r"\int f(x)\,dx = ", "An antiderivative is ", "The integral is ", "F(x)=", "y = ",
        "An antiderivative is F(x) = ", "Antiderivative: ", "The indefinite integral is: ",
    ),
    "composition": ("f(g(x)) = ", "(f ∘ g)(x) = ", r"(f \circ g)(x) = ", "h(x) = ", "The composition is "),
    "probability": ("P = ", "P(A) = ", "The probability is ", "P(A|B) = ", "Probability: ", "p = "),
    "expectation": ("E(X) = ", "E[X] = ", "The expected value is ", "μ = "),
    "mean": ("The mean is ", "x̄ = ", "Mean = ", r"\bar{x} = "),
    "median": ("The median is ", "Median = "),
    "variance": ("The variance is ", "σ² = ", "Var(X) = ", "s^2 = ", r"\sigma^2 = "),
    "limit": ("The limit is ", r"\lim_{x \to 2} = ", "L = ", "lim = ", "Limit: "),
    "area": ("A = ", "The area is ", "Area = ", "The enclosed area is "),
    "length": ("c = ", "The length is ", "d = ", "AB = ", "|AB| = ", "Length = ", "h = "),
    "volume": ("V = ", "The volume is ", "Volume = "),
    "angle": ("α = ", "The angle is ", "∠C = ", "angle = ", r"\angle ABC = ", r"\alpha = "),
    "line": ("The line is ", "The equation is ", "Equation: ", "The equation of the line is: ",
    "The tangent line is "),
    "expanded": ("The expanded form is ", "f(x) = ", "It equals "),
    "factored": ("The factored form is ", "f(x) = ", "p(x) = ", "Factored: "),
    "solutions": ("The solutions are ", "Solutions: ", "The roots are "),
    "system": ("The solution is ", "Solution: "),
    "interval": ("The solution is ", "The solution set is ", "Solution: "),
    "price": ("The price is ", "Price = ", "It costs ", "The original price was "),
    "number": ("n = ", "N = ", "The value is ", "The total is ", "Sum = ", "Total: ", "It equals "),
}  # fmt: skip
UNIT_WORDS = {
    "cm": (" cm", r" \text{ cm}", r"\,\mathrm{cm}", " centimeters"),
    "cm^2": (" cm²", " cm^2", " square centimeters", r"\text{ cm}^2", r"\ \mathrm{cm}^{2}"),
    "cm^3": (" cm³", " cm^3", " cubic centimeters", r"\,\text{cm}^3"),
    "degrees": ("°", " degrees", r"^\circ", r"^{\circ}"),
    "dollars": (" dollars", " USD"),
}
UNKNOWN = "xyztn"
_POWER = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_VULGAR = {"1/2": "½", "1/3": "⅓", "2/3": "⅔", "1/4": "¼", "3/4": "¾", "1/5": "⅕", "5/8": "⅝"}


def wrap_math(text, answer, family, seed):
    """An answer of Math: another notation, names and units, then words and marks."""
    rng = Random(f"math {seed}")
    named = _name(_notation(text, answer, rng), answer, rng)
    leads = LEADS
    label = ""
    if rng.random() < 0.5 and not (answer.kind in ("set", "tuple") and "=" in named):
        label = rng.choice([each for each in LABELS[_topic(family, answer)] if not answer.names or len(each) > 4])
        is_words = label.rstrip(": ").replace("'", "").replace(" ", "").isalpha()
        leads = ("",) if is_words or rng.random() < 0.5 else LEADS
        leads = tuple(lead for lead in leads if lead != "= ")
    if " = " in named or "=" in named or "<" in named or "in " in named:
        leads = tuple(lead for lead in leads if lead != "= ")
    if label and not label.endswith("= "):
        return wrap_answer(named, seed, marks=MATH_MARKS, leads=(label,), loud=False)
    return wrap_answer(label + named, seed, marks=MATH_MARKS, leads=leads, loud=False)


def _topic(family, answer):
    kinds = {"set": "solutions", "tuple": "system", "interval": "interval", "equation": "line"}
    if answer.kind in kinds:
        return kinds[answer.kind]
    units = {"cm": "length", "cm^2": "area", "cm^3": "volume", "degrees": "angle", "dollars": "price"}
    name = family.partition(".")[2]
    named = {
        "derivative": "derivative", "integral": "integral", "composition": "composition", "expand": "expanded",
        "factor": "factored", "probability": "probability", "conditional": "probability",
        "expectation": "expectation",
        "mean": "mean", "median": "median", "variance": "variance", "limit": "limit", "area": "area",
        "coordinates": "area",
    }  # fmt: skip
    return units.get(answer.unit) or named.get(name, "number")


def _notation(text, answer, rng):
    """The same mathematics in LaTeX, with typographic signs, or as it is."""
    style = rng.choice(("plain", "plain", "latex", "signs", "signs", "thousands"))
    if style == "latex" and answer.kind in ("value", "antiderivative"):
        return latex(read(text, answer.variables + "C")).replace(r"\cdot", rng.choice((r"\cdot", r"\times", r"\,")))
    if style == "signs":
        text = re.sub(r"\^\((-?\d+)\)|\^(\d+)", lambda found: (found[1] or found[2]).translate(_POWER), text)
        if rng.random() < 0.5 and text in _VULGAR:
            return _VULGAR[text]
        text = re.sub(r"(?<![\d/.])(\d+)/(\d+)(?![\d/.])", rf"\1{rng.choice('⁄∕/')}\2", text)
        text = text.replace("-inf", "-∞").replace("inf", "∞").replace(" U ", " ∪ ")
        return text.replace("-", rng.choice("-−–")).replace("*", rng.choice("·×⋅*"))
    if style == "thousands" and re.fullmatch(r"-?\d{4,}", text):
        return f"{int(text):,}".replace(",", rng.choice((",", r"\,", "{,}", *SPACES)))
    if style == "thousands":
        return text.replace(" ", rng.choice(SPACES))
    return text


def _name(text, answer, rng):
    """With what the kind of answer has around it: unknowns, `+ c`, a unit."""
    if answer.kind == "antiderivative":
        return text + rng.choice(("", " + C", " + c", "+c", " + K", " + C, where C is a constant", " + constant"))
    if answer.kind == "interval":
        return rng.choice(("{}", "{}", "x ∈ {}", "x in {}", r"x \in {}", "x ∈ {}")).format(text)
    if answer.kind == "set":
        return _solutions(text.split(", "), answer, rng)
    if answer.kind == "tuple":
        values = text.split(", ")
        if len(answer.names) == len(values) and rng.random() < 0.5:
            pairs = [f"{name} = {value}" for name, value in zip(answer.names, values, strict=True)]
            return rng.choice((", ", " and ", "; ", "\n", ",\n", r", \quad ")).join(pairs)
        if len(answer.names) == len(values) and rng.random() < 0.3:
            return f"({', '.join(answer.names)}) = ({', '.join(values)})"
        return rng.choice(("({})", "({})", "{}")).format(", ".join(values))
    if rng.random() < 0.1 and text.isdecimal() and not answer.names:
        return f"{int(text) - 1} + 1 = {text}"
    if rng.random() < 0.1 and ("√" in text or "π" in text) and answer.form is not Form.ANY and not answer.variables:
        return f"{text} {rng.choice(('≈', chr(92) + 'approx'))} {rng.randint(1, 99)}.{rng.randint(1, 99)}"
    if len(answer.names) == 1 and rng.random() < 0.5:
        text = f"{answer.names[0]}{rng.choice((' = ', '=', ' = '))}{text}"
    if answer.unit and rng.random() < 0.6:
        return text + rng.choice(UNIT_WORDS[answer.unit])
    return text


def _solutions(values, answer, rng):
    name = answer.names[0] if answer.names else "x"
    rng.shuffle(values)
    style = rng.choice(("list", "set", "named", "subscript", "subscript", "underscore", "in"))
    joint = rng.choice((", ", " and ", " or ", "; ", ", and ", "\n"))
    if style == "set":
        return f"{{{', '.join(values)}}}"
    if style == "in":
        return f"{name} ∈ {{{', '.join(values)}}}"
    if style == "list" or (style != "named" and len(values) == 1):
        return (joint if joint != "\n" else ", ").join(values)
    if style == "named":
        return joint.join(f"{name} = {value}" for value in values)
    numbers = map(str, range(1, len(values) + 1))
    if style == "subscript":
        below = [n.translate(_SUBSCRIPT) for n in numbers]
    else:
        below = [rng.choice(("_{}", "_{{{}}}")).format(n) for n in numbers]
    return joint.join(f"{name}{n} = {value}" for n, value in zip(below, values, strict=True))


def nearby(text, rng):
    """The text with one of its numbers changed a little."""
    found = list(re.finditer(r"\d+(?:\.\d+)?", text))
    if not found:
        return f"{text} + 1" if text else "1"
    chosen = rng.choice(found)
    value = Fraction(chosen[0]) + rng.choice((1, 1, 2, 10))
    shown = str(value) if value.denominator == 1 else f"{float(value):.10g}"
    return text[: chosen.start()] + shown + text[chosen.end() :]


# Commands

BULLETS = ("",) * 6 + ("- ", "* ", "• ", "  ", "    ", "\t", "> ", "1. ", "- [ ] ", "### ")
COMMAND_MARKS = (
    "{verb}: {argument}", "{verb}: {argument}", "{verb}: {argument}", "**{verb}:** {argument}",
    "**{verb}**: {argument}", "**{verb}: {argument}**", "`{verb}: {argument}`", "*{verb}:* {argument}",
    "{verb}:{argument}", "{verb} : {argument}",
    "__{verb}:__ {argument}", "**`{verb}: {argument}`**", "{verb}: **{argument}**", "{verb}: `{argument}`",
    "{verb}:  {argument}", "{verb}:\n{argument}",
)  # fmt: skip
ALONE = ("{verb}:", "{verb}:", "**{verb}:**", "`{verb}:`", "{VERB}", "**{VERB}**")
CASES = (str, str, str.capitalize, str.lower)
CLOSINGS = ("", "", "", "\n", "\n\nThat is my choice.", "\n\n*This follows from what was said.*")


def wrap_commands(text, seed, verbs):
    """The commands of `text`, one a line, each in the same dress; other lines stay."""
    rng = Random(f"command {seed}")
    bullet = rng.choice(BULLETS)
    marks = rng.choice(COMMAND_MARKS)
    case = rng.choice(CASES)
    text = "\n".join(_vary(line, rng) for line in text.split("\n"))
    alone = rng.choice(ALONE)
    tail = rng.choice(("", "", "", "."))
    fenced = rng.random() < 0.1
    lines = [line.partition(": ") if ": " in line else line.partition(":") for line in text.split("\n")]
    if sum(verb in verbs for verb, _, _ in lines) > 1:
        marks = marks.replace("\n", " ")
    body = "\n".join(
        bullet + (marks if argument else alone).format(verb=case(verb), VERB=verb, argument=_end(verb, argument, tail))
        if colon and verb in verbs
        else f"{verb}{colon}{argument}"
        for verb, colon, argument in lines
    )
    if fenced:
        body = f"```\n{body}\n```"
    return f"{rng.choice(OPENINGS)}{body}{rng.choice(CLOSINGS)}"


def _vary(line, rng):
    """The content of a command in another form: a list over several lines, colons for equals signs, a question."""
    verb, _, argument = line.partition(": ")
    if verb == "SOLVE" and ", " in argument and rng.random() < 0.2:
        bullet = rng.choice(("{}. ", "{}) ", "- ", "• ", "House {}: ", "{}. **"))
        items = enumerate(argument.split(", "), start=1)
        return "SOLVE:\n" + "\n".join(bullet.format(number) + item + "*" * bullet.count("*") for number, item in items)
    if verb in ("ANSWER", "OFFER", "RESOLVE") and "=" in argument and rng.random() < 0.2:
        return f"{verb}: {argument.replace('=', rng.choice((': ', ' = ', ':')))}"
    return f"{line}?" if verb == "ASK" and rng.random() < 0.2 else line


def _end(verb, argument, tail):
    return argument if verb == "SAY" else argument + tail


# Tools and code


def wrap_call(text, seed):
    """A call of a tool: fenced, without its tag, `parameters` for `arguments`, over several lines."""
    rng = Random(f"call {seed}")
    call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    key = rng.choice(("arguments", "arguments", "parameters"))
    shown = json.dumps({"name": call["name"], key: call["arguments"]}, indent=rng.choice((None, None, 2)))
    around = rng.choice(
        (
            "<tool_call>{}</tool_call>", "<tool_call>\n{}\n</tool_call>", "<tool_call>```json\n{}\n```</tool_call>",
            "```json\n{}\n```", "```tool_call\n{}\n```", "```\n{}\n```", "```json\n<tool_call>{}</tool_call>\n```",
            "<tool_call>\n```json\n{}\n```\n</tool_call>", "~~~json\n{}\n~~~",
        )
    )  # fmt: skip
    return f"{rng.choice(('', 'I call a tool.', 'Next:'))}\n{around.replace('{}', shown)}{rng.choice(('', chr(10)))}"


def wrap_code(text, name, seed, *, classes):
    """A block of code: another fence, blanks before it, the function as the method of a class."""
    rng = Random(f"code {seed}")
    code = text.removeprefix("```python\n").removesuffix("\n```")
    if classes and rng.random() < 0.4 and code.startswith(f"def {name}("):
        code = _in_class(code, name, rng)
    fence = rng.choice(("```", "```", "~~~", "````", "~~~~"))
    language = rng.choice(("python", "python", "py", "Python", "python3", "", " python"))
    indent = rng.choice(("", "", "  "))
    block = "\n".join(indent + line if line else line for line in [fence + language, *code.split("\n"), fence])
    return f"{rng.choice(OPENINGS)}{block}{rng.choice(('', chr(10), ' ', chr(10) * 2 + 'It runs in linear time.'))}"


def _in_class(code, name, rng):
    static = rng.random() < 0.5
    head = f"    @staticmethod\n    def {name}(" if static else f"    def {name}(self, "
    body = "\n".join("    " + line if line else line for line in code.split("\n")[1:])
    first = code.split("\n")[0].removeprefix(f"def {name}(")
    alias = rng.choice((f"{name} = Solution.{name}" if static else f"{name} = Solution().{name}",))
    return f"class Solution:\n{head}{first}\n{body}\n\n\n{alias}"
