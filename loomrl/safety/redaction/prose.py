"""Codes, logins and phrases as people write them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from loomrl.safety.assignment import is_stub, promise_of
from loomrl.safety.placeholder import is_placeholder
from loomrl.safety.randomness import is_wordy
from loomrl.safety.redaction.finding import ContextRule, Detection, ScannedText


def _is_quoted(value: str) -> bool:
    """True for a password in quotes: no label, no name of a field."""
    return value.lower() not in COMMON and not _LABELLED.search(value) and promise_of(value) is None


_LABELLED = re.compile(r"\b(?:the|your|a|an|is|are|must|or|and|for|of|not|password|field|please)\b", re.IGNORECASE)


def is_no_sentence(value: str) -> bool:
    """True for words without those that join a sentence."""
    return not _LABELLED.search(value)


def is_mixed(value: str) -> bool:
    """True for more than letters, or more than a word: what is no part of a sentence."""
    bare = value.rstrip(".,;:!?")
    return len(bare) >= 4 and not bare.replace("-", "", 1).isalpha()


_SAID = (
    r"""(?:["'“”„«`](?P<secret>[^\s"'”“«»`][^"'”“«»`\n]{2,80})["'”“»`]"""
    r"""|(?P<word>[^\s"'“”„«`(\[{<][^\s"'“”„«`]{3,79}))"""
)
_COMMON_WORDS = """
    wrong incorrect invalid required needed missing empty short long weak strong stored hashed encrypted expired changed
    reset correct valid optional secret hidden visible safe unsafe secure insecure case-sensitive unknown known set
    blank good bad fine late easy hard here there gone lost stolen leaked old new yours mine different identical same
    falsch richtig korrekt kurz lang leer sicher unsicher geändert gespeichert verschlüsselt vergessen bekannt geheim
    gleich anders abgelaufen ungültig gültig erforderlich nötig weg schwach stark neu alt incorrecte requis obligatoire
    oublié modifié trop invalide expiré correct valide vide court incorrecta obligatoria olvidada demasiado válida vacía
    corta segura débil caducada sbagliata errata obbligatoria scaduta valida vuota corta sicura debole dimenticata not
    too very also from for in with on at by or and as via into through when if which to of is are was fields field
    manager reset authentication policy protected based prompt string file option parameter value values pair pairs box
    combination entry again before after now still always never only just already being what that this nothing
    everything something request command using information details settings updating updates utility program user users
    account login name length strength expiry hash hashes hashing database server line row column form page screen
    dialog validity utente cifrata corretta enregistré locked
"""
COMMON = frozenset(_COMMON_WORDS.split())
"""Words after "the password is" that are none."""


_MENTION = re.compile(
    r"\b(?:pass[ _-]?(?:word|phrase|code)|passwd|passwort|kennwort|pwd?|mot de passe|contrase[nñ]a|wachtwoord"
    r"|senha|parola d'ordine|пароль)\b",
    re.IGNORECASE,
)
_MENTION_TEXT = """
    password passphrase passcode pass passwd passwort kennwort pwd pw mot contraseña contrasena wachtwoord senha parola
    пароль
"""
MENTIONS = frozenset(_MENTION_TEXT.split())
"""The first words of mentions."""
_OF = r"\ (?:for|of|to|on|from|für|von|zum|zur|pour|du|de|para|per|del|della)\ [^\n.:;,]{1,40}?"


@dataclass(frozen=True, slots=True)
class _Saying:
    """The words before and behind a mention between which a password stands; in a loose one it may be a word."""

    before: re.Pattern[str] | None
    behind: re.Pattern[str]
    is_loose: bool


def _saying(before: str, behind: str, *, is_loose: bool = False) -> _Saying:
    first = re.compile(rf"{before}\Z", re.IGNORECASE) if before else None
    return _Saying(first, re.compile(behind, re.IGNORECASE | re.MULTILINE), is_loose)


_PASSING = r"(?:provisoire|temporaire|actuel|temporal|provisional|provvisoria|temporanea|temporary|today|now)"
_SAYINGS = (
    _saying(
        r"\b(?:my|our|his|her|their|your|the|mein|unser|das|mon|notre|le|la|mi|nuestra|il|mia)\ (?:[\w-]+\ ){0,2}",
        rf"(?:{_OF})?(?:,\ (?:which|die|das|qui|que|che))?\ (?:is|was|ist|lautet|war|est|es|è|é)(?:\ now)?:?\s{{1,4}}"
        rf"{_SAID}",
    ),
    _saying("", rf"(?:{_OF}\ is|['’]s)\ {{1,2}}{_SAID}"),
    _saying("", rf"{_OF}\ ?:\s{{1,4}}{_SAID}", is_loose=True),
    _saying("", rf"(?:\ {_PASSING})?\ ?:\ {{1,4}}{_SAID}(?=\s*$)", is_loose=True),
    _saying("", rf"\ (?:lautet|reads):?\ {{1,4}}{_SAID}", is_loose=True),
    _saying("", rf"[^\n]{{0,80}}?;?\ (?:mine|yours|hers|theirs|meines|das\ meine)\ (?:is|was|ist):?\ {_SAID}"),
    _saying(
        r"\b(?:user(?:name)?|login|log\ in|sign\ in|account)\b[^\n.]{0,60}?(?:\b(?:and|with|und|et|y|e)|,)\ "
        r"(?:the\ |a\ |das\ |le\ )?",
        rf"\ {_SAID}",
    ),
    _saying(
        r"\b(?:change[ds]?|set|reset|updated?)\ (?:my|the|your|our|his|her)\ (?:[\w-]+\ )?",
        rf"\ (?:from\ \S+\ )?to\ (?!(?:the|a|an|something|be|log|get|access)\b){_SAID}",
        is_loose=True,
    ),
    _saying(
        r"\b(?:das|dein|mein|euer)\ ", rf"\ (?:auf|in)\ {_SAID}(?=\ (?:geändert|gesetzt|ändern|setzen))", is_loose=True
    ),
    _saying(
        r"\b(?:use|enter|type|try|with|the|my|your|his|her|our|das|le|la|il|el)\ "
        r"(?:(?:the|old|new|current|temporary|default|same|following)\ ){0,2}",
        rf"\ {_SAID}",
    ),
    _saying(
        rf"\b(?:use|using|enter|entering|type|typing|try|put|chose|have)\ {_SAID}\ (?:as|for)\ (?:the|your|my|a)\ ",
        "",
        is_loose=True,
    ),
    _saying("", rf"(?:(?<=\bpw)|(?<=\bpwd))\ {_SAID}(?=\s*$)"),
    _saying(
        "", r"\ {1,4}(?P<secret>)?(?P<word>(?-i:(?=\S{0,40}\d)(?=\S{0,40}[a-z])(?=\S{0,40}[A-Z]))[^\s\"'(<]{8,80})"
    ),
)
_TYPE = re.compile(r"(?:[A-Z][a-z]+){2,}\Z|[\w:]+[<(\[]")
_REACH = 120
"""Characters before and behind a mention that are looked at."""


def find_said(page: ScannedText) -> Iterator[Detection]:
    """Values called a password: with more than letters in them, or at the end of a sentence."""
    for mention in filter(None, (_MENTION.match(page.text, place) for place in page.places(MENTIONS))):
        for saying in _SAYINGS:
            yield from _meant(page.text, mention, saying)


def _is_end(text: str, start: int, end: int) -> bool:
    """True at the end of a text, a paragraph, or a short line: where no wrapped sentence goes on."""
    if not _AT_END.match(text, end):
        return False
    return (
        text.find("\n", end) < 0
        or end - max(text.rfind("\n", 0, start), start - 60) < 60
        or _BLANK.match(text, end) is not None
    )


_AT_END = re.compile(r"[ \t]{0,8}(?:\r?\n|\Z)")
_BLANK = re.compile(r"[ \t]{0,8}\r?\n[ \t]{0,8}\r?\n")


def _meant(text: str, mention: re.Match[str], saying: _Saying) -> Iterator[Detection]:
    behind = saying.behind.match(text, mention.end())
    if behind is None:
        return
    found = behind
    if saying.before is not None:
        before = saying.before.search(text, max(0, mention.start() - _REACH), mention.start())
        if before is None:
            return
        found = before if "word" in saying.before.groupindex else behind
    group = "secret" if found["secret"] else "word"
    value = found[group] if group == "secret" else found[group].rstrip(".,;:!?)")
    if not value or is_placeholder(value) or is_stub(value):
        return
    is_end = found[group] != value or _is_end(text, mention.start(), found.end())
    is_plain = value.isalpha() and value.lower() not in COMMON and not _TYPE.match(value)
    if _TYPE.match(value) or (is_plain and found[group].endswith((",", ";"))):  # of a declaration
        return
    if (group == "secret" and _is_quoted(value)) or is_mixed(value) or (is_plain and (saying.is_loose or is_end)):
        yield Detection(found.start(group), found.start(group) + len(value), "password")


_LOGINS = (
    *(
        "login",
        "creds",
        "cred",
        "credentials",
        "user",
        "username",
        "account",
        "zugangsdaten",
        "anmeldedaten",
        "identifiants",
    ),
    *(
        "credenciales",
        "credenziali",
        "credenciais",
        "inloggegevens",
        "inloggningsuppgifter",
        "tunnukset",
        "логин",
        "доступы",
    ),
)
_LOGIN = (
    r"\b(?:login|creds?|credentials|user(?:name)?|account|zugangsdaten|anmeldedaten|identifiants|credenciales|credenziali"
    r"|credenciais|inloggegevens|inloggningsuppgifter|tunnukset|логин|доступы)\b"
)
_CODES = (
    *("pin", "passcode", "otp", "tan", "verification", "security", "access", "door", "gate", "entry", "unlock"),
    *("confirmation", "login", "secret", "alarm", "code", "código", "codice", "türcode", "zugangscode", "torcode"),
    *("zahlencode", "sicherheitscode", "bestätigungscode", "zugriffscode"),
)

_CODE = (
    r"\b(?:\ (?:of|for|to)\ [\w ]{1,30}?)?"
    r"\s{0,2}(?:is|ist|:|=|est|es)?\s{1,2}(?P<secret>(?=[A-Za-z#*]{0,8}[0-9])[A-Za-z0-9#*]{4,12})\b[#*]?"
)
PART_OF_KEY = re.compile(
    r"\b(?:first|second|last|1st|2nd|part|half|rest|beginning|erste[rn]?|zweite[rn]?|teil|hälfte)\b[^\n]{0,30}\b(?:key|token|secret"
    r"|schlüssels?)\b[^\n:=]{0,16}(?::|=|\bis|\bist)\s{1,3}(?P<secret>[^\s,;\"']{4,200})",
    re.IGNORECASE,
)
"""One of the parts in which a key is told."""
LOGINS: tuple[ContextRule, ...] = (
    ContextRule(
        kind="key",
        words=("first", "second", "last", "part", "half", "rest", "beginning", "teil", "hälfte"),
        form=PART_OF_KEY,
        check=lambda value: is_mixed(value) and not is_wordy(value),
    ),
    ContextRule(signs=("one-",), form=re.compile(rf"\bone-time[ -](?:code|password|pin){_CODE}", re.IGNORECASE)),
    ContextRule(
        words=_CODES,
        form=re.compile(
            r"\b(?:pin(?:[ -](?:code|number))?|passcode|otp|tan|(?:verification|security|access|door|gate"
            r"|entry|unlock|confirmation|login|secret|alarm)[ -](?:code|password|pin)|code\ d['’](?:accès|entrée)"
            r"|(?:tür|zugangs|tor|zahlen|sicherheits|bestätigungs|zugriffs)code"
            r"|código\ de\ (?:acceso|seguridad|verificación)"
            rf"|codice\ di\ (?:accesso|sicurezza|verifica)){_CODE}",
            re.IGNORECASE,
        ),
    ),
    ContextRule(
        words=("pin", "pincode", "pinkod", "pinkode", "geheimzahl", "пин", "пінкод", "pinul"),
        form=re.compile(
            r"\b(?:pin(?:-?(?:code|kod[e]?))?|geheimzahl|пин(?:-?код)?)(?:['’]s)?"
            r"(?:\ (?:[^\W\d_]|['’]){1,14}){0,6}?\s?[:=]?\s{1,2}(?P<secret>\d{4,8})\b(?![-./:,]\d|\s?(?:%|mm|px|v)\b)",
            re.IGNORECASE,
        ),
    ),
    ContextRule(
        words=_LOGINS,
        form=re.compile(
            rf"{_LOGIN}[ \t]{{0,2}}(?:are|is|sind|son|sono|:|=)[ \t]{{1,3}}[\w.@+-]{{1,60}}"
            r"(?:\s{1,2}/\s{1,2}|[:/])(?P<secret>[^\s/]{4,60})(?=\s|$)",
            re.IGNORECASE,
        ),
        check=lambda value: not value.isdigit(),
    ),
    ContextRule(
        words=_LOGINS,
        form=re.compile(
            rf"{_LOGIN}[ \t]{{1,3}}[\w.@+-]{{1,60}}(?:\s{{1,2}}/\s{{1,2}}|:)(?P<secret>[^\s/]{{4,60}})(?=\s|$)",
            re.IGNORECASE,
        ),
        check=lambda value: is_mixed(value) and not value.isdigit(),
    ),
    ContextRule(
        words=("try", "use", "with"),
        form=re.compile(
            r"\b(?:try|use|with)\ [\w.-]{2,40}:(?P<secret>[^\s:/(\[{<][^\s:/]{3,60})(?=[\s,]|$)", re.IGNORECASE
        ),
        check=lambda value: is_mixed(value) and any(map(str.isdigit, value)) and not value.isdigit(),
    ),
    ContextRule(
        words=("user", "username", "login"),
        form=re.compile(
            r"\b(?:user(?:name)?|login)\b:?\ \S{1,60},\ (?:pass(?:word)?|pw)\b:?\ "
            r"(?P<secret>[^\s\"'(<]{4,60}?)[.;]?(?=\s*$)",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
    ContextRule(
        words=("pass", "passwd", "pw", "pwd"),
        form=re.compile(
            r"(?:passwd|pass|pwd?)[ \t]{1,4}(?P<secret>(?-i:(?=\S{0,40}\d)(?=\S{0,40}[a-z])(?=\S{0,40}[A-Z]))"
            r"[^\s\"'(<]{8,80})(?=[ \t]*$)",
            re.IGNORECASE | re.MULTILINE,
        ),
        check=lambda value: not is_wordy(value),
    ),
    ContextRule(
        words=("passphrase",),
        form=re.compile(
            r"passphrase(?:\ is)?:?\ {1,2}(?P<secret>[a-z]{3,12}(?:[ -][a-z]{3,12}){3,7})\.?(?=[ \t]*$)",
            re.IGNORECASE | re.MULTILINE,
        ),
        check=is_no_sentence,
    ),
    ContextRule(
        kind="key",
        words=("token", "secret", "key"),
        form=re.compile(
            r"\b(?:token|secret|(?<=api )key|(?<=access )key)\ (?:(?:is|was)\ |:\ )?"
            r"(?P<secret>[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12})\b",
            re.IGNORECASE,
        ),
    ),
    ContextRule(
        kind="key",
        words=("seed", "recovery", "backup", "secret", "wallet", "mnemonic"),
        form=re.compile(
            r"\b(?:(?:seed|recovery|backup|secret|wallet)[ _-]?phrase|mnemonic)\W{1,6}(?:is\W{1,4})?"
            r"(?P<secret>[a-z]{3,9}(?:[ ,]{1,2}[a-z]{3,9}){11,23})\b",
            re.IGNORECASE,
        ),
    ),
)
