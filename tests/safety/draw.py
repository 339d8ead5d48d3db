"""Random texts from templates: `{hex:32}` is drawn, what stands between « and » is the secret.

Check digits are computed here by hand, so that the detector's own arithmetic is not its judge.
"""

import base64
import json
import random
import re
import string
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

FIELD = re.compile(r"\{([a-z]\w*)(?::([\w-]+))?\}")
_WORDS = """
    amber anchor apple autumn bakery basket beacon birch bottle branch breeze bridge butter candle canyon carpet castle
    cedar cherry circle cloud clover cobalt copper coral cotton crystal dolphin dragon eagle ember falcon feather fern
    forest garden ginger glacier granite harbor hazel island ivory jacket jasmine kettle lantern lemon marble meadow
    mirror monkey mountain nectar ocean olive orchid otter paper pepper piano pillow planet purple rabbit raven river
    rocket saddle salmon shadow silver spider spring stone summer sunset swordfish thunder tiger timber tulip valley
    velvet violet walnut willow window winter yellow zebra
"""
_OTHER_WORDS = """
    badger blanket bonfire cactus caramel chimney comet corner curtain daisy donkey engine feather fiddle goblin hammer
    igloo jigsaw kitten ladder lobster magnet mitten noodle oyster parrot pebble pigeon pretzel puddle quartz radish
    sandal scooter sparrow squirrel teapot trumpet turnip umbrella vinegar walrus whistle wizard yogurt zipper
"""
_NAMES = "ada alan barbara claude dennis edsger frances grace guido hedy ivan joan karen linus margaret niklaus"
_SURNAMES = "lovelace turing liskov shannon ritchie dijkstra allen hopper rossum lamarr clarke jones wirth hamilton"
WORDS, OTHER_WORDS = _WORDS.split(), _OTHER_WORDS.split()
NAMES, SURNAMES = _NAMES.split(), _SURNAMES.split()
TLDS = ("com", "org", "net", "io", "de", "fr", "co.uk", "dev", "ch", "es")


@dataclass(frozen=True, slots=True)
class Planted:
    """A text and the secrets in it."""

    text: str
    secrets: tuple[str, ...]


Form = str | Callable[["Draw"], str]


def forms(text: str) -> list[Form]:
    """Forms that stand one on a line."""
    return [*text.strip("\n").split("\n")]


