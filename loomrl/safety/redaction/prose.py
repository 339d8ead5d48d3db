"""Codes, logins and phrases as people write them."""

import re

from loomrl.safety.randomness import is_wordy
from loomrl.safety.redaction.rule import Rule
from loomrl.safety.redaction.said import is_mixed, is_no_sentence

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
RULES: tuple[Rule, ...] = (
    Rule(
        kind="key",
        words=("first", "second", "last", "part", "half", "rest", "beginning", "teil", "hälfte"),
        form=PART_OF_KEY,
        check=lambda value: is_mixed(value) and not is_wordy(value),
    ),
    Rule(signs=("one-",), form=re.compile(rf"\bone-time[ -](?:code|password|pin){_CODE}", re.IGNORECASE)),
    Rule(
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
    Rule(
        words=("pin", "pincode", "pinkod", "pinkode", "geheimzahl", "пин", "пінкод", "pinul"),
        form=re.compile(
            r"\b(?:pin(?:-?(?:code|kod[e]?))?|geheimzahl|пин(?:-?код)?)(?:['’]s)?"
            r"(?:\ (?:[^\W\d_]|['’]){1,14}){0,6}?\s?[:=]?\s{1,2}(?P<secret>\d{4,8})\b(?![-./:,]\d|\s?(?:%|mm|px|v)\b)",
            re.IGNORECASE,
        ),
    ),
    Rule(
        words=_LOGINS,
        form=re.compile(
            rf"{_LOGIN}[ \t]{{0,2}}(?:are|is|sind|son|sono|:|=)[ \t]{{1,3}}[\w.@+-]{{1,60}}"
            r"(?:\s{1,2}/\s{1,2}|[:/])(?P<secret>[^\s/]{4,60})(?=\s|$)",
            re.IGNORECASE,
        ),
        check=lambda value: not value.isdigit(),
    ),
    Rule(
        words=_LOGINS,
        form=re.compile(
            rf"{_LOGIN}[ \t]{{1,3}}[\w.@+-]{{1,60}}(?:\s{{1,2}}/\s{{1,2}}|:)(?P<secret>[^\s/]{{4,60}})(?=\s|$)",
            re.IGNORECASE,
        ),
        check=lambda value: is_mixed(value) and not value.isdigit(),
    ),
    Rule(
        words=("try", "use", "with"),
        form=re.compile(
            r"\b(?:try|use|with)\ [\w.-]{2,40}:(?P<secret>[^\s:/(\[{<][^\s:/]{3,60})(?=[\s,]|$)", re.IGNORECASE
        ),
        check=lambda value: is_mixed(value) and any(map(str.isdigit, value)) and not value.isdigit(),
    ),
    Rule(
        words=("user", "username", "login"),
        form=re.compile(
            r"\b(?:user(?:name)?|login)\b:?\ \S{1,60},\ (?:pass(?:word)?|pw)\b:?\ "
            r"(?P<secret>[^\s\"'(<]{4,60}?)[.;]?(?=\s*$)",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
    Rule(
        words=("pass", "passwd", "pw", "pwd"),
        form=re.compile(
            r"(?:passwd|pass|pwd?)[ \t]{1,4}(?P<secret>(?-i:(?=\S{0,40}\d)(?=\S{0,40}[a-z])(?=\S{0,40}[A-Z]))"
            r"[^\s\"'(<]{8,80})(?=[ \t]*$)",
            re.IGNORECASE | re.MULTILINE,
        ),
        check=lambda value: not is_wordy(value),
    ),
    Rule(
        words=("passphrase",),
        form=re.compile(
            r"passphrase(?:\ is)?:?\ {1,2}(?P<secret>[a-z]{3,12}(?:[ -][a-z]{3,12}){3,7})\.?(?=[ \t]*$)",
            re.IGNORECASE | re.MULTILINE,
        ),
        check=is_no_sentence,
    ),
    Rule(
        kind="key",
        words=("token", "secret", "key"),
        form=re.compile(
            r"\b(?:token|secret|(?<=api )key|(?<=access )key)\ (?:(?:is|was)\ |:\ )?"
            r"(?P<secret>[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12})\b",
            re.IGNORECASE,
        ),
    ),
    Rule(
        kind="key",
        words=("seed", "recovery", "backup", "secret", "wallet", "mnemonic"),
        form=re.compile(
            r"\b(?:(?:seed|recovery|backup|secret|wallet)[ _-]?phrase|mnemonic)\W{1,6}(?:is\W{1,4})?"
            r"(?P<secret>[a-z]{3,9}(?:[ ,]{1,2}[a-z]{3,9}){11,23})\b",
            re.IGNORECASE,
        ),
    ),
)
