"""The layer for passwords as people say them, and as commands, headers and files of settings hold them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from loomrl.safety.assignment import is_keylike, is_stub, promise_of
from loomrl.safety.placeholder import is_placeholder
from loomrl.safety.randomness import is_wordy
from loomrl.safety.redaction.finding import Finding, Page

Check = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class _Rule:
    """A form whose group `secret` goes, if it passes the check and is no stub.

    A text has the form only if one of the hints is in it: letters alone are a whole word, others any part.
    """

    kind: str
    hints: tuple[str, ...]
    form: re.Pattern[str]
    check: Check = field(default=lambda value: True)

    def find(self, page: Page) -> Iterator[Finding]:
        """The secrets in a page."""
        for match in self.form.finditer(page.text):
            value = match["secret"]
            if not is_placeholder(value) and not is_stub(value) and self.check(value):
                yield Finding(*match.span("secret"), self.kind)


def _is_quoted(value: str) -> bool:
    """True for a password in quotes: no label, no name of a field."""
    return value.lower() not in _COMMON and not _LABELLED.search(value) and promise_of(value) is None


_LABELLED = re.compile(r"\b(?:the|your|a|an|is|are|must|or|and|for|of|not|password|field|please)\b", re.IGNORECASE)


def _is_mixed(value: str) -> bool:
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
    combination entry again before after now still always never only just already being what that this nothing everything something
"""
_COMMON = frozenset(_COMMON_WORDS.split())
"""Words after "the password is" that are none."""


_MENTION = re.compile(
    r"\b(?:pass[ _-]?(?:word|phrase|code)|passwd|passwort|kennwort|pwd?|mot de passe|contrase[nñ]a|wachtwoord"
    r"|senha|parola d'ordine|пароль)\b",
    re.IGNORECASE,
)
_MENTIONS = frozenset(
    (*("password", "passphrase", "passcode", "pass", "passwd", "passwort", "kennwort", "pwd", "pw", "passe", "пароль"),)
    + ("contraseña", "contrasena", "wachtwoord", "senha", "parola")
)
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


_SAYINGS = (
    _saying(
        r"\b(?:my|our|his|her|their|your|the|mein|unser|das|mon|notre|le|la|mi|nuestra|il|mia)\ (?:[\w-]+\ ){0,2}",
        rf"(?:{_OF})?(?:,\ (?:which|die|das|qui|que|che))?\ (?:is|was|ist|lautet|war|est|es|è|é)(?:\ now)?:?\s{{1,4}}"
        rf"{_SAID}",
    ),
    _saying("", rf"(?:{_OF}\ is|['’]s)\ {{1,2}}{_SAID}"),
    _saying("", rf"{_OF}\ ?:\s{{1,4}}{_SAID}", is_loose=True),
    _saying("", rf"\ ?:\ {{1,4}}{_SAID}(?=\s*$)", is_loose=True),
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
    _saying(rf"\b(?:use|enter|type|try)\ {_SAID}\ (?:as|for)\ (?:the|your|my|a)\ ", "", is_loose=True),
    _saying("", rf"(?:(?<=\bpw)|(?<=\bpwd))\ {_SAID}(?=\s*$)"),
    _saying(
        "", r"\ {1,4}(?P<secret>)?(?P<word>(?-i:(?=\S{0,40}\d)(?=\S{0,40}[a-z])(?=\S{0,40}[A-Z]))[^\s\"'(<]{8,80})"
    ),
)
_TYPE = re.compile(r"(?:[A-Z][a-z]+){2,}\Z|[\w:]+[<(\[]")
_REACH = 120
"""Characters before and behind a mention that are looked at."""


def _said(page: Page) -> Iterator[Finding]:
    """What is said to be a password: with more than letters in it, or at the end of a sentence."""
    if page.words.isdisjoint(_MENTIONS):
        return
    for mention in _MENTION.finditer(page.text):
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


def _meant(text: str, mention: re.Match[str], saying: _Saying) -> Iterator[Finding]:
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
    is_plain = value.isalpha() and value.lower() not in _COMMON and not _TYPE.match(value)
    if _TYPE.match(value) or (is_plain and found[group].endswith((",", ";"))):  # of a declaration
        return
    if (group == "secret" and _is_quoted(value)) or _is_mixed(value) or (is_plain and (saying.is_loose or is_end)):
        yield Finding(found.start(group), found.start(group) + len(value), "password")


_VALUE = r"(?P<secret>[^\s'\"`|;<>$-][^\s'\"`|;<>]{0,200})"
_WORD = rf"['\"]?{_VALUE}"
_ARGUMENTS = r"[^\n|;&]{0,200}?"