class Draw:
    """A random generator of the pieces of templates."""

    def __init__(self, seed: object) -> None:
        self.random = random.Random(str(seed))

    def planted(self, form: Form) -> Planted:
        """The text of a form, and what in it is secret."""
        marked = self.fill(form) if isinstance(form, str) else form(self)
        secrets = tuple(re.findall("«(.*?)»", marked, re.DOTALL))
        assert secrets, f"{form}: nothing in it is secret"
        return Planted(marked.replace("«", "").replace("»", ""), secrets)

    def fill(self, template: str) -> str:
        """The template with every field drawn; an unknown name in braces stays."""
        return FIELD.sub(self._field, template)

    def of(self, alphabet: str, count: int) -> str:
        return "".join(self.random.choices(alphabet, k=count))

    def pick(self, options: Sequence[str]) -> str:
        return self.random.choice(options)

    def _field(self, match: re.Match[str]) -> str:
        name, size = match[1], match[2]
        if name in ALPHABETS:
            low, _, high = (size or "8").partition("-")
            return self.of(ALPHABETS[name], self.random.randint(int(low), int(high or low)))
        made = getattr(self, f"a_{name}", None)
        return match[0] if made is None else made(size) if size else made()

    # -- names ---------------------------------------------------------------------------------------------------------

    def a_word(self) -> str:
        return self.pick(WORDS)

    def a_words(self, count: str) -> str:
        return " ".join(self.pick(WORDS) for _ in range(int(count)))

    def a_user(self) -> str:
        return self.pick(NAMES)

    def a_surname(self) -> str:
        return self.pick(SURNAMES)

    def a_host(self) -> str:
        return f"{self.pick(WORDS)}.{self.pick(WORDS)}.{self.pick(TLDS)}"

    def a_uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def a_password(self) -> str:
        """As people make them: mostly words with something behind, sometimes random, now and then a word alone."""
        kind = self.random.random()
        if kind < 0.3:
            return f"{self.pick(WORDS).title()}{self.random.randint(1, 9999)}{self.pick('!?#$%*')}"
        if kind < 0.55:
            return self.of(string.ascii_letters + string.digits + "!#$%^&*-_+", self.random.randint(10, 16))
        if kind < 0.75:
            return f"{self.pick(WORDS)}-{self.pick(WORDS)}-{self.random.randint(1, 99)}"
        if kind < 0.9:
            swapped = self.pick(WORDS).replace("a", "4").replace("e", "3").replace("o", "0").replace("i", "1")
            return f"{swapped.capitalize()}{self.pick('&!.-_')}{self.random.randint(1, 99)}"
        return self.pick(WORDS)

    def a_chosen(self) -> str:
        """A password that is easily taken for something else: a number, a name of code or of a host, a word."""
        word, other = self.pick(WORDS), self.pick(WORDS)
        makers = (
            lambda: self.of(ALPHABETS["d"], self.random.randint(5, 9)),
            lambda: f"{word}.{other}",
            lambda: f"{word}_{other}{self.random.randint(1, 99)}",
            lambda: f"{word.title()}{other.title()}",
            lambda: f"{word}{self.random.randint(1, 99)}",
            lambda: f"{self.random.randint(10, 99)}{word}{self.pick('!?#')}",
            lambda: self.of(ALPHABETS["base36"], 7),
            lambda: f"{word.upper()}-{self.random.randint(10, 99)}",
            lambda: word,
            lambda: f"Tür{word}{self.random.randint(100, 999)}",
        )
        return self.pick(makers)()

    def a_secret(self) -> str:
        """A password of other makers: leetspeak, two words run together, keyboard walks, letters of other alphabets."""
        word, other = self.pick(OTHER_WORDS), self.pick(OTHER_WORDS)
        year, sign = self.random.randint(1950, 2026), self.pick("!@#$%&*+=?.~")
        makers = (
            lambda: f"{word.title()}{other.title()}{year}",
            lambda: f"{sign}{word}{sign}{year % 100:02d}",
            lambda: f"{word.title()}{sign}{other}",
            lambda: self.of(ALPHABETS["alnum"], 4) + sign + self.of(ALPHABETS["alnum"], 5),
            lambda: self.of(ALPHABETS["base36"], self.random.randint(8, 20)),
            lambda: self.pick(("Qwertz", "1qaz2wsx", "asdf", "zxcvbn", "q1w2e3")) + str(year) + sign,
            lambda: f"{word}_{other}_{year % 100}",
            lambda: f"{self.pick(('Größe', 'пароль', 'Été', 'señal', 'łódź', 'sírová'))}{sign}{year}",
            lambda: self.of(ALPHABETS["d"], self.random.randint(6, 10)),
            lambda: word.title() if self.random.random() < 0.5 else word,
        )
        return self.pick(makers)()

    def a_urlsecret(self) -> str:
        return quote(self.a_secret(), safe="!$*")

    def a_mac(self, sign: str = ":") -> str:
        """A network card's address, of a maker's range."""
        pairs = [
            self.pick(("00", "3c", "a4", "f0", "b8", "dc")),
            *(f"{self.random.randrange(256):02x}" for _ in range(5)),
        ]
        return sign.join(pairs)

    def a_urlpassword(self) -> str:
        return quote(self.a_password(), safe="!$*")

    def a_basic(self) -> str:
        return base64.b64encode(f"{self.pick(NAMES)}:{self.a_password()}".encode()).decode()

    # -- tokens --------------------------------------------------------------------------------------------------------

    def a_jwt(self, alg: str = "HS256") -> str:
        header = {"typ": "JWT", "alg": alg} | ({"kid": self.of(string.hexdigits.lower(), 8)} if "S2" not in alg else {})
        claims = {"sub": self.of(string.digits, 10), "name": self.pick(NAMES), "iat": self.random.randint(1, 1 << 31)}
        parts = [_base64url(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims)]
        return ".".join([*parts, "" if alg == "none" else self.of(ALPHABETS["b64url"], 43 if alg == "HS256" else 342)])

    def a_pem(self, kind: str = "RSA") -> str:
        name = f"{kind.replace('_', ' ')} PRIVATE KEY".strip()
        lines = [self.of(ALPHABETS["b64"], 64) for _ in range(self.random.randint(3, 25))]
        return "\n".join(
            [f"-----BEGIN {name}-----", *lines, self.of(ALPHABETS["b64"], 22) + "==", f"-----END {name}-----"]
        )

    # -- numbers -------------------------------------------------------------------------------------------------------

    def a_card(self, brand: str = "visa") -> str:
        prefix, length = self.pick(CARDS[brand]).split("/")
        body = prefix + self.of(string.digits, int(length) - len(prefix) - 1)
        return body + luhn(body)

    def a_iban(self, country: str = "DE") -> str:
        body = self.fill(IBANS[country])
        number = int("".join(str(int(letter, 36)) for letter in f"{body}{country}00"))
        return f"{country}{98 - number % 97:02d}{body}"

    def a_ipv4(self) -> str:
        """A public address."""
        first = self.pick(["23", "34", "46", "52", "62", "78", "81", "93", "104", "139", "151", "178", "185", "212"])
        return ".".join([first, *(str(self.random.randint(1, 254)) for _ in range(3))])

    def a_ipv6(self) -> str:
        """A public address."""
        groups = [self.pick(["2a01", "2a02", "2600", "2607", "2804", "2400"]), *(self._group() for _ in range(7))]
        return ":".join(groups)

    def a_day(self) -> str:
        return f"{self.random.randint(1, 28):02d}"

    def a_month(self) -> str:
        return f"{self.random.randint(1, 12):02d}"

    def _group(self) -> str:
        return f"{self.random.randint(1, 0xFFFF):x}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def luhn(body: str) -> str:
    """The check digit after a body."""
    total = 0
    for place, digit in enumerate(reversed(body)):
        doubled = int(digit) * (2 - place % 2)
        total += doubled - 9 if doubled > 9 else doubled
    return str(-total % 10)


