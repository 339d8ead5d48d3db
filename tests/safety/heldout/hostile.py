"""Secrets in syntax, in disguise and over two messages: the list that is held out, written before there were rules for it.

␞ stands between two messages of one session.
"""

# ruff: noqa: E501 - texts are as wide as they are, with the signs that they have

import html
import json
import re
from collections.abc import Sequence
from urllib.parse import quote, quote_plus

from tests.safety.draw import Draw, Form, forms, grouped

_STYLED = {"bold": 0x1D400, "mono": 0x1D670}
"""Letters for mathematics, which compatibility makes plain ones."""


def _wide(text: str) -> str:
    return "".join(chr(0xFF01 + ord(sign) - 33) if 33 <= ord(sign) <= 126 else sign for sign in text)


def _styled(text: str, style: str) -> str:
    base = _STYLED[style]
    letters = ((sign, base + (26 if sign.islower() else 0)) for sign in text)
    return "".join(
        chr(start + ord(sign.lower()) - 97) if sign.isascii() and sign.isalpha() else sign for sign, start in letters
    )


def _percent(text: str, plus: bool = False) -> str:
    return (quote_plus if plus else quote)(text, safe="").replace("%C2%AB", "«").replace("%C2%BB", "»")


def _hexed(text: str) -> str:
    return "".join(sign if sign in "«»" else f"&#x{ord(sign):x};" for sign in text)


def _ascii(value: object) -> str:
    """JSON as most clients write it, with letters beyond ASCII escaped, but for the marks."""
    return re.sub(r"\\+u00ab", "«", re.sub(r"\\+u00bb", "»", json.dumps(value)))


def _tool(arguments: str) -> str:
    """A call of a tool as clients send it: JSON in a string in JSON."""
    return json.dumps([{"type": "function", "function": {"name": "run", "arguments": arguments}}], ensure_ascii=False)


def _call(template: str) -> Form:
    return lambda draw: _tool(json.dumps({"input": draw.fill(template)}, ensure_ascii=False))


def _grouped(made: str, sizes: Sequence[int], sign: str, template: str = "{}") -> Form:
    """A number in groups: `visa`, or a country's IBAN."""

    def drawn(draw: Draw) -> str:
        number = draw.a_card(made) if made.islower() else draw.a_iban(made)
        return template.replace("{}", f"«{grouped(number, sizes, sign)}»")

    return drawn


