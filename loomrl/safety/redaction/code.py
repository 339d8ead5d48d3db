"""Secrets in headers, files of settings and files of keys."""

import re

from loomrl.safety.assignment import is_keylike, promise_of
from loomrl.safety.randomness import is_wordy
from loomrl.safety.redaction.finding import ARGUMENTS, VALUE, WORD, ContextRule
from loomrl.safety.redaction.prose import is_mixed

SETTINGS: tuple[ContextRule, ...] = (
    ContextRule(
        kind="key",
        words=("authorization",),
        form=re.compile(
            r"authorization\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?(?:[A-Za-z][\w-]{1,24}\ {1,3})?"
            r"(?P<secret>[A-Za-z0-9+/_.~:-]{8,4000}={0,2})(?![\w(])",
            re.IGNORECASE,
        ),
        check=lambda value: not is_wordy(value),
    ),
    ContextRule(
        kind="key",
        signs=("digest",),
        form=re.compile(r"\bDigest\ [^\n]{0,400}?\bresponse=\"?(?P<secret>[0-9a-f]{32})", re.IGNORECASE),
    ),
    ContextRule(
        kind="key",
        signs=("cookie",),
        form=re.compile(r"(?<=[ ;\"'=:])[\w.-]{1,60}=(?P<secret>(?=[^\s;\"',]{16})[^\s;\"',]{1,4000})"),
        check=is_keylike,
    ),
    ContextRule(
        kind="key",
        signs=("\ttrue\t", "\tfalse\t"),
        form=re.compile(r"\t(?:TRUE|FALSE)\t[^\t\n]*\t(?:TRUE\t|FALSE\t)?\d+\t[^\t\n]+\t(?P<secret>[^\t\n]{8,4000})"),
    ),
    ContextRule(
        kind="key",
        signs=("oauth:",),
        form=re.compile(r"\boauth:(?P<secret>[a-z0-9]{20,60})\b"),
    ),
    ContextRule(
        kind="key",
        signs=(":aa",),
        form=re.compile(r"(?<!\d)(?P<secret>\d{8,10}:AA[A-Za-z0-9_-]{33})(?![\w-])"),
    ),
    ContextRule(
        kind="key",
        signs=("://",),
        form=re.compile(
            r"https?://[\w.-]+/(?:[\w.-]+/){0,4}?(?:web)?hooks?\w{0,3}/(?P<secret>[^\s\"'<>)]{20,400})", re.IGNORECASE
        ),
    ),
    ContextRule(
        kind="key",
        signs=("://hooks.",),
        form=re.compile(r"https?://hooks\.[\w.-]+/(?:[\w-]+/){0,2}?(?P<secret>[A-Z][^\s\"'<>)]{20,400})"),
    ),
    ContextRule(
        signs=("</",),
        form=re.compile(
            r"<(?P<tag>[\w:.-]{0,40}(?:password|passwd|passphrase|secret|token|api-?key))\b[^<>]{0,200}>\s{0,8}"
            r"(?P<secret>[^<>\s][^<>\n]{0,400}?)\s{0,8}</",
            re.IGNORECASE,
        ),
        check=lambda value: " " not in value,
    ),
    ContextRule(
        signs=("value=",),
        form=re.compile(
            r"(?:name|key)=[\"'][\w.:-]{0,60}(?:password|passwd|pwd|secret|token|apikey|api-key|access-?key)[\"']"
            r"\s{1,8}value=[\"'](?P<secret>[^\"'\n]{3,400})[\"']",
            re.IGNORECASE,
        ),
    ),
    ContextRule(
        signs=("define(", "define ("),
        form=re.compile(
            r"define\s?\(\s?[\"'][\w.-]{0,60}(?:PASSWORD|PASS|PWD|SECRET|KEY|SALT|TOKEN)[\"']\s?,\s{0,8}"
            r"[\"'](?P<secret>[^\"'\n]{3,400})[\"']"
        ),
    ),
    ContextRule(
        words=("machine",),
        form=re.compile(
            rf"\bmachine\s{{1,4}}\S{{1,80}}\s{{1,8}}login\s{{1,4}}\S{{1,80}}\s{{1,8}}password\s{{1,4}}{WORD}"
        ),
    ),
    ContextRule(
        words=("login", "user", "username"),
        form=re.compile(rf"\b(?:login|user(?:name)?)\s{{1,4}}\S{{1,80}}\s{{1,8}}pass(?:word)?\s{{1,4}}{WORD}"),
        check=lambda value: is_mixed(value) and any(map(str.isdigit, value)),
    ),
    ContextRule(
        signs=("requirepass", "masterauth"),
        form=re.compile(rf"^\s{{0,8}}(?:requirepass|masterauth)\s{{1,8}}{WORD}", re.MULTILINE),
    ),
    ContextRule(
        signs=(":",),
        form=re.compile(
            r"^[\w.*-]{1,80}:(?:\d{2,5}|\*):[\w*-]{1,60}:[\w*.-]{1,60}:(?P<secret>[^\s:]{4,200})$", re.MULTILINE
        ),
    ),
    ContextRule(
        words=("identified", "password"),
        form=re.compile(
            r"\b(?:IDENTIFIED\s(?:WITH\s\S{1,40}\s)?BY|PASSWORD)\s{1,4}'(?P<secret>[^'\n]{3,200})'",
            re.IGNORECASE,
        ),
    ),
    ContextRule(
        words=("variable",),
        form=re.compile(
            r"variable\s{1,4}\"[\w-]{0,60}(?:password|secret|token|key)\"\s{0,4}\{[^{}]{0,400}?default\s{0,8}=\s{0,4}"
            r"\"(?P<secret>[^\"\n]{3,400})\"",
            re.IGNORECASE,
        ),
    ),
    ContextRule(
        signs=("$",),
        form=re.compile(r"(?P<secret>\$(?:1|2[abxy]|5|6|y|apr1|argon2\w{1,2})\$[A-Za-z0-9./$,=+-]{20,200})"),
    ),
    ContextRule(
        signs=("thin:",),
        form=re.compile(r"\bthin:[\w-]{1,60}/(?P<secret>[^\s@/]{3,200})@"),
    ),
    ContextRule(
        kind="key",
        signs=("private-lines",),
        form=re.compile(r"Private-Lines:\ \d{1,4}\s{1,2}(?P<secret>(?:[A-Za-z0-9+/=]{1,80}\s?)++)"),
    ),
    ContextRule(
        kind="key",
        signs=('"d"',),
        form=re.compile(r"\"d\"\s{0,4}:\s{0,4}\"(?P<secret>[A-Za-z0-9_-]{40,800})\""),
    ),
    ContextRule(
        kind="key",
        signs=("<d>", "<p>"),
        form=re.compile(r"<(?:D|P|Q|DP|DQ|InverseQ)>\s{0,8}(?P<secret>[A-Za-z0-9+/=\s]{40,4000}+)</"),
    ),
    ContextRule(
        kind="key",
        signs=("ls0tls1crudj",),
        form=re.compile(r"(?P<secret>LS0tLS1CRUdJTiB(?!DRVJU|QVUJM)[A-Za-z0-9+/=]{40,}+)"),
    ),
    ContextRule(
        kind="key",
        signs=("private key", "privatekey", "private_key"),
        form=re.compile(
            r"private[ _]?key\w{0,20}\W{1,6}(?:is\W{1,3})?(?P<secret>(?:0x)?[0-9a-fA-F]{64})\b", re.IGNORECASE
        ),
    ),
    ContextRule(
        kind="key",
        signs=(".local.", ".public."),
        form=re.compile(r"\b(?P<secret>v[1-4]\.(?:local|public)\.[A-Za-z0-9_.-]{40,}+)"),
    ),
)