def weighted(body: str, weights: Sequence[int], modulus: int) -> int:
    """The weighted sum of digits, modulo."""
    return sum(int(digit) * weight for digit, weight in zip(body, weights, strict=True)) % modulus


def grouped(number: str, sizes: Sequence[int], sign: str = " ") -> str:
    """The number in groups of these sizes; the last size is repeated."""
    parts, at = [], 0
    sizes = list(sizes)
    while at < len(number):
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        parts.append(number[at : at + size])
        at += size
    return sign.join(parts)


ALPHABETS = {
    "alnum": string.ascii_letters + string.digits,
    "hex": "0123456789abcdef",
    "hexupper": "0123456789ABCDEF",
    "d": string.digits,
    "n": "123456789",
    "m": "23456789",
    "letters": string.ascii_letters,
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "base36": string.ascii_lowercase + string.digits,
    "upper36": string.ascii_uppercase + string.digits,
    "base32": string.ascii_uppercase + "234567",
    "base58": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
    "bech32": "qpzry9x8gf2tvdw0s3jn54khce6mua7l",
    "b64": string.ascii_letters + string.digits + "+/",
    "b64url": string.ascii_letters + string.digits + "-_",
}
CARDS = {
    "visa": ["4/16"],
    "mastercard": [*(f"{prefix}/16" for prefix in range(51, 56)), "2221/16", "2720/16", "2500/16"],
    "amex": ["34/15", "37/15"],
    "discover": ["6011/16", "65/16"],
    "jcb": ["3528/16", "3566/16"],
    "diners": ["300/14", "36/14", "38/14"],
    "unionpay": ["62/16", "62/19"],
    "maestro": ["5018/16", "6304/16"],
}
IBANS = {
    "DE": "{d:18}", "GB": "{upper:4}{d:14}", "FR": "{d:10}{upper36:11}{d:2}", "NL": "{upper:4}{d:10}", "ES": "{d:20}",
    "IT": "{upper:1}{d:10}{upper36:12}", "CH": "{d:5}{upper36:12}", "AT": "{d:16}", "BE": "{d:12}", "PL": "{d:24}",
    "SE": "{d:20}", "NO": "{d:11}", "DK": "{d:14}", "PT": "{d:21}", "SA": "{d:2}{upper36:18}", "IE": "{upper:4}{d:14}",
    "TR": "{d:5}0{upper36:16}", "FI": "{d:14}",
}  # fmt: skip