VENDOR = forms(
    """
The bot's key «sk-proj-{b64url:124}» has leaked
OPENAI «sk-{alnum:48}»
github fine-grained: «github_pat_{alnum:22}_{alnum:59}»
aws s3 ls with «ASIA{upper36:16}»
huggingface-cli login --token «hf_{letters:34}»
«dop_v1_{hex:64}»
Twilio «SK{hex:32}» here
«shpat_{hex:32}»
«dapi{hex:32}» for databricks
sentry «sntrys_{b64:120}»
https://{word}.supabase.co «sbp_{hex:40}»
«SG.{b64url:22}.{b64url:43}» sendgrid
tailscale up --authkey «tskey-auth-{alnum:12}CNTRL-{alnum:32}»
«hvs.{b64url:90}» is the vault token
grafana «glsa_{alnum:32}_{hex:8}»
"""
)
SYNTAX: list[Form] = [
    *forms(
        """
signIn('{user}', '«{secret}»');
db.authenticate(user="{user}", pwd="«{secret}»")
ftp://{user}:«{urlsecret}»@{host}:21/pub
redis-cli -h {host} -a «{secret}» ping
WIFI:S:{word};T:WPA;P:«{secret}»;H:false;;
driver.find_element(By.ID, "password").send_keys("«{secret}»")
page.fill('#password', '«{secret}»')
new Login("{user}@{host}", "«{secret}»").submit();
ldapsearch -x -D cn={user} -w «{secret}»
7z x a.7z -p«{secret}»
password := "«{secret}»"
"""
    ),
    '{{"username": "{user}", "secret": "«{secret}»"}}'.replace("{{", "{").replace("}}", "}"),
    *forms(
        """
conn = pymysql.connect(host='{host}', user='{user}', passwd='«{secret}»')
curl --user {user}:«{secret}» https://{host}/
Server={host};User Id={user};Password=«{alnum:12}»;
verify_password("{user}", "«{secret}»")
<password>«{secret}»</password>
"""
    ),
    "[wifi]\nssid={word}\npsk=«{secret}»",
    *forms(
        """
openssl enc -d -in a.enc -pass pass:«{secret}»
imap.login("{user}", "«{secret}»")
session.auth = HTTPBasicAuth('{user}', '«{secret}»')
CREATE USER '{user}'@'%' IDENTIFIED BY '«{secret}»';
env("DB_PASSWORD", "«{secret}»")
docker login -u {user} -p «{secret}» {host}
"""
    ),
]
NESTED: list[Form] = [
    _call("mysql -u{user} -p«{alnum:14}»"),
    _call('{"user": "{user}", "password": "«{alnum:12}»"}'),
    _call("the new password is «{alnum:10}» now"),
    _call("export SECRET_KEY='«{b64url:40}»'"),
    lambda draw: _tool(_tool(draw.fill('{"client_secret": "«{alnum:24}»"}'))),
    lambda draw: _tool(_tool(_tool(draw.fill("passwd: «{alnum:12}»\nuser: {user}")))),
    lambda draw: _ascii({"body": _ascii({"text": draw.fill("Das Passwort für {user}:\n«{alnum:12}»")})}),
    lambda draw: _ascii({"log": _ascii({"url": draw.fill("https://{user}:«{alnum:16}»@{host}/")})}),
    lambda draw: "data: " + _ascii({"x": _ascii({"x": draw.fill("Cookie: session=«{alnum:40}»")})}),
]
ESCAPED: list[Form] = [
    lambda draw: "user=" + draw.a_user() + "&passwd=" + _percent(draw.fill("«{secret}»"), plus=True),
    lambda draw: "?json=" + _percent(draw.fill('{"user":"{user}","pwd":"«{secret}»"}')),
    lambda draw: "?next=" + _percent("/cb?access_token=" + _percent(draw.fill("«{alnum:30}»"))),
    lambda draw: _hexed(draw.fill("password: «{secret}»")),
    lambda draw: html.escape(draw.fill("<config password='«{secret}»'/>")),
    lambda draw: html.escape(html.escape(draw.fill('login("{user}", "«{secret}»")'))),
    lambda draw: "Das&#32;Passwort&#32;lautet&#58;&#32;" + html.escape(draw.fill("«{secret}»")),
    lambda draw: "mailto:x?body=" + _percent(draw.fill("the password is «{secret}»")),
    lambda draw: '{"text": "' + "pass\\u0077ord: " + draw.fill("«{alnum:12}»") + '"}',
    lambda draw: '{"text": "\\u043f\\u0430\\u0440\\u043e\\u043b\\u044c: ' + draw.fill("«{alnum:12}»") + '"}',
    lambda draw: "<p>Mot&nbsp;de&nbsp;passe&nbsp;: <b>" + html.escape(draw.fill("«{secret}»")) + "</b></p>",
    lambda draw: _percent(draw.fill("«{user}@{host}»")) + "&x=1",
]
FULLWIDTH: list[Form] = [
    lambda draw: _wide(draw.fill("pw=«{secret}»")),
    lambda draw: _wide(draw.fill("the password is «{alnum:10}»")),
    lambda draw: "密码：" + _wide(draw.fill("«{alnum:10}»")),
    lambda draw: "カード番号" + _wide("«" + grouped(draw.a_card("mastercard"), [4], "-") + "»"),
    lambda draw: _wide("«" + draw.a_iban("DE") + "»"),
    lambda draw: _wide(draw.fill("«sk_live_{alnum:24}»")),
    lambda draw: draw.fill("«{user}＠{host}»"),
    lambda draw: _styled(draw.fill("my password is "), "bold") + draw.fill("«{alnum:10}»"),
    lambda draw: _styled("password: ", "mono") + _styled(draw.fill("«{letters:6}{d:4}»"), "mono"),
]
CARD_ODD: list[Form] = [
    _grouped("visa", [4], ":"),
    _grouped("mastercard", [4], "|"),
    _grouped("visa", [4], "·"),
    _grouped("visa", [4], "\t"),
    _grouped("mastercard", [4], "\u2009", "Karte {}"),
    _grouped("visa", [4], " - "),
    _grouped("visa", [4], ", ", "my visa: {}"),
    _grouped("mastercard", [4], "\u2011"),
    _grouped("visa", [4], "\u200b"),
    _grouped("visa", [4], "\\"),
    _grouped("mastercard", [2], " "),
    _grouped("amex", [4, 6, 5], " - "),
    _grouped("visa", [1], "-"),
    _grouped("discover", [4], "\n"),
    _grouped("visa", [8], " "),
    _grouped("visa", [4], "—", "tarjeta {}"),
]
IBAN_DOTTED: list[Form] = [
    _grouped("AT", [4], "."),
    _grouped("ES", [4], ". ", "cuenta {}"),
    _grouped("BE", [4], " - "),
    _grouped("PL", [2, 4], "."),
    _grouped("PT", [4], "·"),
    _grouped("SE", [4], "\u2009", "konto {}"),
    _grouped("DE", [2, 2, 4], ".", "überweise an {}, danke"),
    _grouped("FR", [4], "/"),
    _grouped("IE", [4], "\t"),
    lambda draw: "IBAN: «" + grouped(draw.a_iban("NL").lower(), [4], ".") + "»",
]
MAC: list[Form] = [
    lambda draw: f"arp -s 10.0.0.7 «{draw.a_mac()}»",
    lambda draw: f"physical address. . : «{draw.a_mac('-').upper()}»",
    lambda draw: f"int gi0/1 «{grouped(draw.a_mac('').upper(), [4], '.')}»",
    lambda draw: f'{{"bssid": "«{draw.a_mac().upper()}»"}}',
    lambda draw: f"my phone is «{draw.a_mac(' ')}» in the router's list of MAC addresses",
    lambda draw: f"mac_address=«{draw.a_mac('')}»",
    lambda draw: f"DHCPACK to «{draw.a_mac()}» via wlan0",
]
EMAIL_DISGUISED = forms(
    """
mail me: «{user}.{surname} at {word} dot com»
«{user} {at} {word} {dot} net»
«{user}<at>{word}<dot>org»
«{user}_at_{word}_dot_com»
«{user} -at- {word} -dot- de»
«{user} (a) {word}.fr»
«{user} at {word}.com», thanks
«{user}@{word}(.)org»
«{user} @ {word} . com»
«{user} (at) {word} (punkt) de»
«{user} chez {word} point fr»
«{user}{d:2} AT {word} DOT co DOT uk»
«{user} arroba {word} ponto com»
«{user} klammeraffe {word} punkt de»
«{user}＠{word}．com»
«{user}&commat;{word}&period;org»
«{user}(ät){word}.ch»
«{user}ATgmailDOTcom»
"""
)
PHONE_NATIONAL = forms(
    """
you can reach me at «020 7{d:3} {d:4}»
Handy: «0151/{m:1}{d:7}»
meine Nummer ist «0664 {m:1}{d:6}»
appelle-moi au «07-{d:2}-{d:2}-{d:2}-{d:2}»
«01 {m:1}{d:1} {d:2} {d:2} {d:2}» (domicile)
llámame al «91 {m:1}{d:2} {d:2} {d:2}»
chiamami al «33{m:1}-{m:1}{d:6}»
mein Natel: «076 {m:1}{d:2} {d:2} {d:2}»
«044 {m:1}{d:2} {d:2} {d:2}»
text me, «{m:1}{d:2}.{m:1}{d:2}.{d:4}»
fax «(089) {m:1}{d:3} {d:4}»
mijn nummer is «06 {m:1}{d:3} {d:4}»
mitt nummer är «070-{m:1}{d:2} {d:2} {d:2}»
mój numer to «5{d:2} {d:3} {d:3}»
mobil «20 {d:2} {d:2} {d:2}»
ligue para «(21) 9{m:1}{d:3}-{d:4}»
мой номер «8 (9{d:2}) {d:3}-{d:2}-{d:2}»
携帯：«080-{m:1}{d:3}-{d:4}»
我的电话是«138 {d:4} {d:4}»
전화번호 «010-{m:1}{d:3}-{d:4}»
phone: «98{d:3} {d:5}»
"""
)
TWO_MESSAGES = forms(
    """
ok, the wifi password is:␞«{secret}»
Please enter your password:␞«{secret}»
What's the PIN?␞«{d:4}»
Which password should I use for {user}?␞use «{secret}»
the password begins with «{alnum:6}»␞and then comes «{alnum:6}»
part 1 of the token: «{alnum:20}»␞part 2: «{alnum:20}»
Could you tell me the API key?␞sure, «{alnum:10}-{alnum:10}»
Das Passwort schicke ich dir gleich␞«{secret}»
¿Cuál es la contraseña?␞es «{secret}»
qual è la password?␞«{secret}»
Je t'envoie le mot de passe dans le prochain message␞«{secret}»
the first four letters of my password are «{letters:4}»␞the others are «{alnum:6}»
какой пароль?␞«{secret}»
密码是多少？␞«{secret}»
What is the username and the password?␞{user} «{secret}»
"""
)
