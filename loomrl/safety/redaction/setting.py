"""Secrets in headers, files of settings and files of keys."""

import re

from loomrl.safety.assignment import is_keylike
from loomrl.safety.randomness import is_wordy
from loomrl.safety.redaction.rule import WORD, Rule
from loomrl.safety.redaction.said import is_mixed

RULES: tuple[Rule, ...] = (
    Rule(
        kind="key",
        words=("authorization",),
        form=re.compile(
            r"authorization\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?(?:[A-Za-z][\w-]{1,24}\ {1,3})?"
            r"(?P<secret>[A-Za-z0-9+/_.~:-]{8,4000}={0,2})(?![\w(])",
            re.IGNORECASE,
        ),
        check=lambda value: not is_wordy(value),
    ),
    Rule(
        kind="key",
        signs=("digest",),
        form=re.compile(r"\bDigest\ [^\n]{0,400}?\bresponse=\"?(?P<secret>[0-9a-f]{32})", re.IGNORECASE),
    ),
    Rule(
        kind="key",
        signs=("cookie",),
        form=re.compile(r"(?<=[ ;\"'=:])[\w.-]{1,60}=(?P<secret>(?=[^\s;\"',]{16})[^\s;\"',]{1,4000})"),
        check=is_keylike,
    ),
    Rule(
        kind="key",
        signs=("\ttrue\t", "\tfalse\t"),
        form=re.compile(r"\t(?:TRUE|FALSE)\t[^\t\n]*\t(?:TRUE\t|FALSE\t)?\d+\t[^\t\n]+\t(?P<secret>[^\t\n]{8,4000})"),
    ),
    Rule(
        kind="key",
        signs=("oauth:",),
        form=re.compile(r"\boauth:(?P<secret>[a-z0-9]{20,60})\b"),
    ),
    Rule(
        kind="key",
        signs=(":aa",),
        form=re.compile(r"(?<!\d)(?P<secret>\d{8,10}:AA[A-Za-z0-9_-]{33})(?![\w-])"),
    ),
    Rule(
        kind="key",
        signs=("://",),
        form=re.compile(
            r"https?://[\w.-]+/(?:[\w.-]+/){0,4}?(?:web)?hooks?\w{0,3}/(?P<secret>[^\s\"'<>)]{20,400})", re.IGNORECASE
        ),
    ),
    Rule(
        kind="key",
        signs=("://hooks.",),
        form=re.compile(r"https?://hooks\.[\w.-]+/(?:[\w-]+/){0,2}?(?P<secret>[A-Z][^\s\"'<>)]{20,400})"),
    ),
    Rule(
        signs=("</",),
        form=re.compile(
            r"<(?P<tag>[\w:.-]{0,40}(?:password|passwd|passphrase|secret|token|api-?key))\b[^<>]{0,200}>\s{0,8}"
            r"(?P<secret>[^<>\s][^<>\n]{0,400}?)\s{0,8}</",
            re.IGNORECASE,
        ),
        check=lambda value: " " not in value,
    ),
    Rule(
        signs=("value=",),
        form=re.compile(
            r"(?:name|key)=[\"'][\w.:-]{0,60}(?:password|passwd|pwd|secret|token|apikey|api-key|access-?key)[\"']"
            r"\s{1,8}value=[\"'](?P<secret>[^\"'\n]{3,400})[\"']",
            re.IGNORECASE,
        ),
    ),
    Rule(
        signs=("define(", "define ("),
        form=re.compile(
            r"define\s?\(\s?[\"'][\w.-]{0,60}(?:PASSWORD|PASS|PWD|SECRET|KEY|SALT|TOKEN)[\"']\s?,\s{0,8}"
            r"[\"'](?P<secret>[^\"'\n]{3,400})[\"']"
        ),
    ),
    Rule(
        words=("machine",),
        form=re.compile(
            rf"\bmachine\s{{1,4}}\S{{1,80}}\s{{1,8}}login\s{{1,4}}\S{{1,80}}\s{{1,8}}password\s{{1,4}}{WORD}"
        ),
    ),
    Rule(
        words=("login", "user", "username"),
        form=re.compile(rf"\b(?:login|user(?:name)?)\s{{1,4}}\S{{1,80}}\s{{1,8}}pass(?:word)?\s{{1,4}}{WORD}"),
        check=lambda value: is_mixed(value) and any(map(str.isdigit, value)),
    ),
    Rule(
        signs=("requirepass", "masterauth"),
        form=re.compile(rf"^\s{{0,8}}(?:requirepass|masterauth)\s{{1,8}}{WORD}", re.MULTILINE),
    ),
    Rule(
        signs=(":",),
        form=re.compile(
            r"^[\w.*-]{1,80}:(?:\d{2,5}|\*):[\w*-]{1,60}:[\w*.-]{1,60}:(?P<secret>[^\s:]{4,200})$", re.MULTILINE
        ),
    ),
    Rule(
        words=("identified", "password"),
        form=re.compile(
            r"\b(?:IDENTIFIED\s(?:WITH\s\S{1,40}\s)?BY|PASSWORD)\s{1,4}'(?P<secret>[^'\n]{3,200})'",
            re.IGNORECASE,
        ),
    ),
    Rule(
        words=("variable",),
        form=re.compile(
            r"variable\s{1,4}\"[\w-]{0,60}(?:password|secret|token|key)\"\s{0,4}\{[^{}]{0,400}?default\s{0,8}=\s{0,4}"
            r"\"(?P<secret>[^\"\n]{3,400})\"",
            re.IGNORECASE,
        ),
    ),
    Rule(
        signs=("$",),
        form=re.compile(r"(?P<secret>\$(?:1|2[abxy]|5|6|y|apr1|argon2\w{1,2})\$[A-Za-z0-9./$,=+-]{20,200})"),
    ),
    Rule(
        signs=("thin:",),
        form=re.compile(r"\bthin:[\w-]{1,60}/(?P<secret>[^\s@/]{3,200})@"),
    ),
    Rule(
        kind="key",
        signs=("private-lines",),
        form=re.compile(r"Private-Lines:\ \d{1,4}\s{1,2}(?P<secret>(?:[A-Za-z0-9+/=]{1,80}\s?)++)"),
    ),
    Rule(
        kind="key",
        signs=('"d"',),
        form=re.compile(r"\"d\"\s{0,4}:\s{0,4}\"(?P<secret>[A-Za-z0-9_-]{40,800})\""),
    ),
    Rule(
        kind="key",
        signs=("<d>", "<p>"),
        form=re.compile(r"<(?:D|P|Q|DP|DQ|InverseQ)>\s{0,8}(?P<secret>[A-Za-z0-9+/=\s]{40,4000}+)</"),
    ),
    Rule(
        kind="key",
        signs=("ls0tls1crudj",),
        form=re.compile(r"(?P<secret>LS0tLS1CRUdJTiB(?!DRVJU|QVUJM)[A-Za-z0-9+/=]{40,}+)"),
    ),
    Rule(
        kind="key",
        signs=("private key", "privatekey", "private_key"),
        form=re.compile(
            r"private[ _]?key\w{0,20}\W{1,6}(?:is\W{1,3})?(?P<secret>(?:0x)?[0-9a-fA-F]{64})\b", re.IGNORECASE
        ),
    ),
    Rule(
        kind="key",
        signs=(".local.", ".public."),
        form=re.compile(r"\b(?P<secret>v[1-4]\.(?:local|public)\.[A-Za-z0-9_.-]{40,}+)"),
    ),
)