_OPTIONS: tuple[tuple[str, str], ...] = (
    ("sshpass", "p"),
    ("login", "p"),
    ("useradd usermod", "p"),
    ("mongo mongosh mongodump mongorestore mongoimport mongoexport mongostat", "p"),
    ("zip unzip", "P"),
    ("ldapsearch ldapadd ldapmodify ldapdelete ldappasswd ldapwhoami ldapcompare ldapmodrdn", "w"),
    ("sqlcmd bcp", "P"),
)
"""Commands, and the option that holds a password."""

COMMANDS: tuple[ContextRule, ...] = (
    ContextRule(
        words=("mysql", "mariadb", "mysqldump", "mysqladmin", "mysqlimport", "mysqlcheck"),
        form=re.compile(rf"\b(?:mysql|mariadb)\w*\b{ARGUMENTS}\s-p{WORD}"),
    ),
    *(
        ContextRule(words=names.split(), form=re.compile(rf"\b[a-z]+\b{ARGUMENTS}\s-{option}\ {{1,4}}{WORD}"))
        for names, option in _OPTIONS
    ),
    ContextRule(signs=("ssh-keygen",), form=re.compile(rf"\bssh-keygen\b{ARGUMENTS}\s-N\ {{1,4}}{WORD}")),
    ContextRule(signs=("redis-cli",), form=re.compile(rf"\bredis-cli\b{ARGUMENTS}\s-a\ {{1,4}}{WORD}")),
    ContextRule(
        signs=("7z ", "7za ", "rar "),
        form=re.compile(rf"\b(?:7z\w?|rar|unrar)\ {ARGUMENTS}-h?p{WORD}"),
    ),
    ContextRule(
        words=("curl", "wget", "http", "https"),
        form=re.compile(
            rf"\b(?:curl|https?|wget)\b[^\n|;]{{0,200}}?\s(?:-u|--user|-a|--auth)[ =]['\"]?[^\s:'\"]{{1,80}}:{VALUE}"
        ),
    ),
    ContextRule(signs=("--user",), form=re.compile(rf"--user[ =]['\"]?[^\s:'\"]{{1,80}}:{VALUE}")),
    ContextRule(
        words=("smbclient", "smbget", "smbmap"),
        form=re.compile(rf"\bsmb\w+\b{ARGUMENTS}\s-U\ ?['\"]?[^\s%'\"]{{1,60}}%{VALUE}"),
    ),
    ContextRule(signs=("pass:",), form=re.compile(rf"(?<=[\s\"'])-?-?pass(?:in|out)?\ {{1,4}}pass:{WORD}")),
    ContextRule(words=("htpasswd",), form=re.compile(rf"\bhtpasswd\b\ -\w*b\w*\ \S{{1,80}}\ \S{{1,80}}\ {WORD}")),
    ContextRule(words=("net",), form=re.compile(rf"\bnet\ user\ (?!/)\S{{1,60}}\ (?!/){WORD}", re.IGNORECASE)),
    ContextRule(
        words=("echo", "printf"),
        form=re.compile(
            rf"\b(?:echo|printf)\ (?:-\w\ )?[\"\x27]?(?:[\w.-]{{1,60}}:)?{WORD}['\"]?\ {{0,2}}\|\ {{0,2}}"
            r"(?=sudo\ -S|(?:sudo\ )?chpasswd|[^\n|]{0,80}--(?:password-)?stdin)"
        ),
    ),
    ContextRule(
        signs=("--",),
        form=re.compile(
            r"--(?:[\w-]{0,40}-)?(?:password|passwd|pass|passphrase|pwd|secret|token|api-?key|access-?key|secret-?key"
            rf"|auth-?key|credentials?)(?:\ {{1,4}}|=){WORD}",
            re.IGNORECASE,
        ),
    ),
    ContextRule(
        kind="key",
        words=("configure", "setx"),
        form=re.compile(
            rf"\b(?:configure\ set|setx)\ [\w.-]{{0,60}}(?:key|secret|token|password)[\w.-]{{0,20}}\ {{1,4}}{WORD}",
            re.IGNORECASE,
        ),
    ),
)