_RULES: tuple[_Rule, ...] = (
    # prose
    _Rule(
        "password",
        ("pin", "code", "otp", "tan", "passcode", "türcode", "zugangscode", "sicherheitscode", "código", "codice"),
        re.compile(
            r"\b(?:pin(?:[ -](?:code|number))?|passcode|otp|tan|(?:one-time|verification|security|access|door|gate|entry"
            r"|unlock|confirmation|login|secret|alarm)[ -](?:code|password|pin)|code\ d['’](?:accès|entrée)|(?:tür|zugangs|tor|zahlen"
            r"|sicherheits|bestätigungs|zugriffs)code|código\ de\ (?:acceso|seguridad|verificación)"
            r"|codice\ di\ (?:accesso|sicurezza|verifica))\b(?:\ (?:of|for|to)\ [\w ]{1,30}?)?"
            r"\s{0,2}(?:is|ist|:|=|est|es)?\s{1,2}(?P<secret>(?=[A-Za-z#*]{0,8}[0-9])[A-Za-z0-9#*]{4,12})\b[#*]?",
            re.IGNORECASE,
        ),
    ),
    _Rule(
        "password",
        ("login", "creds", "cred", "credentials", "user", "username", "account"),
        re.compile(
            r"\b(?:login|creds?|credentials|user(?:name)?|account)\b[ \t]{0,2}(?:are|is|:|=)[ \t]{1,3}[\w.@+-]{1,60}"
            r"(?:\s{1,2}/\s{1,2}|[:/])(?P<secret>[^\s/]{4,60})(?=\s|$)",
            re.IGNORECASE,
        ),
        lambda value: not value.isdigit(),
    ),
    _Rule(
        "password",
        ("login", "creds", "cred", "credentials", "user", "username", "account"),
        re.compile(
            r"\b(?:login|creds?|credentials|user(?:name)?|account)\b[ \t]{1,3}[\w.@+-]{1,60}(?:\s{1,2}/\s{1,2}|:)"
            r"(?P<secret>[^\s/]{4,60})(?=\s|$)",
            re.IGNORECASE,
        ),
        lambda value: _is_mixed(value) and not value.isdigit(),
    ),
    _Rule(
        "password",
        ("try", "use", "with"),
        re.compile(r"\b(?:try|use|with)\ [\w.-]{2,40}:(?P<secret>[^\s:/(\[{<][^\s:/]{3,60})(?=[\s,]|$)", re.IGNORECASE),
        lambda value: _is_mixed(value) and any(map(str.isdigit, value)) and not value.isdigit(),
    ),
    _Rule(
        "key",
        ("phrase", "mnemonic", "seed_phrase"),
        re.compile(
            r"\b(?:(?:seed|recovery|backup|secret|wallet)[ _-]?phrase|mnemonic)\W{1,6}(?:is\W{1,4})?"
            r"(?P<secret>[a-z]{3,9}(?:[ ,]{1,2}[a-z]{3,9}){11,23})\b",
            re.IGNORECASE,
        ),
    ),
    # headers
    _Rule(
        "key",
        ("authorization",),
        re.compile(
            r"authorization\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?(?:[A-Za-z][\w-]{1,24}\ {1,3})?"
            r"(?P<secret>[A-Za-z0-9+/_.~:-]{8,4000}={0,2})(?![\w(])",
            re.IGNORECASE,
        ),
        lambda value: not is_wordy(value),
    ),
    _Rule(
        "key",
        ("digest",),
        re.compile(r"\bDigest\ [^\n]{0,400}?\bresponse=\"?(?P<secret>[0-9a-f]{32})", re.IGNORECASE),
    ),
    _Rule(
        "key",
        ("cookie", "cookies"),
        re.compile(r"(?<=[ ;\"'=:])[\w.-]{1,60}=(?P<secret>(?=[^\s;\"',]{16})[^\s;\"',]{1,4000})"),
        is_keylike,
    ),
    _Rule(
        "key",
        ("\ttrue\t", "\tfalse\t"),
        re.compile(r"\t(?:TRUE|FALSE)\t[^\t\n]*\t(?:TRUE\t|FALSE\t)?\d+\t[^\t\n]+\t(?P<secret>[^\t\n]{8,4000})"),
    ),
    _Rule("key", ("oauth:",), re.compile(r"\boauth:(?P<secret>[a-z0-9]{20,60})\b")),
    _Rule("key", (":aa",), re.compile(r"(?<!\d)(?P<secret>\d{8,10}:AA[A-Za-z0-9_-]{33})(?![\w-])")),
    _Rule(
        "key",
        ("://",),
        re.compile(r"https?://[\w.-]+/(?:[\w.-]+/){0,4}?(?:web)?hooks?/(?P<secret>[^\s\"'<>)]{20,400})", re.IGNORECASE),
    ),
    _Rule(
        "key",
        ("://hooks.",),
        re.compile(r"https?://hooks\.[\w.-]+/(?:[\w-]+/){0,2}?(?P<secret>[A-Z][^\s\"'<>)]{20,400})"),
    ),
    # commands
    _Rule(
        "password",
        ("mysql", "mariadb", "mysqldump", "mysqladmin"),
        re.compile(rf"\b(?:mysql|mariadb)\w*\b{_ARGUMENTS}\s-p{_WORD}"),
    ),
    _Rule(
        "password",
        ("sshpass", "login", "mongo", "zip -", "ssh-keygen", "ldap", "redis-cli", "sqlcmd", "bcp"),
        re.compile(
            rf"(?:\bsshpass\b{_ARGUMENTS}\s-p|\blogin\b{_ARGUMENTS}\s-p"
            rf"|\bmongo\w*\b{_ARGUMENTS}\s-p|\b(?:un)?zip\b{_ARGUMENTS}\s-P|\bssh-keygen\b{_ARGUMENTS}\s-N|\bldap\w+\b{_ARGUMENTS}\s-w"
            rf"|\bredis-cli\b{_ARGUMENTS}\s-a|\b(?:sqlcmd|bcp)\b{_ARGUMENTS}\s-P)\ {{1,4}}{_WORD}"
        ),
    ),
    _Rule("password", ("7z", "rar", "unrar"), re.compile(rf"\b(?:7z\w?|rar|unrar)\ {_ARGUMENTS}-h?p{_WORD}")),
    _Rule(
        "password",
        ("curl", "wget", "http -a", "https -a", "--user", "http --auth"),
        re.compile(
            rf"(?:\b(?:curl|https?|wget)\b[^\n|;]{{0,200}}?\s(?:-u|--user|-a|--auth)|--user)[ =]['\"]?[^\s:'\"]{{1,80}}:{_VALUE}"
        ),
    ),
    _Rule(
        "password",
        ("smbclient", "smbget"),
        re.compile(rf"\bsmb\w+\b{_ARGUMENTS}\s-U\ ?['\"]?[^\s%'\"]{{1,60}}%{_VALUE}"),
    ),
    _Rule("password", ("pass:",), re.compile(rf"(?<=[\s\"'])-?-?pass(?:in|out)?\ {{1,4}}pass:{_WORD}")),
    _Rule("password", ("htpasswd",), re.compile(rf"\bhtpasswd\b\ -\w*b\w*\ \S{{1,80}}\ \S{{1,80}}\ {_WORD}")),
    _Rule("password", ("net user",), re.compile(rf"\bnet\ user\ (?!/)\S{{1,60}}\ (?!/){_WORD}", re.IGNORECASE)),
    _Rule(
        "password",
        ("echo ", "printf "),
        re.compile(
            rf"\b(?:echo|printf)\ (?:-\w\ )?[\"\x27]?(?:[\w.-]{{1,60}}:)?{_WORD}['\"]?\ {{0,2}}\|\ {{0,2}}(?=sudo\ -S|(?:sudo\ )?chpasswd|[^\n|]{{0,80}}--(?:password-)?stdin)"
        ),
    ),
    _Rule(
        "password",
        ("--",),
        re.compile(
            r"--(?:[\w-]{0,40}-)?(?:password|passwd|pass|passphrase|pwd|secret|token|api-?key|access-?key|secret-?key"
            rf"|auth-?key|credentials?)(?:\ {{1,4}}|=){_WORD}",
            re.IGNORECASE,
        ),
    ),
    _Rule(
        "key",
        ("configure set", "setx"),
        re.compile(
            rf"\b(?:configure\ set|setx)\ [\w.-]{{0,60}}(?:key|secret|token|password)[\w.-]{{0,20}}\ {{1,4}}{_WORD}",
            re.IGNORECASE,
        ),
    ),
    # files of settings
    _Rule(
        "password",
        ("</",),
        re.compile(
            r"<(?P<tag>[\w:.-]{0,40}(?:password|passwd|passphrase|secret|token|api-?key))\b[^<>]{0,200}>\s{0,8}"
            r"(?P<secret>[^<>\s][^<>\n]{0,400}?)\s{0,8}</",
            re.IGNORECASE,
        ),
        lambda value: " " not in value,
    ),
    _Rule(
        "password",
        ("value=",),
        re.compile(
            r"(?:name|key)=[\"'][\w.:-]{0,60}(?:password|passwd|pwd|secret|token|apikey|api-key|access-?key)[\"']"
            r"\s{1,8}value=[\"'](?P<secret>[^\"'\n]{3,400})[\"']",
            re.IGNORECASE,
        ),
    ),
    _Rule(
        "password",
        ("define(", "define ("),
        re.compile(
            r"define\s?\(\s?[\"'][\w.-]{0,60}(?:PASSWORD|PASS|PWD|SECRET|KEY|SALT|TOKEN)[\"']\s?,\s{0,8}"
            r"[\"'](?P<secret>[^\"'\n]{3,400})[\"']"
        ),
    ),
    _Rule(
        "password",
        ("machine",),
        re.compile(rf"\bmachine\s{{1,4}}\S{{1,80}}\s{{1,8}}login\s{{1,4}}\S{{1,80}}\s{{1,8}}password\s{{1,4}}{_WORD}"),
    ),
    _Rule(
        "password",
        ("login", "user", "username"),
        re.compile(rf"\b(?:login|user(?:name)?)\s{{1,4}}\S{{1,80}}\s{{1,8}}pass(?:word)?\s{{1,4}}{_WORD}"),
        lambda value: _is_mixed(value) and any(map(str.isdigit, value)),
    ),
    _Rule(
        "password",
        ("requirepass", "masterauth"),
        re.compile(rf"^\s{{0,8}}(?:requirepass|masterauth)\s{{1,8}}{_WORD}", re.MULTILINE),
    ),
    _Rule(
        "password",
        (":",),
        re.compile(
            r"^[\w.*-]{1,80}:(?:\d{2,5}|\*):[\w*-]{1,60}:[\w*.-]{1,60}:(?P<secret>[^\s:]{4,200})$", re.MULTILINE
        ),
    ),
    _Rule(
        "password",
        ("identified", "password"),
        re.compile(
            r"\b(?:IDENTIFIED\s(?:WITH\s\S{1,40}\s)?BY|(?:WITH\s|ENCRYPTED\s)?PASSWORD)\s{1,4}'(?P<secret>[^'\n]{3,200})'",
            re.IGNORECASE,
        ),
    ),
    _Rule(
        "password",
        ("variable",),
        re.compile(
            r"variable\s{1,4}\"[\w-]{0,60}(?:password|secret|token|key)\"\s{0,4}\{[^{}]{0,400}?default\s{0,8}=\s{0,4}"
            r"\"(?P<secret>[^\"\n]{3,400})\"",
            re.IGNORECASE,
        ),
    ),
    _Rule(
        "password",
        ("$",),
        re.compile(r"(?P<secret>\$(?:1|2[abxy]|5|6|y|apr1|argon2\w{1,2})\$[A-Za-z0-9./$,=+-]{20,200})"),
    ),
    _Rule("password", ("thin:",), re.compile(r"\bthin:[\w-]{1,60}/(?P<secret>[^\s@/]{3,200})@")),
    # private keys
    _Rule(
        "key",
        ("private-lines",),
        re.compile(r"Private-Lines:\ \d{1,4}\s{1,2}(?P<secret>(?:[A-Za-z0-9+/=]{1,80}\s?)++)"),
    ),
    _Rule("key", ('"d"',), re.compile(r"\"d\"\s{0,4}:\s{0,4}\"(?P<secret>[A-Za-z0-9_-]{40,800})\"")),
    _Rule(
        "key",
        ("<d>", "<p>"),
        re.compile(r"<(?:D|P|Q|DP|DQ|InverseQ)>\s{0,8}(?P<secret>[A-Za-z0-9+/=\s]{40,4000}+)</"),
    ),
    _Rule("key", ("ls0tls1crudj",), re.compile(r"(?P<secret>LS0tLS1CRUdJTiB(?!DRVJU|QVUJM)[A-Za-z0-9+/=]{40,}+)")),
    _Rule(
        "key",
        ("private key",),
        re.compile(r"private\ key\W{1,6}(?:is\W{1,3})?(?P<secret>(?:0x)?[0-9a-fA-F]{64})\b", re.IGNORECASE),
    ),
    _Rule("key", (".local.", ".public."), re.compile(r"\b(?P<secret>v[1-4]\.(?:local|public)\.[A-Za-z0-9_.-]{40,}+)")),
)


_BY_WORD: dict[str, set[int]] = {}
_BY_SIGN: dict[str, set[int]] = {}
for _number, _rule in enumerate(_RULES):
    for _hint in _rule.hints:
        (_BY_WORD if _hint.isalpha() else _BY_SIGN).setdefault(_hint, set()).add(_number)


def credentials(page: Page) -> Iterator[Finding]:
    """Passwords and keys that words or the form of a text around them tell."""
    yield from _said(page)
    possible = {number for word in page.words & _BY_WORD.keys() for number in _BY_WORD[word]}
    possible.update(*(numbers for sign, numbers in _BY_SIGN.items() if sign in page.folded))
    for number in sorted(possible):
        yield from _RULES[number].find(page)