_LOGIN = r"(?:log_?in|log_?on|sign_?in|auth|credential|passw(?:or)?d)\w{0,30}"
_CALLS = (
    "login(",
    "logon(",
    "_in(",
    "_on(",
    "signin(",
    "auth(",
    "auth=",
    "cate(",
    "rize(",
    "credential",
    "word(",
    "passwd(",
)
"""Functions, and settings of clients, that take a name and its password."""
_ARGUMENT = r"(?:\w{1,30}\s?[=:]\s?)?(?:\"[^\"\n]{0,120}\"|'[^'\n]{0,120}'|[\w.@]{1,60})"
_QUOTED = r"(?:\w{1,30}\s?[=:]\s?)?[\"'](?P<secret>[^\"'\n]{3,200})[\"']"
_BARE = r"(?P<secret>[^\s\"'(){}\[\],;]{6,80})"


def _is_argument(value: str) -> bool:
    """True for what may be a password in quotes: no path, no sentence, no name of a field."""
    return (
        " " not in value and not value.startswith(("/", "http")) and promise_of(value) is None and not value.isupper()
    )


def _is_drawn_argument(value: str) -> bool:
    """True for what is no word either, and no name of a host or a file."""
    is_named = re.fullmatch(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?", value) is not None
    return _is_argument(value) and is_mixed(value) and not is_named and not value.isdigit()


def _is_bare_argument(value: str) -> bool:
    """True for what is no variable and no number."""
    is_named = value.isidentifier() or re.fullmatch(r"[\w.]+", value) is not None
    return any(map(str.isdigit, value)) and not value.isdigit() and (not is_named or not is_wordy(value))


def _is_before_host(value: str) -> bool:
    return is_mixed(value) and promise_of(value) is None and not value.isdigit()


CALLS: tuple[ContextRule, ...] = (
    ContextRule(
        signs=_CALLS,
        form=re.compile(
            rf"{_LOGIN}\s?[(=]\(?\s{{0,8}}(?:{_ARGUMENT},\s{{0,8}}){{1,4}}{_QUOTED}\s{{0,8}},?\s{{0,8}}[)\]]", re.I
        ),
        check=_is_argument,
    ),
    ContextRule(
        signs=("password(", "passwd(", "pwd(", "passphrase(", "passcode("),
        form=re.compile(
            rf"(?:set|change|update|reset|use|with|enter|type|check|verify|hash)_?(?:passw(?:or)?d|pwd|passphrase|passcode)"
            rf"\(\s?{_QUOTED}\s?[,)]",
            re.IGNORECASE,
        ),
        check=_is_argument,
    ),
    ContextRule(
        signs=_CALLS,
        form=re.compile(rf"{_LOGIN}\(\s?\w[\w.@-]{{0,60}},\s{{0,2}}{_BARE}\)", re.IGNORECASE),
        check=_is_bare_argument,
    ),
    ContextRule(
        signs=("connect(", "connection("),
        form=re.compile(
            rf"connect\w{{0,20}}\(\s{{0,8}}{_ARGUMENT},\s{{0,8}}{_ARGUMENT},\s{{0,8}}{_QUOTED}\s?[,)]", re.I
        ),
        check=_is_argument,
    ),
    ContextRule(
        signs=("connect(", "connection("),
        form=re.compile(rf"connect\w{{0,20}}\(\s{{0,8}}{_ARGUMENT},\s{{0,8}}{_QUOTED}\s?\)", re.I),
        check=_is_drawn_argument,
    ),
    ContextRule(
        signs=("fill(", "type(", "keys(", "value(", "input("),
        form=re.compile(
            rf"(?:fill|type|send_?keys|set_?value|input)\(\s?[\"'][^\"'\n]{{0,40}}passw(?:or)?d[^\n]{{0,10}}?[\"'],\s{{0,4}}{_QUOTED}",
            re.IGNORECASE,
        ),
        check=_is_argument,
    ),
    ContextRule(
        signs=(".fill(", ".type(", "keys(", "value("),
        form=re.compile(
            r"(?:passw(?:or)?d|pwd|passcode)[^\n]{0,10}[\"'\])]{1,4}\.(?:send_?keys|fill|type|set_?value)\(\s?"
            r"[\"'](?P<secret>[^\"'\n]{3,200})[\"']",
            re.IGNORECASE,
        ),
        check=_is_argument,
    ),
    ContextRule(
        signs=("<input",),
        form=re.compile(
            r"<input\b(?=[^<>]{0,200}type=[\"']?password)[^<>]{0,200}?\svalue=[\"'](?P<secret>[^\"'\n]{3,200})[\"']",
            re.IGNORECASE,
        ),
    ),
    ContextRule(
        signs=("wifi:",),
        form=re.compile(r"\bWIFI:(?:[^\n;]{0,80};){0,5}?P:(?P<secret>(?:[^;\\\n]|\\.){3,100});", re.IGNORECASE),
    ),
    ContextRule(
        signs=("@",),
        form=re.compile(
            r"(?<![\w./:@-])[\w.-]{2,40}:(?P<secret>[^\s/@:\"'<>(),]{4,60})@[\w-]{1,60}(?:\.[\w-]{1,60}){1,4}(?!\w)"
        ),
        check=_is_before_host,
    ),
    ContextRule(
        words=("net",),
        form=re.compile(r"\bnet\ use\ \S{1,20}\ \S{1,120}\ (?P<secret>[^\s/*]\S{3,80})(?=\s|$)", re.IGNORECASE),
    ),
)
